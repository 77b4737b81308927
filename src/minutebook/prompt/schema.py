"""JSON Schema of dataclasses, for tool parameters and answers, and dataclasses as JSON data.

A dataclass that is used several times or contains itself is defined once under `$defs`; every other is written inline,
which small models understand better. `strict=True` writes what OpenAI's strict mode accepts: every field is required, a
field with a default is nullable (null is parsed as the default), and keywords that the mode rejects are left out.

`minutebook.prompt.parse.parse` reads back an equal value from the output of `json_data`.
"""

import json
import math
from base64 import b64encode
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from copy import deepcopy
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from enum import Enum
from functools import lru_cache
from inspect import cleandoc
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from minutebook.errors import InvalidSetting, UnsupportedType
from minutebook.prompt.validation import core_schema_of


def json_data(value: Any) -> Any:
    """The value as JSON data: dataclasses as dicts, sets as sorted lists, enums as their values, dates as ISO text.

    Raises:
        UnsupportedType: a part of the value has no JSON form.
        InvalidSetting: a number is not finite.
    """
    if isinstance(value, Enum):
        return json_data(value.value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidSetting("value", value, "a finite number, because JSON has no others")
        return value
    if isinstance(value, date):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_data(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, Mapping):
        return {_key_text(key): json_data(part) for key, part in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(json_data, value), key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, list | tuple):
        return [json_data(part) for part in value]
    raise UnsupportedType(f"{value!r:.80}", type(value).__name__, "use a dataclass, a list, a dict or a scalar")


def tool_value_text(value: Any) -> str:
    """The value that a tool returned, as JSON text. Values that JSON does not have are written as text: decimals, paths, NaN.

    Raises:
        UnsupportedType: the value contains itself, or two keys of a dict are written as the same text.
    """
    try:
        return json.dumps(_tool_value_data(value), ensure_ascii=False)
    except RecursionError:
        advice = "it cannot be written as JSON, because it contains itself or is nested too deep"
        raise UnsupportedType("the value of the tool", type(value).__name__, advice) from None


def _tool_value_data(value: Any) -> Any:
    """The value as `json_data` returns it, with text for the parts that have no JSON form."""
    if isinstance(value, BaseModel):
        return _tool_value_data(value.model_dump())
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _tool_value_data(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, Mapping):
        return _with_text_keys(value)
    if isinstance(value, AbstractSet):
        return sorted(map(_tool_value_data, value), key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes_text(bytes(value))
    if isinstance(value, Sequence | ValuesView | Generator) and not isinstance(value, str):
        return [_tool_value_data(part) for part in value]
    try:
        return json_data(value)
    except (UnsupportedType, InvalidSetting):
        return str(value)


def _with_text_keys(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, part in mapping.items():
        key_data = _tool_value_data(key)
        text = key_data if isinstance(key_data, str) else json.dumps(key_data, ensure_ascii=False)
        if text in data:
            advice = f"it cannot be written as JSON, because two keys are written as {text!r}"
            raise UnsupportedType(f"the key {key!r}", type(key).__name__, advice)
        data[text] = _tool_value_data(part)
    return data


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return b64encode(data).decode()


def json_text(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON text, without escapes for non-ASCII characters."""
    return json.dumps(json_data(value), ensure_ascii=False, indent=indent)


def _key_text(key: Any) -> str:
    text = key.value if isinstance(key, Enum) else key
    if not isinstance(text, str):
        raise UnsupportedType(f"the key {key!r}", type(key).__name__, "use str keys")
    return text


_REF: Final = "#/$defs/"
_NON_STRICT_KEYWORDS: Final = frozenset(
    {"default", "minLength", "maxLength", "minProperties", "maxProperties", "uniqueItems"}
)
"""Keywords that OpenAI's strict mode rejects."""


def json_schema(cls: type, *, strict: bool = False) -> dict[str, Any]:
    """The JSON Schema of a dataclass.

    Raises:
        UnsupportedType: the type of a field has no JSON form, or none that strict mode accepts.
    """
    return deepcopy(_cached_schema(cls, strict))


@lru_cache(maxsize=1024)
def _cached_schema(cls: type, strict: bool) -> dict[str, Any]:
    """The schema that all calls share. `json_schema` returns a copy of it."""
    generated = _Generator(union_format="primitive_type_array").generate(core_schema_of(cls))
    definitions = generated.pop("$defs", {})
    root = generated.get("$ref", "").removeprefix(_REF)
    counts = Counter(_references([generated, definitions]))
    writer = _Writer(definitions, {root} | {name for name, count in counts.items() if count > 1}, root, strict=strict)
    document = writer.write(definitions.get(root, generated), cls.__name__)
    shared_definitions = {
        name: writer.write(definitions[name], name) for name in definitions if name in writer.not_inlined - {root}
    }
    return document | ({"$defs": shared_definitions} if shared_definitions else {})


class _Generator(GenerateJsonSchema):
    """Pydantic's generator without titles. It reads the metadata that `validation` puts into core schemas."""

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        metadata = schema.get("metadata", {})
        if "json" in metadata:
            return dict(metadata["json"])
        generated = super().generate_inner(schema)
        if "dataclass" in metadata:
            description = _description(metadata["dataclass"])
            parts = {"properties": generated["properties"], "required": generated.get("required", [])}
            return (
                {"type": "object"}
                | ({"description": description} if description else {})
                | parts
                | {"additionalProperties": False}
            )
        if metadata.get("description"):
            generated = generated | {"description": metadata["description"]}
        if metadata.get("default", MISSING) is not MISSING:
            generated = generated | {"default": json_data(metadata["default"])}
        return generated

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def sort(self, value: dict[str, Any], parent_key: str | None = None) -> dict[str, Any]:  # noqa: ARG002 - same
        return value


class _Writer:
    """Writes a schema with all definitions inlined except those in `not_inlined`, and applies the rules of strict mode."""

    def __init__(self, definitions: dict[str, Any], not_inlined: set[str], root: str, *, strict: bool) -> None:
        self.definitions, self.not_inlined, self.root, self.strict = definitions, not_inlined, root, strict

    def write(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        if "$ref" in schema:
            return self._reference(schema)
        if self.strict and (not schema or schema.get("additionalProperties")):
            advice = "in strict mode, use a list of a dataclass with a key and a value, or pass strict=False"
            raise UnsupportedType(where, "dict" if schema else "Any", advice)
        written = {name: part for name, part in schema.items() if not (self.strict and name in _NON_STRICT_KEYWORDS)}
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                written[name] = self.write(schema[name], where)
        for name in ("anyOf", "prefixItems"):
            if name in schema:
                written[name] = [self.write(option, where) for option in schema[name]]
        if "properties" in schema:
            written["properties"] = {
                name: self._property(part, f"{where}.{name}", required=name in schema["required"])
                for name, part in schema["properties"].items()
            }
            written["required"] = list(schema["properties"]) if self.strict else schema["required"]
        if self.strict and schema.get("type") == "array" and "items" not in schema:
            options = written.pop("prefixItems", [{"type": "null"}])
            distinct = [option for index, option in enumerate(options) if option not in options[:index]]
            written["items"] = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
        return written

    def _reference(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema["$ref"].removeprefix(_REF)
        keywords = {
            key: part for key, part in schema.items() if key != "$ref" and not (self.strict and key == "default")
        }
        if name not in self.not_inlined:
            return self.write(self.definitions[name], name) | keywords
        target = {"$ref": "#" if name == self.root else schema["$ref"]}
        return target if self.strict else target | keywords  # strict mode rejects keywords next to a $ref

    def _property(self, schema: dict[str, Any], where: str, *, required: bool) -> dict[str, Any]:
        """The schema of a field. In strict mode, a field with a default is nullable."""
        written = self.write(schema, where)
        if required or not self.strict or _is_nullable(written):
            return written
        description = {"description": written.pop("description")} if "description" in written else {}
        if written.keys() == {"type"}:
            return {"type": [*_as_list(written["type"]), "null"]} | description
        return {"anyOf": [*written.get("anyOf", [written]), {"type": "null"}]} | description


def _is_nullable(schema: dict[str, Any]) -> bool:
    return "null" in _as_list(schema.get("type")) or any(map(_is_nullable, schema.get("anyOf", ())))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _references(part: Any) -> Iterator[str]:
    """The name of every definition that a part of a schema refers to, once per reference."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].removeprefix(_REF)
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _references(inner)


def _description(cls: type) -> str:
    """The first paragraph of a dataclass's docstring; "" if it is the signature that `dataclass` generates."""
    doc = cleandoc(cls.__doc__ or "")
    return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.partition("\n\n")[0].split())
