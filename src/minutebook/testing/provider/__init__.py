"""A strict provider on loopback: chat completions and Messages. Start with `server`."""
