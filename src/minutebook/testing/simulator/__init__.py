"""Generated coding sessions for tests and benchmarks. Start with `session`."""
