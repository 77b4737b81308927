"""Dataclasses as JSON data. What `dump` writes, `parse` reads back equal."""

import json
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from typing import Any
from uuid import UUID

from minutebook.errors import InvalidSetting, UnsupportedType


def dump(value: Any) -> Any:
    """The value as JSON data: dataclasses as dicts, sets as sorted lists, enums as their values, dates as ISO text.

    Raises:
        UnsupportedType: a part of it has no JSON form.
    """
    if isinstance(value, Enum):
        return dump(value.value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidSetting("a number for JSON", value, "a finite one")
        return value
    if isinstance(value, date):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: dump(getattr(value, each.name)) for each in fields(value) if each.init}
    if isinstance(value, Mapping):
        return {_key(key): dump(part) for key, part in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(dump, value), key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, list | tuple):
        return [dump(part) for part in value]
    raise UnsupportedType(f"{value!r:.80}", f"a {type(value).__name__}", "give a dataclass, a list, a dict or a scalar")


def dump_text(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON text, readable: no escapes for letters beyond ASCII."""
    return json.dumps(dump(value), ensure_ascii=False, indent=indent)


def _key(key: Any) -> str:
    text = key.value if isinstance(key, Enum) else key
    if not isinstance(text, str):
        raise UnsupportedType(f"the key {key!r}", f"a {type(key).__name__}", "key mappings by text")
    return text
