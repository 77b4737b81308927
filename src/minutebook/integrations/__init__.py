"""Adapters for other frameworks, one folder each. Nothing else in minutebook imports them."""
