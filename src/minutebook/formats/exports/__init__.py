"""Exports of chat services and training data."""
