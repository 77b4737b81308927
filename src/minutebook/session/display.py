"""Values in error messages, without the memory addresses of Python's default repr."""

import re
from typing import Final

_DEFAULT_REPR: Final = re.compile(r"<[\w.<>]*?(\w+) object at 0x[0-9a-fA-F]+>")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


def display_text(value: object) -> str:
    """The repr of a value, with `X object` for an object whose class `X` defines no repr."""
    return _ADDRESS.sub("", _DEFAULT_REPR.sub(r"\1 object", repr(value)))


class DisplayedValue:
    """Takes the place of a value in an error. Its repr is the given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def displayable(value: object) -> object:
    """The value itself if its repr is readable, else a `DisplayedValue`."""
    text = display_text(value)
    return value if text == repr(value) else DisplayedValue(text)
