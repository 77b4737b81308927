"""Made-up coding sessions for tests and benchmarks. Start with `session`."""
