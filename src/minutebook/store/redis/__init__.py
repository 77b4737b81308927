"""Conversations in Redis. Each atomic operation is a Lua script in `scripts`. Start with `store`."""
