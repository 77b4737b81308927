"""Just enough of JSON Schema to check what we write, told independently of how we write it."""

import re
from datetime import date, datetime
from typing import Any
from uuid import UUID

FORMATS = {"date-time": datetime.fromisoformat, "date": date.fromisoformat, "uuid": UUID}
TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
KNOWN = {
    *("type", "description", "default", "enum", "format", "anyOf", "$ref", "$defs", "items", "prefixItems"),
    *("minItems", "maxItems", "uniqueItems", "properties", "required", "additionalProperties", "propertyNames"),
    *("minLength", "maxLength", "pattern", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"),
    *("multipleOf", "minProperties", "maxProperties"),
}


def accepts(schema: dict[str, Any], value: Any, root: dict[str, Any] | None = None) -> bool:
    root = schema if root is None else root
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    if "$ref" in schema and not accepts(target(schema["$ref"], root), value, root):
        return False
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(is_a(name, value) for name in names):
            return False
    if "enum" in schema and not any(type(one) is type(value) and one == value for one in schema["enum"]):
        return False
    if "anyOf" in schema and not any(accepts(option, value, root) for option in schema["anyOf"]):
        return False
    if isinstance(value, str):
        return text(schema, value)
    if isinstance(value, list):
        return array(schema, value, root)
    if isinstance(value, dict):
        return mapping(schema, value, root)
    return isinstance(value, bool) or value is None or number(schema, value)


def target(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found[part] if part else found
    return found


def is_a(name: str, value: Any) -> bool:
    return isinstance(value, TYPES[name]) and (isinstance(value, bool) == (name == "boolean"))


def text(schema: dict[str, Any], value: str) -> bool:
    if "format" in schema:
        try:
            FORMATS[schema["format"]](value)
        except ValueError:
            return False
    fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    return fits and re.search(schema.get("pattern", ""), value) is not None


def number(schema: dict[str, Any], value: float) -> bool:
    return (
        value >= schema.get("minimum", value)
        and value <= schema.get("maximum", value)
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
        and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
        and ("multipleOf" not in schema or value % schema["multipleOf"] == 0)
    )


def array(schema: dict[str, Any], value: list[Any], root: dict[str, Any]) -> bool:
    first = schema.get("prefixItems", [])
    return (
        schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        and all(accepts(item, part, root) for item, part in zip(first, value, strict=False))
        and all(accepts(schema.get("items", {}), part, root) for part in value[len(first) :])
        and not (schema.get("uniqueItems") and any(part in value[:at] for at, part in enumerate(value)))
    )


def mapping(schema: dict[str, Any], value: dict[str, Any], root: dict[str, Any]) -> bool:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
    others = [key for key in value if key not in known]
    return (
        all(key in value for key in schema.get("required", []))
        and all(accepts(known[key], part, root) for key, part in value.items() if key in known)
        and all(rest is not False and accepts(rest, value[key], root) for key in others)
        and all(accepts(schema.get("propertyNames", {}), key, root) for key in value)
        and schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value))
    )
