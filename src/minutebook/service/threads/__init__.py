"""`/threads`: conversations in which the service runs the agent. Start with `routes`, then `run`."""
