"""What a type hint means as JSON: the pydantic core schema by which values are described and read.

A dataclass is an object, `list`, `tuple` and sets are arrays, `Literal` and enums are choices, dates and UUIDs are
text of a certain format. `Annotated[str, "what it is", {"min_length": 1}]` describes and limits anything; a field's
metadata does the same. Types are taken strictly: a whole number may stand for any number, null for a field that has a
default, and nothing else is converted, unless `coerce` asks for it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, is_dataclass, replace
from datetime import date, datetime
from enum import Enum
from functools import lru_cache, partial
from types import NoneType
from typing import Any, Final, NoReturn, get_origin
from uuid import UUID

from pydantic_core import InitErrorDetails, PydanticCustomError, SchemaValidator, ValidationError
from pydantic_core import core_schema as core

from minutebook.errors import UnsupportedType
from minutebook.prompt.form import Unresolved, fields_of, form_of, is_a, is_required, label, same
from minutebook.prompt.problems import expectation, problem_text, value_text

_SCALARS: Final[Mapping[type, core.CoreSchema]] = {
    str: core.str_schema(strict=True, regex_engine="python-re"),
    int: core.int_schema(strict=True),
    float: core.float_schema(strict=True),
    bool: core.bool_schema(strict=True),
    NoneType: core.none_schema(),
}
_FORMATS: Final[Mapping[type, tuple[core.CoreSchema, Callable[[str], Any]]]] = {
    datetime: (core.datetime_schema(strict=True), datetime.fromisoformat),
    date: (core.date_schema(strict=True), date.fromisoformat),
    UUID: (core.uuid_schema(strict=True), UUID),
}
_CONTAINERS: Final[Mapping[type, Callable[..., core.CoreSchema]]] = {
    list: core.list_schema,
    set: core.set_schema,
    frozenset: core.frozenset_schema,
    tuple: lambda item: core.tuple_schema([item], variadic_item_index=0),
}
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
_STRICT: Final = "strict"
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

    def of(self, hint: Any, where: str) -> core.CoreSchema:
        """The core schema of a hint; `where` names the field that has it."""
        kind, cls, parts = form_of(hint)
        if kind == "any":
            return core.any_schema()
        if kind in {"literal", "enum"}:
            return _choice(_choices(hint), where if kind == "literal" else f"the enum {cls.__name__}")
        if kind == "union":
            return self.union(parts, where)
        if kind == "alias":
            bare, notes = split_annotated(hint)
            return _with_limits(self.of(bare, where), notes, where)
        schema: core.CoreSchema
        if kind == "scalar" and cls in _FORMATS:
            strict, read = _FORMATS[cls]
            return core.no_info_before_validator_function(partial(_from_text, read), strict)
        if kind == "scalar" and cls in _SCALARS:
            schema = _SCALARS[cls]
        elif kind == "many":
            schema = _CONTAINERS[cls](self.of(parts[0], where))
            if issubclass(cls, set | frozenset):
                schema = core.no_info_wrap_validator_function(_require_distinct, schema)
        elif kind == "row":
            items = [self.of(part, where) for part in parts]
            schema = core.no_info_before_validator_function(
                partial(_require_items, len(items)), core.tuple_schema(items)
            )
        elif kind == "mapping":
            key, notes = split_annotated(parts[0])
            if notes or not (
                key is str or (_choices(key) and all(isinstance(value, str) for value, _ in _choices(key)))
            ):
                advice = "key it by str, or by an enum of texts"
                raise UnsupportedType(where, "a mapping whose keys are not text", advice)
            schema = core.dict_schema(*(self.of(part, where) for part in parts))
        elif kind == "dataclass":
            schema = self.record(cls)
        elif is_dataclass(get_origin(hint)):
            advice = "make one whose fields have plain types"
            raise UnsupportedType(where, f"{label(hint)}, a generic dataclass", advice)
        else:
            raise UnsupportedType(where, label(hint), _ADVICE)
        kind_of_json = cls if kind == "scalar" else list
        return core.no_info_before_validator_function(partial(_coerce, kind_of_json), schema) if self.coerce else schema

    def record(self, cls: type) -> core.CoreSchema:
        """A reference to the definition of a dataclass, which may hold itself."""
        if cls not in self.names:
            alike = sum(other.__name__ == cls.__name__ for other in self.names)
            self.names[cls] = f"{cls.__name__}_{alike + 1}" if alike else cls.__name__
        ref = self.names[cls] + " coerced" * self.coerce
        if ref not in self.definitions:
            self.definitions[ref] = None
            try:
                hints = fields_of(cls)
            except Unresolved as error:
                what = f"a dataclass with hints that cannot be resolved ({error})"
                raise UnsupportedType(cls.__name__, what, "define the types it names at the top of a module") from error
            fields = {each.name: self.member(cls, each, hint) for each, hint in hints}
            known = f"the fields are {', '.join(fields)}" if fields else "there are no fields"
            unknown = partial(_refuse, "problem", f"is not a field of {cls.__name__}; {known}")
            record = core.typed_dict_schema(
                fields,
                extra_behavior="allow",
                extras_schema=core.no_info_plain_validator_function(unknown, metadata={"json": {}}),
                metadata={"record": cls},
            )
            self.definitions[ref] = core.no_info_wrap_validator_function(partial(_construct, cls), record, ref=ref)
        return core.definition_reference_schema(ref)

    def member(self, cls: type, each: "Field[Any]", hint: Any) -> core.TypedDictField:
        where = f"{cls.__name__}.{each.name}"
        bare, notes = split_annotated(hint)
        notes = {**notes, **each.metadata}
        schema = _with_limits(self.of(bare, where), notes, where)
        required = is_required(each)
        if not required:
            schema = core.no_info_wrap_validator_function(_default_for_null, schema)
        metadata = {"description": notes.get("description"), "default": each.default}
        return core.typed_dict_field(schema, required=required, metadata=metadata)

    def union(self, hints: Sequence[Any], where: str) -> core.CoreSchema:
        records = tuple(hint for hint in hints if form_of(hint).kind == "dataclass")
        options: list[core.CoreSchema | tuple[core.CoreSchema, str]] = []
        for number, hint in enumerate(hints):
            option = self.of(hint, where)
            if hint in records and len(records) > 1:
                option = core.no_info_before_validator_function(partial(_require_likely, hint, records), option)
            options.append((option, str(number)))
        if self.coerce:  # first what needs no coercion
            strict = replace(self, coerce=False).union(hints, where)
            union = core.union_schema([(strict, _STRICT), *options], mode="left_to_right")
        else:
            union = core.union_schema(options)
        return core.no_info_wrap_validator_function(_read_union, union)


def split_annotated(hint: Any) -> tuple[Any, dict[Any, Any]]:
    """A hint without its `Annotated`, and what that says: a text is the description, a mapping is metadata."""
    kind, _, parts = form_of(hint)
    bare, *extras = parts if kind == "alias" else (hint,)
    notes: dict[Any, Any] = {}
    for extra in extras:
        if isinstance(extra, str):
            notes["description"] = extra
        elif isinstance(extra, Mapping):
            notes.update(extra)
    return bare, notes


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
    kind, cls, parts = form_of(hint)
    members = parts if kind == "literal" else cls if kind == "enum" else ()
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
            if same(value, data):
                return member
        return _refuse("expected", words, data)

    return core.no_info_plain_validator_function(pick, metadata={"json": json_schema})


_TYPE_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _refuse(kind: str, words: str, _data: Any) -> NoReturn:
    """`words` is the whole "problem", or says what was "expected"."""
    raise PydanticCustomError(kind, "{words}", {"words": words})


def _from_text(read: Callable[[str], Any], data: Any) -> Any:
    try:
        return read(data) if isinstance(data, str) else data
    except ValueError:
        return data


def _require_distinct(data: Any, validate: Callable[[Any], Any]) -> Any:
    made = validate(data)
    return made if len(made) == len(data) else _refuse("problem", "holds the same item twice; give each once", data)


def _require_items(number: int, data: Any) -> Any:
    fits = isinstance(data, list | tuple) and len(data) == number
    return data if fits else _refuse("expected", f"a list of {number}", data)


def _default_for_null(data: Any, validate: Callable[[Any], Any]) -> Any:
    try:
        return validate(data)
    except ValidationError:
        if data is None:  # strict mode says null for "not given"
            return _DEFAULT
        raise


def _construct(cls: type, data: Any, validate: Callable[[Any], Any]) -> Any:
    if not isinstance(data, Mapping):
        _refuse("expected", f"an object ({cls.__name__})", data)
    given = {name: value for name, value in validate(data).items() if value is not _DEFAULT}
    try:
        return cls(**given)
    except (TypeError, ValueError) as error:  # what its own __post_init__ refuses
        return _refuse("problem", str(error), data)


def _require_likely(cls: type, records: tuple[type, ...], data: Any) -> Any:
    """The data, if it may be meant for this of several dataclasses; trying them all at every level takes too long."""
    if isinstance(data, Mapping):
        likely = [record for record in records if _likeness(record, data)[0]]
        if cls not in (likely or [max(records, key=lambda record: _likeness(record, data))]):
            _refuse("unlikely", "", data)
    return data


def _likeness(cls: type, data: Mapping[Any, Any]) -> tuple[bool, int, int]:
    """Whether an object has the keys and the literals of a dataclass; how many literals, and how many keys."""
    fields = {each.name: (each, _choices(split_annotated(hint)[0])) for each, hint in fields_of(cls)}
    there = [name for name in fields if name in data]
    wanted = [name for name in there if fields[name][1]]
    right = [name for name in wanted if any(same(value, data[name]) for value, _ in fields[name][1])]
    complete = all(name in data for name, (each, _) in fields.items() if is_required(each))
    return complete and len(there) == len(data) and right == wanted, len(right), len(there)


def _read_union(data: Any, validate: Callable[[Any], Any]) -> Any:
    """What the union reads; if nothing, the problems of the first option that the data may have been meant for."""
    try:
        return validate(data)
    except ValidationError as error:
        options: dict[Any, list[Any]] = {}
        for each in error.errors(include_url=False):
            if each["loc"][0] != _STRICT and each["type"] != "unlikely":
                options.setdefault(each["loc"][0], []).append(each)
    expected = []
    for problems in options.values():
        words = expectation(problems[0])
        if len(problems) > 1 or len(problems[0]["loc"]) > 1 or not words:
            raise ValidationError.from_exception_data("union", [_own_error(each) for each in problems])
        expected.append(words)
    return _refuse("expected", " or ".join(expected), data)


def _own_error(error: Any) -> InitErrorDetails:
    """The error as one of ours, below the union that it came from."""
    words = expectation(error)
    kind, words = ("expected", words) if words else ("problem", problem_text(error))
    loc = error["loc"][1:]
    return {"type": PydanticCustomError(kind, "{words}", {"words": words}), "loc": loc, "input": error["input"]}


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


def _coerce(kind: type, data: Any) -> Any:
    """The number or truth value that a text spells, `3.0` as a whole number, a number as text, and text that holds a
    JSON object or list as that; anything else as it is.
    """
    if kind is str:
        return str(data) if is_a((int, float), data) else data
    found = data
    if isinstance(data, str) and kind is not NoneType:
        try:
            found = load_json(data.strip().lower() if kind in _SCALARS else data)
        except ValueError:
            return data
    if kind is int and isinstance(found, float):
        return int(found) if found.is_integer() else data
    return found if kind is list or is_a((int, float) if kind is float else kind, found) else data
