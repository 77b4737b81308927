"""A model's JSON into a dataclass, or everything that is wrong with it, in words the model can act on.

Types are taken strictly: a whole number may stand for any number, and null for a field that has a default; nothing
else is converted unless the caller says `coerce=True`. Keys that are not fields are refused. Of a union, the first
member that fits is taken, in the order in which they are written.

How a prompt asks for its answer as JSON.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

from minutebook.errors import OutputParseError, ToolValidationError
from minutebook.prompt.answer import Problem, decoded, values
from minutebook.prompt.fit import Lenience
from minutebook.prompt.hints import shape_of
from minutebook.prompt.read import Reader
from minutebook.prompt.schema import json_schema

Out = TypeVar("Out")


def parse(cls: type[Out], answer: str | Mapping[str, Any], *, coerce: bool = False) -> Out:
    """The dataclass that an answer holds, as text or as data.

    A text may have prose or a code fence around its JSON; the first object in it that fits is the answer.

    Raises:
        OutputParseError: there is none. Its message can be sent to the model as it is.
    """
    broken: list[Problem] = []
    misfit: list[Problem] = []
    for found in values(answer) if isinstance(answer, str) else [answer]:
        if isinstance(found, ValueError):
            broken = broken or [Problem("", f"is not JSON: {found}")]
            continue
        value, problems = _read(cls, found, coerce=coerce)
        if not problems:
            return value
        misfit = misfit or problems
    raise OutputParseError(cls.__name__, _text(answer), misfit or broken or [Problem("", "holds no JSON object")])


def parse_arguments(cls: type[Out], arguments: str | Mapping[str, Any], tool_name: str, *, coerce: bool = False) -> Out:
    """The dataclass that a tool call's arguments stand for.

    Raises:
        ToolValidationError: they do not fit. Its message can be the tool's result.
    """
    misfit = f"The arguments of {tool_name} do not fit; mend these and call it again:"
    data: Any = arguments
    if isinstance(arguments, str):
        try:
            data = decoded(arguments) if arguments.strip() else {}  # some providers send "" for no arguments
        except ValueError as error:
            raise ToolValidationError(misfit, [Problem("", f"is not JSON: {error}")]) from error
    value, problems = _read(cls, data, coerce=coerce)
    if problems:
        raise ToolValidationError(misfit, problems)
    return value


def _read(cls: type[Out], data: Any, *, coerce: bool) -> tuple[Out, list[Problem]]:
    """The dataclass that JSON data stands for; it is one only if there are no problems."""
    reader = Reader(Lenience.COERCE if coerce else Lenience.NUMBERS, [])
    try:
        return cast("Out", reader.read(shape_of(cls), data, "")), reader.problems
    except RecursionError:
        return cast("Out", None), [Problem("", "is nested too deeply")]


def _text(answer: str | Mapping[str, Any]) -> str:
    if isinstance(answer, str):
        return answer
    try:
        return json.dumps(answer, ensure_ascii=False, default=repr)
    except (RecursionError, TypeError, ValueError):  # the error that is to be raised says more
        return "an object"


_FORMAT = """## {number}. Response format

Answer with one JSON object that fits this JSON Schema, and nothing else:

```json
{schema}
```"""


@lru_cache(maxsize=256)
def response_format(output_type: type, number: int) -> str:
    """The section that ends a prompt whose answer is a dataclass."""
    return _FORMAT.format(number=number, schema=json.dumps(json_schema(output_type), ensure_ascii=False))
