"""Conversations in one SQLite file. Start with `store`, then `engine` and `writer`."""
