"""How much of a section is shown, and how sections are named."""

from enum import StrEnum
from typing import TypeAlias

SectionPath: TypeAlias = tuple[str, ...]
"""The keys that lead to a section, from the outermost; `("guide", "style")` is written `guide.style`."""


class SectionVisibility(StrEnum):
    """How much of a section is shown."""

    FULL = "full"
    SUMMARY = "summary"


def dotted(path: SectionPath) -> str:
    """A path as the model and messages name it."""
    return ".".join(path)


def path_of(key: str) -> SectionPath:
    """The path that a dotted key names."""
    return tuple(key.strip().split("."))
