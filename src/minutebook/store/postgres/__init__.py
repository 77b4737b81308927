"""Conversations in PostgreSQL. Start with `store`, then `engine` and `append`."""
