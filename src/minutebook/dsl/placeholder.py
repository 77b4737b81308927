"""`${name}` in the text of a prompt: where a value goes. `$${name}` stands for itself."""

import re
from collections.abc import Mapping
from typing import Final

INPUT: Final = "input"
"""What an agent, a prompt or the whole program was asked."""

_PLACEHOLDER: Final = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<name>[^}\n]*)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """The names a text has places for, each once, in their order."""
    found = (match["name"] for match in _PLACEHOLDER.finditer(text) if match["name"] is not None)
    return tuple(dict.fromkeys(found))


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with values in their places; they are put in as they are and not searched again."""
    return _PLACEHOLDER.sub(lambda match: "${" if match["escaped"] else values[match["name"]], text)
