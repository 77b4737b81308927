"""What a type hint means as JSON: the pydantic core schema by which values are described and read.

A dataclass is an object, `list`, `tuple` and sets are arrays, `Literal` and enums are choices, dates and UUIDs are
text of a certain format. `Annotated[str, "what it is", {"min_length": 1}]` describes and limits anything; a field's
metadata does the same. Types are taken strictly: a whole number may stand for any number, null for a field that has a
default, and nothing else is converted, unless `coerce` asks for it.
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
from typing import Annotated, Any, Final, Literal, NewType, NoReturn, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as core

from minutebook.errors import UnsupportedType
from minutebook.prompt.problems import STRICT, read_union, refuse, value_text

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
"""What each core schema can be limited by; the names are pydantic's. Other keys of metadata are somebody else's."""
_LIMIT_NAMES: Final = frozenset[str]().union(*_LIMITS.values())
_ADVICE: Final = (
    "use str, int, float, bool, None, Literal, an Enum, datetime, date, UUID, list, tuple, set, dict, "
    "a dataclass, or a union of these"
)
_before: Final = core.no_info_before_validator_function
_wrap: Final = core.no_info_wrap_validator_function
_plain: Final = core.no_info_plain_validator_function
_DEFAULT: Final = object()


@lru_cache(maxsize=1024)
def core_schema_of(hint: Any, *, coerce: bool = False) -> core.CoreSchema:
    """The core schema of a type, complete with its definitions.

    Raises:
        UnsupportedType: it has no JSON form, or one of its fields has none.
    """
    builder = _SchemaBuilder(coerce)
    schema = builder.of(hint, "the type")
    return core.definitions_schema(schema, list(builder.definitions.values()))


@lru_cache(maxsize=1024)
def validator_of(hint: Any, *, coerce: bool) -> SchemaValidator:
    return SchemaValidator(core_schema_of(hint, coerce=coerce))


@dataclass(frozen=True)
class _SchemaBuilder:
    coerce: bool
    definitions: dict[str, Any] = field(default_factory=dict)
    names: dict[type, str] = field(default_factory=dict)

    def of(self, hint: Any, where: str, notes: Mapping[Any, Any] | None = None) -> core.CoreSchema:
        """The core schema of a hint, with the limits among the notes; `where` names the field that has it."""
        bare, own_notes = split_annotated(hint)
        return _with_limits(self.bare(bare, where), own_notes if notes is None else notes, where)

    def bare(self, hint: Any, where: str) -> core.CoreSchema:
        origin, parts = get_origin(hint) or hint, get_args(hint)
        schema: core.CoreSchema
        if not isinstance(origin, Hashable):
            raise UnsupportedType(where, label(hint), _ADVICE)
        if origin in {Any, object}:
            return core.any_schema()
        if origin in {Union, UnionType}:
            return self.union(parts, where)
        if choices := _choices(hint):
            return _choice(choices, where if origin is Literal else f"the enum {hint.__name__}")
        if origin in _FORMATS:
            strict, read = _FORMATS[origin]
            return _before(partial(_from_text, read), strict)
        if origin in _SCALARS:
            schema = _SCALARS[origin]
        elif origin is tuple and Ellipsis not in parts and hasattr(hint, "__args__"):  # tuple[()] has none
            items = [self.of(part, where) for part in parts]
            schema = _before(partial(_require_items, len(items)), core.tuple_schema(items))
        elif origin in _LISTS:
            schema = _LISTS[origin](self.of(parts[0] if parts else Any, where))
        elif origin in _SETS:
            schema = _wrap(_require_distinct, _SETS[origin](self.of(parts[0] if parts else Any, where)))
        elif origin in _MAPPINGS:
            key, value = parts or (str, Any)
            choices = _choices(key)
            if split_annotated(key) != (str, {}) and not (
                choices and all(isinstance(each, str) for each, _ in choices)
            ):
                advice = "key it by str, or by an enum of texts"
                raise UnsupportedType(where, "a mapping whose keys are not text", advice)
            schema = core.dict_schema(self.of(key, where), self.of(value, where))
        elif isinstance(hint, type) and is_dataclass(hint):
            schema = self.record(hint)
        elif is_dataclass(origin):
            advice = "make one whose fields have plain types"
            raise UnsupportedType(where, f"{label(hint)}, a generic dataclass", advice)
        else:
            raise UnsupportedType(where, label(hint), _ADVICE)
        return _before(partial(_coerce, origin), schema) if self.coerce else schema

    def record(self, cls: type) -> core.CoreSchema:
        """A reference to the definition of a dataclass, which may hold itself."""
        if cls not in self.names:
            alike = sum(other.__name__ == cls.__name__ for other in self.names)
            self.names[cls] = f"{cls.__name__}_{alike + 1}" if alike else cls.__name__
        ref = self.names[cls] + " coerced" * self.coerce
        if ref not in self.definitions:
            self.definitions[ref] = None
            fields = {each.name: self.member(cls, each, hint) for each, hint in fields_of(cls)}
            known = f"the fields are {', '.join(fields)}" if fields else "there are no fields"
            unknown = partial(refuse, "problem", f"is not a field of {cls.__name__}; {known}")
            record = core.typed_dict_schema(
                fields,
                extra_behavior="allow",
                extras_schema=_plain(unknown, metadata={"json": {}}),
                metadata={"record": cls},
            )
            self.definitions[ref] = _wrap(partial(_construct, cls), record, ref=ref)
        return core.definition_reference_schema(ref)

    def member(self, cls: type, each: "Field[Any]", hint: Any) -> core.TypedDictField:
        where = f"{cls.__name__}.{each.name}"
        notes = {**split_annotated(hint)[1], **each.metadata}
        schema = self.of(hint, where, notes)
        required = is_required(each)
        if not required:
            schema = _wrap(_default_for_null, schema)
        metadata = {"description": notes.get("description"), "default": each.default}
        return core.typed_dict_field(schema, required=required, metadata=metadata)

    def union(self, hints: Sequence[Any], where: str) -> core.CoreSchema:
        records = tuple(hint for hint in hints if isinstance(hint, type) and is_dataclass(hint))
        options: list[core.CoreSchema | tuple[core.CoreSchema, str]] = []
        for number, hint in enumerate(hints):
            option = self.of(hint, where)
            if hint in records and len(records) > 1:
                option = _before(partial(_require_likely, hint, records), option)
            options.append((option, str(number)))
        if self.coerce:  # first what needs no coercion
            strict = replace(self, coerce=False).union(hints, where)
            union = core.union_schema([(strict, STRICT), *options], mode="left_to_right")
        else:
            union = core.union_schema(options)
        return _wrap(read_union, union)


@lru_cache(maxsize=1024)
def fields_of(cls: type) -> tuple[tuple["Field[Any]", Any], ...]:
    """The fields that make a dataclass, in order, each with its hint.

    Names are looked for in the class, which may stand in a function and hold itself, and then in its module.

    Raises:
        UnsupportedType: a name is not there, or is not that of a type.
    """
    near: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        near |= {name: inner for name, inner in vars(base).items() if isinstance(inner, type)} | {base.__name__: base}
    try:
        hints = get_type_hints(cls, localns=near, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError) as error:
        what = f"a dataclass with hints that cannot be resolved ({error})"
        raise UnsupportedType(cls.__name__, what, "define the types it names at the top of a module") from error
    return tuple((each, hints[each.name]) for each in fields(cls) if each.init)


def is_required(each: "Field[Any]") -> bool:
    """Whether a dataclass cannot be made without this field."""
    return each.default is MISSING and each.default_factory is MISSING


def split_annotated(hint: Any) -> tuple[Any, dict[Any, Any]]:
    """A hint without its `Annotated` and `NewType`, and what it says: a text is the description, a mapping is metadata."""
    notes: dict[Any, Any] = {}
    while isinstance(hint, NewType) or get_origin(hint) is Annotated:
        for note in getattr(hint, "__metadata__", ()):
            notes |= {"description": note} if isinstance(note, str) else note if isinstance(note, Mapping) else {}
        hint = hint.__supertype__ if isinstance(hint, NewType) else hint.__origin__
    return NoneType if hint is None else hint, notes


def label(hint: Any) -> str:
    """What a hint is called in errors. Never a module's name."""
    name = hint.__name__ if isinstance(hint, type) and not get_args(hint) else repr(hint)
    return re.sub(r"([\w<>]+\.)+(?=\w)", "", name).replace("~", "")


def _with_limits(schema: core.CoreSchema, notes: Mapping[Any, Any], where: str) -> core.CoreSchema:
    """The schema with the limits among the notes; of a union, those options that they can apply to."""
    for name, bound in notes.items():
        if name in _LIMIT_NAMES:
            limited = _with_limit(schema, name, bound)
            if limited == schema:
                raise UnsupportedType(where, f"limited by {name!r}", "limit only what has a length or a size so")
            schema = limited
    return schema


def _with_limit(schema: Any, name: str, bound: Any) -> Any:
    if schema["type"] == "union":
        choices = [(_with_limit(option, name, bound), tag) for option, tag in schema["choices"]]
        return {**schema, "choices": choices}
    if "schema" in schema:  # a function around it
        return {**schema, "schema": _with_limit(schema["schema"], name, bound)}
    return {**schema, name: bound} if name in _LIMITS.get(schema["type"], ()) else schema


def _choices(hint: Any) -> tuple[tuple[Any, Any], ...]:
    """The scalars that a Literal or an enum may be, each with what it stands for."""
    hint, _ = split_annotated(hint)
    is_enum = isinstance(hint, type) and issubclass(hint, Enum)
    members = get_args(hint) if get_origin(hint) is Literal else hint if is_enum else ()
    return tuple((member.value if isinstance(member, Enum) else member, member) for member in members)


def _choice(choices: tuple[tuple[Any, Any], ...], where: str) -> core.CoreSchema:
    for value, _ in choices:
        if not isinstance(value, tuple(_SCALARS)):
            advice = "choose among texts, numbers, truth values and null"
            raise UnsupportedType(where, f"a choice with {value!r}", advice)
    words = " or ".join(value_text(value) for value, _ in choices)
    names = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value, _ in choices))
    json_schema = {"type": names[0] if len(names) == 1 else names, "enum": [value for value, _ in choices]}

    def pick(data: Any) -> Any:
        for value, member in choices:
            if _is_same(value, data):
                return member
        return refuse("expected", words, data)

    return _plain(pick, metadata={"json": json_schema})


_TYPE_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _from_text(read: Callable[[str], Any], data: Any) -> Any:
    try:
        return read(data) if isinstance(data, str) else data
    except ValueError:
        return data


def _require_distinct(data: Any, validate: Callable[[Any], Any]) -> Any:
    made = validate(data)
    return made if len(made) == len(data) else refuse("problem", "holds the same item twice; give each once", data)


def _require_items(number: int, data: Any) -> Any:
    fits = isinstance(data, list | tuple) and len(data) == number
    return data if fits else refuse("expected", f"a list of {number}", data)


def _default_for_null(data: Any, validate: Callable[[Any], Any]) -> Any:
    try:
        return validate(data)
    except ValidationError:
        if data is None:  # strict mode says null for "not given"
            return _DEFAULT
        raise


def _construct(cls: type, data: Any, validate: Callable[[Any], Any]) -> Any:
    if not isinstance(data, Mapping):
        refuse("expected", f"an object ({cls.__name__})", data)
    given = {name: value for name, value in validate(data).items() if value is not _DEFAULT}
    try:
        return cls(**given)
    except (TypeError, ValueError) as error:  # what its own __post_init__ refuses
        return refuse("problem", str(error), data)


def _require_likely(cls: type, records: tuple[type, ...], data: Any) -> Any:
    """The data, if it may be meant for this of several dataclasses; trying them all at every level takes too long."""
    if isinstance(data, Mapping):
        likely = [record for record in records if _likeness(record, data)[0]]
        if cls not in (likely or [max(records, key=lambda record: _likeness(record, data))]):
            refuse("unlikely", "", data)
    return data


def _likeness(cls: type, data: Mapping[Any, Any]) -> tuple[bool, int, int]:
    """Whether an object has the keys and the literals of a dataclass; how many literals, and how many keys."""
    fields = {each.name: (each, _choices(hint)) for each, hint in fields_of(cls)}
    there = [name for name in fields if name in data]
    wanted = [name for name in there if fields[name][1]]
    right = [name for name in wanted if any(_is_same(value, data[name]) for value, _ in fields[name][1])]
    complete = all(name in data for name, (each, _) in fields.items() if is_required(each))
    return complete and len(there) == len(data) and right == wanted, len(right), len(there)


def load_json(text: str) -> Any:
    """The JSON value that the whole text is.

    Raises:
        ValueError: it is none. NaN and Infinity, which Python would take, are none.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _coerce(origin: Any, data: Any) -> Any:
    """The number or truth value that a text spells, `3.0` as a whole number, a number as text, and text that holds a
    JSON object or list as that; anything else as it is.
    """
    if origin is str:
        return str(data) if type(data) in (int, float) else data
    found = data
    if isinstance(data, str) and origin is not NoneType:
        try:
            found = load_json(data.strip().lower() if origin in _SCALARS else data)
        except ValueError:
            return data
    if origin is int and isinstance(found, float):
        return int(found) if found.is_integer() else data
    fits = origin not in _SCALARS or type(found) is origin or (origin is float and type(found) is int)
    return found if fits else data


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and of one type: `1` is not `True`."""
    return type(one) is type(other) and bool(one == other)
