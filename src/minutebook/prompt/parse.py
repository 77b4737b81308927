"""A model's JSON into a dataclass, or everything that is wrong with it, in words the model can act on.

See `validation` for how types are taken. Keys that are not fields are refused. Of a union, the first member that fits
is taken, in the order in which they are written.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from pydantic_core import ValidationError

from minutebook.errors import OutputParseError, ToolValidationError
from minutebook.prompt.problems import Problem, problems_of
from minutebook.prompt.schema import json_schema
from minutebook.prompt.validation import load_json, validator_of

Out = TypeVar("Out")

_FENCED: Final = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)
_OPENING: Final = re.compile(r'\{(?=\s*["}])')
_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|[{}]')  # without its end, a string reaches to the end of the line


def parse(cls: type[Out], answer: str | Mapping[str, Any], *, coerce: bool = False) -> Out:
    """The dataclass that an answer holds, as text or as data.

    A text may have prose or a code fence around its JSON; the first object in it that fits is the answer.

    Raises:
        OutputParseError: there is none. Its message can be sent to the model as it is.
    """
    broken: list[Problem] = []
    misfit: list[Problem] = []
    for found in _values(answer) if isinstance(answer, str) else [answer]:
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
            data = load_json(arguments) if arguments.strip() else {}  # some providers send "" for no arguments
        except ValueError as error:
            raise ToolValidationError(misfit, [Problem("", f"is not JSON: {error}")]) from error
    value, problems = _read(cls, data, coerce=coerce)
    if problems:
        raise ToolValidationError(misfit, problems)
    return value


def _read(cls: type[Out], data: Any, *, coerce: bool) -> tuple[Out, list[Problem]]:
    """The dataclass that JSON data stands for; it is one only if there are no problems."""
    hint: Any = cls
    try:
        value: Out = validator_of(hint, coerce=coerce).validate_python(data)
    except ValidationError as error:
        return cast("Out", None), problems_of(error)
    except RecursionError:
        return cast("Out", None), [Problem("", "is nested too deeply")]
    return value, []


def _values(text: str) -> Iterator[Any]:
    """The JSON value that the text is, or else every object in it; in place of one that is broken, the ValueError.

    What stands between a brace and its partner is looked at as a whole: the inside of a broken object is never taken
    for the answer.
    """
    fence = _FENCED.fullmatch(text)
    try:
        yield load_json(fence[1] if fence else text)
    except ValueError:
        for stretch in _stretches(text):
            try:
                yield load_json(stretch)
            except ValueError as error:
                yield error


def _stretches(text: str) -> Iterator[str]:
    """From each brace that may open a JSON object to its partner, or to the end where it has none."""
    position = 0
    while opening := _OPENING.search(text, position):
        depth, position = 0, opening.start()
        while token := _TOKEN.search(text, position):
            position = token.end()
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            if not depth:
                break
        position = len(text) if depth else position
        yield text[opening.start() : position]


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
