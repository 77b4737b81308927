"""Parsing of a model's JSON into a dataclass, with errors that the model can act on.

See `validation` for the conversion of types. Keys that are not fields are rejected. A union takes its first member that
fits, in the order of declaration.
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

_CODE_FENCE: Final = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)
_OBJECT_START: Final = re.compile(r'\{(?=\s*["}])')
_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|[{}]')  # an unterminated string ends with its line


def parse(cls: type[Out], answer: str | Mapping[str, Any], *, coerce: bool = False) -> Out:
    """Parse an answer, which is text or JSON data, into the dataclass.

    Text may have prose or a code fence around its JSON. The first object in the text that fits is the answer.

    Raises:
        OutputParseError: no object fits. The message can be sent to the model unchanged.
    """
    syntax_problems: list[Problem] = []
    type_problems: list[Problem] = []
    for data in _json_values(answer) if isinstance(answer, str) else [answer]:
        if isinstance(data, ValueError):
            syntax_problems = syntax_problems or [Problem("", f"is not JSON: {data}")]
            continue
        value, problems = _validate(cls, data, coerce=coerce)
        if not problems:
            return value
        type_problems = type_problems or problems
    problems = type_problems or syntax_problems or [Problem("", "contains no JSON object")]
    raise OutputParseError(cls.__name__, _answer_text(answer), problems)


def parse_arguments(cls: type[Out], arguments: str | Mapping[str, Any], tool_name: str, *, coerce: bool = False) -> Out:
    """Parse a tool call's arguments into the dataclass.

    Raises:
        ToolValidationError: the arguments do not fit. The message can be the tool's result.
    """
    message = f"Invalid arguments for {tool_name}; fix these and call it again:"
    data: Any = arguments
    if isinstance(arguments, str):
        try:
            data = load_json(arguments) if arguments.strip() else {}  # some providers send "" for no arguments
        except ValueError as error:
            raise ToolValidationError(message, [Problem("", f"is not JSON: {error}")]) from error
    value, problems = _validate(cls, data, coerce=coerce)
    if problems:
        raise ToolValidationError(message, problems)
    return value


def _validate(cls: type[Out], data: Any, *, coerce: bool) -> tuple[Out, list[Problem]]:
    """The dataclass and no problems, or None and the problems of the data."""
    hint: Any = cls
    try:
        value: Out = validator_of(hint, coerce=coerce).validate_python(data)
    except ValidationError as error:
        return cast("Out", None), problems_of(error)
    except RecursionError:
        return cast("Out", None), [Problem("", "is nested too deeply")]
    return value, []


def _json_values(text: str) -> Iterator[Any]:
    """The JSON value of the whole text, or else every object in it. For an object with a syntax error, the error is yielded.

    The text from an opening brace to its closing brace is parsed as one value, so a part of an invalid object is never
    taken as the answer.
    """
    fence = _CODE_FENCE.fullmatch(text)
    try:
        yield load_json(fence[1] if fence else text)
    except ValueError:
        for candidate in _object_texts(text):
            try:
                yield load_json(candidate)
            except ValueError as error:
                yield error


def _object_texts(text: str) -> Iterator[str]:
    """The text from each brace that may open a JSON object to its closing brace, or to the end if it has none."""
    position = 0
    while opening := _OBJECT_START.search(text, position):
        depth, position = 0, opening.start()
        while token := _TOKEN.search(text, position):
            position = token.end()
            depth += {"{": 1, "}": -1}.get(token[0], 0)
            if not depth:
                break
        position = len(text) if depth else position
        yield text[opening.start() : position]


def _answer_text(answer: str | Mapping[str, Any]) -> str:
    if isinstance(answer, str):
        return answer
    try:
        return json.dumps(answer, ensure_ascii=False, default=repr)
    except (RecursionError, TypeError, ValueError):  # the problems already describe it
        return "an object"


_RESPONSE_FORMAT = """## {number}. Response format

Answer with one JSON object that fits this JSON Schema, and nothing else:

```json
{schema}
```"""


@lru_cache(maxsize=256)
def response_format(output_type: type, number: int) -> str:
    """The last section of a prompt whose answer is a dataclass."""
    return _RESPONSE_FORMAT.format(number=number, schema=json.dumps(json_schema(output_type), ensure_ascii=False))
