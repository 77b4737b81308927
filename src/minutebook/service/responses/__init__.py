"""`/v1/responses`. Start with `routes`, then `run`."""
