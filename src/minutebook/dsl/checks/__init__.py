"""Checks of a parsed program, each with positions. Start with `program`."""
