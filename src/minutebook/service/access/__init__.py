"""API keys, the audit log, rate and token limits."""
