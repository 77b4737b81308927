"""Figures that single pages compute: what fills the window, what cost most, differences, other policies."""
