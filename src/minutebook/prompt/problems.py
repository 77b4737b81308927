"""What is wrong with a JSON value, and where, in words that a model can act on."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

STRICT: Final = "strict"
"""The option of a union that takes what needs no coercion."""
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
_COMPARED: Final = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
    "multiple_of": ("a multiple of", "multiple_of"),
    **dict.fromkeys(("string_too_short", "too_short"), ("at least", "min_length")),
    **dict.fromkeys(("string_too_long", "too_long"), ("at most", "max_length")),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Says `steps[2].title: is missing`."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: {self.problem}"


def problems_of(error: ValidationError) -> list[Problem]:
    """Everything that pydantic found."""
    errors = error.errors(include_url=False)
    if any(each["type"] == "recursion_loop" for each in errors):
        return [Problem("", "is nested too deeply")]
    return [Problem(_path(each["loc"]), problem_text(each)) for each in errors]


def expectation(error: Any) -> str | None:
    """What an error says to give instead, where that is all it says."""
    if error["type"] == "float_type" and type(error["input"]) is int:
        return None
    return error["ctx"]["words"] if error["type"] == "expected" else _EXPECTED.get(error["type"])


def problem_text(error: Any) -> str:
    """What is wrong, in words a model can act on."""
    data, kind = error["input"], error["type"]
    if words := expectation(error):
        return f"is {value_text(data)}; give {words}"
    if kind in _COMPARED:
        words, name = _COMPARED[kind]
        bound = error["ctx"][name]
        bound = int(bound) if isinstance(bound, float) and bound.is_integer() else bound
        if not name.endswith("length"):
            return f"is {data}; give {words} {bound}"
        units = "characters" if isinstance(data, str) else "keys" if isinstance(data, Mapping) else "items"
        return f"has {len(data)} {units}; give {words} {bound}"
    match kind:
        case "problem":
            return str(error["ctx"]["words"])
        case "missing":
            return "is missing"
        case "float_type":
            return "is too large a number"
        case "string_pattern_mismatch":
            return f"does not match the pattern {error['ctx']['pattern']}"
        case "set_item_not_hashable":
            return "cannot be in a set"
    return str(error["msg"])


def value_text(data: Any) -> str:
    """A value as a message names it: scalars as JSON, cut short; the rest by what they are."""
    if isinstance(data, Mapping):
        return "an object"
    if isinstance(data, list | tuple):
        return f"a list of {len(data)}"
    text = json.dumps(data, ensure_ascii=False, default=lambda other: type(other).__name__)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _path(steps: tuple[int | str, ...]) -> str:
    path = ""
    for step in steps[:-1] if steps[-1:] == ("[key]",) else steps:
        if isinstance(step, str) and step.isidentifier():
            path += f".{step}"
        else:
            path += f"[{json.dumps(step, ensure_ascii=False)}]"
    return path.removeprefix(".")


def refuse(kind: str, words: str, _data: Any) -> NoReturn:
    """`words` is the whole "problem", or says what was "expected"."""
    raise PydanticCustomError(kind, "{words}", {"words": words})


def read_union(data: Any, validate: Callable[[Any], Any]) -> Any:
    """What the union reads; if nothing, the problems of the first option that the data may have been meant for."""
    try:
        return validate(data)
    except ValidationError as error:
        options: dict[Any, list[Any]] = {}
        for each in error.errors(include_url=False):
            if each["loc"][0] != STRICT and each["type"] != "unlikely":
                options.setdefault(each["loc"][0], []).append(each)
    expected = []
    for problems in options.values():
        words = expectation(problems[0])
        if len(problems) > 1 or len(problems[0]["loc"]) > 1 or not words:
            raise ValidationError.from_exception_data("union", [_own_error(each) for each in problems])
        expected.append(words)
    return refuse("expected", " or ".join(expected), data)


def _own_error(error: Any) -> InitErrorDetails:
    """The error as one of ours, below the union that it came from."""
    words = expectation(error)
    kind, words = ("expected", words) if words else ("problem", problem_text(error))
    loc = error["loc"][1:]
    return {"type": PydanticCustomError(kind, "{words}", {"words": words}), "loc": loc, "input": error["input"]}
