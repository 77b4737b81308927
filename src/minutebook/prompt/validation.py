"""The pydantic core schema of a type hint, from which the JSON schema is generated and with which values are parsed.

A dataclass is an object; `list`, `tuple` and sets are arrays; `Literal` and enums are choices; dates and UUIDs are text in
a format. `Annotated[str, "what it is", {"min_length": 1}]` describes and limits a value, as does a field's metadata. Types
are strict: without `coerce`, a value of another type is rejected, except an int for a float and null for a field with a
default.
"""

import json
import re
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from datetime import date, datetime
from enum import Enum
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NewType,
    NoReturn,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as core

from minutebook.errors import UnsupportedType
from minutebook.prompt.problems import STRICT, list_text, reject, validate_union, value_text

_SCALARS: Final[Mapping[Any, core.CoreSchema]] = {
    str: core.str_schema(strict=True, regex_engine="python-re"),
    int: core.int_schema(strict=True),
    float: core.float_schema(strict=True),
    bool: core.bool_schema(strict=True),
    NoneType: core.none_schema(),
}
_FORMATS: Final[Mapping[Any, tuple[core.CoreSchema, Callable[[str], Any]]]] = {
    datetime: (core.datetime_schema(strict=True), datetime.fromisoformat),
    date: (core.date_schema(strict=True), date.fromisoformat),
    UUID: (core.uuid_schema(strict=True), UUID),
}
_SETS: Final[Mapping[Any, Callable[..., core.CoreSchema]]] = {
    **dict.fromkeys((set, MutableSet), core.set_schema),
    **dict.fromkeys((frozenset, AbstractSet), core.frozenset_schema),
}
_LISTS: Final[Mapping[Any, Callable[..., core.CoreSchema]]] = {
    **dict.fromkeys((list, MutableSequence), core.list_schema),
    **dict.fromkeys(
        (tuple, Sequence, Collection, Iterable), lambda item: core.tuple_schema([item], variadic_item_index=0)
    ),
}
_MAPPINGS: Final = frozenset({dict, MutableMapping, Mapping})
_SIZES: Final = frozenset({"min_length", "max_length"})
_BOUNDS: Final = frozenset({"ge", "gt", "le", "lt", "multiple_of"})
_LIMITS: Final[Mapping[str, frozenset[str]]] = {
    "str": _SIZES | {"pattern"},
    **dict.fromkeys(("int", "float"), _BOUNDS),
    **dict.fromkeys(("list", "set", "frozenset", "tuple", "dict"), _SIZES),
}
"""Type of a core schema → the limits that it may have, by pydantic's names. Other keys of the metadata are ignored."""
_LIMIT_NAMES: Final = frozenset[str]().union(*_LIMITS.values())
_ADVICE: Final = (
    "use str, int, float, bool, None, Literal, an Enum, datetime, date, UUID, list, tuple, set, dict, "
    "a dataclass, or a union of these"
)
_before_validator: Final = core.no_info_before_validator_function
_wrap_validator: Final = core.no_info_wrap_validator_function
_plain_validator: Final = core.no_info_plain_validator_function
_DEFAULT: Final = object()
"""The value of a field that was null and has a default. `_construct` leaves such fields out."""


@lru_cache(maxsize=1024)
def core_schema_of(hint: Any, *, coerce: bool = False) -> core.CoreSchema:
    """The core schema of a type, with its definitions.

    Raises:
        UnsupportedType: the type or one of its fields has no JSON form.
    """
    builder = _SchemaBuilder(coerce)
    schema = builder.schema_of(hint, "the type")
    return core.definitions_schema(schema, list(builder.definitions.values()))


@lru_cache(maxsize=1024)
def validator_of(hint: Any, *, coerce: bool) -> SchemaValidator:
    return SchemaValidator(core_schema_of(hint, coerce=coerce))


@dataclass(frozen=True)
class _SchemaBuilder:
    """Builds the core schema of a type hint, and collects the definitions of its dataclasses."""

    coerce: bool
    definitions: dict[str, Any] = field(default_factory=dict)
    """Reference → the schema of a dataclass, or None while it is built."""
    names: dict[type, str] = field(default_factory=dict)
    """Dataclass → its name in references, which is unique."""

    def schema_of(self, hint: Any, where: str, metadata: Mapping[Any, Any] | None = None) -> core.CoreSchema:
        """The core schema of a hint with the limits in the metadata; `where` is the field for error messages."""
        unannotated, own_metadata = split_annotated(hint)
        schema = self._schema_without_limits(unannotated, where)
        for name, limit in (own_metadata if metadata is None else metadata).items():
            if name in _LIMIT_NAMES:
                limited_schema = _with_limit(schema, name, limit)
                if limited_schema == schema:
                    type_text = f"{hint_text(unannotated)} with the limit {name!r}"
                    raise UnsupportedType(where, type_text, f"use a type to which {name} applies, or remove {name}")
                schema = limited_schema
        return schema

    def _schema_without_limits(self, hint: Any, where: str) -> core.CoreSchema:
        origin, parts = get_origin(hint) or hint, get_args(hint)
        schema: core.CoreSchema
        if not isinstance(origin, Hashable):
            raise UnsupportedType(where, hint_text(hint), _ADVICE)
        if origin in {Any, object}:
            return core.any_schema()
        if origin in {Union, UnionType}:
            return self.union(parts, where)
        if choices := _choices(hint):
            return _choice_schema(choices, where, hint_text(hint))
        if origin in _FORMATS:
            schema, parse = _FORMATS[origin]
            return _before_validator(partial(_parse_text, parse), schema)
        if origin in _SCALARS:
            schema = _SCALARS[origin]
        elif origin is tuple and Ellipsis not in parts and hasattr(hint, "__args__"):  # not plain `tuple`
            items = [self.schema_of(part, where) for part in parts]
            schema = _before_validator(partial(_require_items, len(items)), core.tuple_schema(items))
        elif origin in _LISTS:
            schema = _LISTS[origin](self.schema_of(parts[0] if parts else Any, where))
        elif origin in _SETS:
            schema = _wrap_validator(
                _require_distinct, _SETS[origin](self.schema_of(parts[0] if parts else Any, where))
            )
        elif origin in _MAPPINGS:
            key, value = parts or (str, Any)
            choices = _choices(key)
            is_text = split_annotated(key) == (str, {})
            if not is_text and not (choices and all(isinstance(choice, str) for choice, _ in choices)):
                raise UnsupportedType(
                    where, f"dict with keys of type {hint_text(key)}", "use str keys, or an enum of str"
                )
            schema = core.dict_schema(self.schema_of(key, where), self.schema_of(value, where))
        elif isinstance(hint, type) and is_dataclass(hint):
            schema = self._dataclass_reference(hint)
        elif is_dataclass(origin):
            advice = "use a dataclass that is not generic"
            raise UnsupportedType(where, f"{hint_text(hint)}, a generic dataclass", advice)
        else:
            raise UnsupportedType(where, hint_text(hint), _ADVICE)
        return _before_validator(partial(_coerce, origin), schema) if self.coerce else schema

    def _dataclass_reference(self, cls: type) -> core.CoreSchema:
        """A reference to the definition of a dataclass, which may contain itself."""
        if cls not in self.names:
            same_name_count = sum(known.__name__ == cls.__name__ for known in self.names)
            self.names[cls] = f"{cls.__name__}_{same_name_count + 1}" if same_name_count else cls.__name__
        ref = self.names[cls] + " coerced" * self.coerce
        if ref not in self.definitions:
            self.definitions[ref] = None  # a field of the same class must not define it again
            fields = {member.name: self._typed_dict_field(cls, member, hint) for member, hint in fields_of(cls)}
            field_list = f"the fields are {', '.join(fields)}" if fields else "there are no fields"
            reject_unknown = partial(reject, "problem", f"is not a field of {cls.__name__}; {field_list}")
            schema = core.typed_dict_schema(
                fields,
                extra_behavior="allow",
                extras_schema=_plain_validator(reject_unknown, metadata={"json": {}}),
                metadata={"dataclass": cls},
            )
            self.definitions[ref] = _wrap_validator(partial(_construct, cls), schema, ref=ref)
        return core.definition_reference_schema(ref)

    def _typed_dict_field(self, cls: type, member: "Field[Any]", hint: Any) -> core.TypedDictField:
        where = f"{cls.__name__}.{member.name}"
        metadata = {**split_annotated(hint)[1], **member.metadata}
        schema = self.schema_of(hint, where, metadata)
        required = is_required(member)
        if not required:
            schema = _wrap_validator(_default_for_null, schema)
        metadata = {"description": metadata.get("description"), "default": member.default}
        return core.typed_dict_field(schema, required=required, metadata=metadata)

    def union(self, hints: Sequence[Any], where: str) -> core.CoreSchema:
        dataclasses = tuple(hint for hint in hints if isinstance(hint, type) and is_dataclass(hint))
        options: list[core.CoreSchema | tuple[core.CoreSchema, str]] = []
        for number, hint in enumerate(hints):
            option = self.schema_of(hint, where)
            if hint in dataclasses and len(dataclasses) > 1:
                option = _before_validator(partial(_require_best_match, hint, dataclasses), option)
            options.append((option, str(number)))
        if self.coerce:  # first try without coercion
            strict_union = replace(self, coerce=False).union(hints, where)
            union = core.union_schema([(strict_union, STRICT), *options], mode="left_to_right")
        else:
            union = core.union_schema(options)
        return _wrap_validator(validate_union, union)


@lru_cache(maxsize=1024)
def fields_of(cls: type) -> tuple[tuple["Field[Any]", Any], ...]:
    """The fields of a dataclass's constructor with their hints, in order.

    Names are resolved in the class, which may be defined in a function and contain itself, and then in its module.

    Raises:
        UnsupportedType: a name cannot be resolved, or is not a type.
    """
    local_names: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        inner_types = {name: value for name, value in vars(base).items() if isinstance(value, type)}
        local_names |= inner_types | {base.__name__: base}
    try:
        hints = get_type_hints(cls, localns=local_names, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError) as error:
        type_text = f"hints that cannot be resolved ({error})"
        raise UnsupportedType(
            f"dataclass {cls.__name__}", type_text, "define its types at the top of a module"
        ) from error
    return tuple((member, hints[member.name]) for member in fields(cls) if member.init)


def is_required(member: "Field[Any]") -> bool:
    """Whether the field has no default."""
    return member.default is MISSING and member.default_factory is MISSING


def split_annotated(hint: Any) -> tuple[Any, dict[Any, Any]]:
    """A hint without `Annotated` and `NewType`, and its metadata: a str is the description, a mapping is metadata."""
    metadata: dict[Any, Any] = {}
    while isinstance(hint, NewType) or get_origin(hint) is Annotated:
        for part in getattr(hint, "__metadata__", ()):
            metadata |= {"description": part} if isinstance(part, str) else part if isinstance(part, Mapping) else {}
        hint = hint.__supertype__ if isinstance(hint, NewType) else hint.__origin__
    return NoneType if hint is None else hint, metadata


def hint_text(hint: Any) -> str:
    """The name of a hint in errors, without modules."""
    name = hint.__name__ if isinstance(hint, type) and not get_args(hint) else repr(hint)
    return re.sub(r"([\w<>]+\.)+(?=\w)", "", name).replace("~", "")


def _with_limit(schema: Any, name: str, limit: Any) -> Any:
    """The schema with the limit, or unchanged if the limit does not apply. In a union the limit applies to the options."""
    if schema["type"] == "union":
        choices = [(_with_limit(option, name, limit), tag) for option, tag in schema["choices"]]
        return {**schema, "choices": choices}
    if "schema" in schema:  # a validator function around the limited schema
        return {**schema, "schema": _with_limit(schema["schema"], name, limit)}
    return {**schema, name: limit} if name in _LIMITS.get(schema["type"], ()) else schema


def _choices(hint: Any) -> tuple[tuple[Any, Any], ...]:
    """The values of a Literal or an enum as JSON scalars, each with its Python value."""
    hint, _ = split_annotated(hint)
    is_enum = isinstance(hint, type) and issubclass(hint, Enum)
    members = get_args(hint) if get_origin(hint) is Literal else hint if is_enum else ()
    return tuple((member.value if isinstance(member, Enum) else member, member) for member in members)


def _choice_schema(choices: tuple[tuple[Any, Any], ...], where: str, type_name: str) -> core.CoreSchema:
    for value, _ in choices:
        if not isinstance(value, tuple(_SCALARS)):
            type_text = f"{type_name} with the value {value!r}"
            raise UnsupportedType(where, type_text, "use str, int, float, bool and None")
    expected = " or ".join(value_text(value) for value, _ in choices)
    names = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value, _ in choices))
    json_schema = {"type": names[0] if len(names) == 1 else names, "enum": [value for value, _ in choices]}

    def validate(data: Any) -> Any:
        for value, member in choices:
            if _is_same(value, data):
                return member
        return reject("expected", expected, data)

    return _plain_validator(validate, metadata={"json": json_schema})


_TYPE_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _parse_text(parse: Callable[[str], Any], data: Any) -> Any:
    try:
        return parse(data) if isinstance(data, str) else data
    except ValueError:
        return data


def _require_distinct(data: Any, validate: Callable[[Any], Any]) -> Any:
    items = validate(data)
    return items if len(items) == len(data) else reject("problem", "has the same item twice; remove one", data)


def _require_items(number: int, data: Any) -> Any:
    has_length = isinstance(data, list | tuple) and len(data) == number
    return data if has_length else reject("expected", list_text(number), data)


def _default_for_null(data: Any, validate: Callable[[Any], Any]) -> Any:
    try:
        return validate(data)
    except ValidationError:
        if data is None:  # a strict JSON schema requires all fields, so a model sends null for one that it leaves out
            return _DEFAULT
        raise


def _construct(cls: type, data: Any, validate: Callable[[Any], Any]) -> Any:
    if not isinstance(data, Mapping):
        reject("expected", f"an object ({cls.__name__})", data)
    arguments = {name: value for name, value in validate(data).items() if value is not _DEFAULT}
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:  # raised by its __post_init__
        return reject("problem", str(error), data)


def _require_best_match(cls: type, dataclasses: tuple[type, ...], data: Any) -> Any:
    """Reject an object that matches another of the dataclasses better. Validating it with all of them would take too long."""
    if isinstance(data, Mapping):
        complete = [option for option in dataclasses if _match_score(option, data).is_complete]
        best_matches = complete or [max(dataclasses, key=lambda option: _match_score(option, data))]
        if cls not in best_matches:
            reject("no match", "", data)
    return data


class _MatchScore(NamedTuple):
    """How well an object matches a dataclass."""

    is_complete: bool
    """Whether the object has all required keys, no other keys, and the right literals."""
    literals: int
    """The number of keys with a right literal."""
    keys: int
    """The number of keys that are fields."""


def _match_score(cls: type, data: Mapping[Any, Any]) -> _MatchScore:
    choices = {member.name: _choices(hint) for member, hint in fields_of(cls)}
    required = {member.name for member, _ in fields_of(cls) if is_required(member)}
    keys = [name for name in choices if name in data]
    literals = [name for name in keys if choices[name]]
    matches = [name for name in literals if any(_is_same(value, data[name]) for value, _ in choices[name])]
    is_complete = required <= data.keys() and len(keys) == len(data) and matches == literals
    return _MatchScore(is_complete, len(matches), len(keys))


def load_json(text: str) -> Any:
    """Parse JSON text.

    Raises:
        ValueError: the text is not JSON. NaN and Infinity, which Python accepts, are not JSON.
    """
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _coerce(origin: Any, data: Any) -> Any:
    """Convert text to a number, a bool, a list or an object, a float such as `3.0` to an int, and a number to text.

    Other data is returned unchanged.
    """
    if origin is str:
        return str(data) if type(data) in (int, float) else data
    value = data
    if isinstance(data, str) and origin is not NoneType:
        try:
            value = load_json(data.strip().lower() if origin in _SCALARS else data)
        except ValueError:
            return data
    if origin is int and isinstance(value, float):
        return int(value) if value.is_integer() else data
    has_type = origin not in _SCALARS or type(value) is origin or (origin is float and type(value) is int)
    return value if has_type else data


def _is_same(left: Any, right: Any) -> bool:
    """Whether two values are equal and have the same type: `1` is not `True`."""
    return type(left) is type(right) and bool(left == right)
