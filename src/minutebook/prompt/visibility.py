"""The visibility of sections, and their paths."""

from enum import StrEnum
from typing import TypeAlias

SectionPath: TypeAlias = tuple[str, ...]
"""The keys of a section and of the sections around it, outermost first; `("guide", "style")` is written `guide.style`."""


class SectionVisibility(StrEnum):
    """How much of a section is shown."""

    FULL = "full"
    SUMMARY = "summary"


def dotted(path: SectionPath) -> str:
    """The path as it is written in prompts and error messages."""
    return ".".join(path)


def path_of(key: str) -> SectionPath:
    """The path of a dotted key."""
    return tuple(key.strip().split("."))
