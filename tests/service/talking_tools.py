"""Tools for the tests of threads."""


def add(a: int, b: int) -> str:
    """Add two numbers, and say at length why."""
    return found(a, b)


def found(a: int, b: int = 1_000_000) -> str:
    return f"{a + b}, " + "for so numbers are. " * 10


def explode(path: str) -> str:
    """Fail."""
    raise RuntimeError(f"cannot touch {path}")
