"""Conversations in Redis; what must be atomic is a Lua script in `scripts`. Start with `store`."""
