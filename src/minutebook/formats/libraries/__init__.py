"""Histories of other libraries, and our own exports."""
