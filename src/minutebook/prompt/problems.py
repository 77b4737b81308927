"""Problems of JSON values, in words that a model can act on."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeAlias

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

ErrorKind: TypeAlias = Literal["expected", "problem", "no match"]
"""The kinds of our own validation errors. A union ignores "no match" errors."""

STRICT: Final = "strict"
"""The tag of the option of a union that is validated without coercion."""
_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "none_required": "null",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "a list"),
    "dict_type": "an object",
    "datetime_type": "text in the format date-time",
    "date_type": "text in the format date",
    "is_instance_of": "text in the format uuid",
}
"""pydantic's error type → what the value should be. UUIDs are the only type that is checked with `isinstance`."""
_COMPARISONS: Final = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
    "multiple_of": ("a multiple of", "multiple_of"),
    **dict.fromkeys(("string_too_short", "too_short"), ("at least", "min_length")),
    **dict.fromkeys(("string_too_long", "too_long"), ("at most", "max_length")),
}
"""pydantic's error type → the comparison in words, and the key of the limit in the error's context."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and the path of the value that has it: `steps[2].title: is missing`."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: {self.problem}"


def problems_of(error: ValidationError) -> list[Problem]:
    """All problems of a validation error."""
    errors = error.errors(include_url=False)
    if any(detail["type"] == "recursion_loop" for detail in errors):
        return [Problem("", "is nested too deeply")]
    return [Problem(_path(detail["loc"]), _problem_text(detail)) for detail in errors]


def _expectation(error: Any) -> str | None:
    """The kind of value that was expected; None if the value has the right kind and another problem."""
    if error["type"] == "float_type" and type(error["input"]) is int:  # an int that is too large for a float
        return None
    return error["ctx"]["text"] if error["type"] == "expected" else _EXPECTED.get(error["type"])


def _problem_text(error: Any) -> str:
    data, kind = error["input"], error["type"]
    if expected := _expectation(error):
        return f"is {value_text(data)}; expected {expected}"
    if kind in _COMPARISONS:
        comparison, name = _COMPARISONS[kind]
        limit = error["ctx"][name]
        limit = int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        if not name.endswith("length"):
            return f"is {data}; expected {comparison} {limit}"
        units = "characters" if isinstance(data, str) else "keys" if isinstance(data, Mapping) else "items"
        return f"has {len(data)} {units}; expected {comparison} {limit}"
    match kind:
        case "problem":
            return str(error["ctx"]["text"])
        case "missing":
            return "is missing"
        case "float_type":
            return "is too large a number"
        case "string_pattern_mismatch":
            return f"does not match the pattern {error['ctx']['pattern']}"
        case "set_item_not_hashable":
            return "cannot be in a set"
    return str(error["msg"])


def list_text(length: int) -> str:
    return f"a list of {length} item{'' if length == 1 else 's'}"


def value_text(data: Any) -> str:
    """A value in an error message: scalars as JSON of at most 60 characters, others by their type."""
    if isinstance(data, Mapping):
        return "an object"
    if isinstance(data, list | tuple):
        return list_text(len(data))
    text = json.dumps(data, ensure_ascii=False, default=lambda value: type(value).__name__)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _path(steps: tuple[int | str, ...]) -> str:
    path = ""
    for step in steps[:-1] if steps[-1:] == ("[key]",) else steps:
        if isinstance(step, str) and step.isidentifier():
            path += f".{step}"
        else:
            path += f"[{json.dumps(step, ensure_ascii=False)}]"
    return path.removeprefix(".")


def reject(kind: ErrorKind, text: str, _data: Any) -> NoReturn:
    """Raise a validation error. With the kind "expected", `text` is what was expected; otherwise it is the problem.

    With `partial`, it is a validator, which pydantic calls with the data.
    """
    raise PydanticCustomError(kind, "{text}", {"text": text})


def validate_union(data: Any, validate: Callable[[Any], Any]) -> Any:
    """Validate a union. If no option fits, raise the errors of the first option whose type matches the data."""
    try:
        return validate(data)
    except ValidationError as error:
        options: dict[Any, list[Any]] = {}
        for detail in error.errors(include_url=False):
            if detail["loc"][0] != STRICT and detail["type"] != "no match":
                options.setdefault(detail["loc"][0], []).append(detail)
    expectations = []
    for errors in options.values():
        expected = _expectation(errors[0])
        # An error inside the value means that its type was right, so the data was probably written for this option.
        if len(errors) > 1 or len(errors[0]["loc"]) > 1 or not expected:
            raise ValidationError.from_exception_data("union", [_without_option(detail) for detail in errors])
        expectations.append(expected)
    return reject("expected", " or ".join(expectations), data)


def _without_option(error: Any) -> InitErrorDetails:
    """The error with its text, and without the union's option in its location."""
    expected = _expectation(error)
    kind, text = ("expected", expected) if expected else ("problem", _problem_text(error))
    loc = error["loc"][1:]
    return {"type": PydanticCustomError(kind, "{text}", {"text": text}), "loc": loc, "input": error["input"]}
