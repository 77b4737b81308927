"""A strict provider on loopback: chat completions, Responses and Messages. Start with `server`."""
