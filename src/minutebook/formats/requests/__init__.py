"""Requests and messages of provider APIs."""
