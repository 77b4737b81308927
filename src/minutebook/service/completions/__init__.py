"""`/v1/chat/completions`. Start with `routes`, then `run`."""
