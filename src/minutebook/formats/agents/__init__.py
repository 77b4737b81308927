"""Sessions and histories of coding agents and chat programs."""
