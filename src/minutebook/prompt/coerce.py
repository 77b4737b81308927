"""What plainly means the same, for callers that ask for it with `coerce=True`.

Text that spells a number, `true` or `false` is taken as such, `3.0` as a whole number, a number as text, and text that
holds a JSON object or list as that object or list. Anything else stays as it is, and is refused as it is.
"""

from typing import Any

from minutebook.prompt.answer import decoded
from minutebook.prompt.shape import Shape
from minutebook.record.form import is_a


def coerced(shape: Shape, data: Any) -> Any:
    """The data as the shape wants it, where that can be meant."""
    if shape.type is str and is_a((int, float), data):
        return str(data)
    if shape.type is int and isinstance(data, float):
        return int(data) if data.is_integer() else data
    if shape.type in {int, float, bool} and isinstance(data, str):
        return _spelt(shape.type, data)
    if shape.kind in {"many", "row", "mapping", "dataclass"} and isinstance(data, str):
        return _held(data)
    return data


def _spelt(cls: type, text: str) -> Any:
    """The number or truth value that a text spells, or the text."""
    found = _held(text.strip().lower())
    if cls is int and isinstance(found, float):
        return int(found) if found.is_integer() else text
    return found if isinstance(found, int | float) and isinstance(found, bool) == (cls is bool) else text


def _held(text: str) -> Any:
    try:
        return decoded(text)
    except ValueError:
        return text
