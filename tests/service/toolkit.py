"""Functions that a configuration may name."""

from minutebook import tool


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def shout(text: str) -> str:
    """Say it loud."""
    return text.upper()


def current_time() -> str:
    """Not the one that is built in."""
    return "noon"
