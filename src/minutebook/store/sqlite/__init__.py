"""Conversations in one SQLite file. Start with `store`, then `writer` and `commit`."""
