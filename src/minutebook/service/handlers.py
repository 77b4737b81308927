"""What FastAPI and Starlette refuse by themselves, told in the one shape that all errors of the service have."""

import re
from collections.abc import Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path

from minutebook.errors import MinutebookError
from minutebook.service.failures import Failure, failure_of
from minutebook.service.middleware import answer_of
from minutebook.service.redact import is_clean

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_PROBLEMS: Final = (
    ("missing", "is missing"),
    ("extra_forbidden", "has a field that means nothing here"),
    ("json_invalid", "is not JSON"),
    ("string_too", "has the wrong length"),
    ("string_pattern", "is not written as it must be"),
    ("string", "must be text"),
    ("int", "must be a whole number"),
    ("bool", "must be true or false"),
    ("float", "must be a number"),
    ("list", "must be a list"),
    ("dict", "must be an object"),
    ("model", "must be an object"),
    ("literal_error", "is none of the values that it may have"),
    ("enum", "is none of the values that it may have"),
    ("greater_than", "is too small"),
    ("less_than", "is too large"),
    ("too_long", "is too long"),
    ("too_short", "is too short"),
)
"""What the names of pydantic's errors begin with → what we say. Its own messages may quote what came in."""
_SAID: Final = {
    404: ("There is nothing at this address.", "not_found"),
    405: ("This address does not take this method.", "method_not_allowed"),
    406: ("This address has no answer of that kind.", "not_acceptable"),
    415: ("Send JSON, with 'Content-Type: application/json'.", "unsupported_media_type"),
}


def install_handlers(app: FastAPI) -> None:
    """Have every error of an app answered in the shape that OpenAI's clients read."""
    app.add_exception_handler(MinutebookError, _ours)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)


async def _ours(_request: Request, error: Exception) -> Response:
    return answer_of(failure_of(error))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said, code = _SAID.get(error.status_code, ("The request was refused.", "refused"))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    return answer_of(Failure(error.status_code, said, code, headers=headers))


def _methods(request: Request) -> list[str]:
    """The methods that an address takes, whichever of its routes takes them; one that is written out is not a template's."""
    path, paths = request.url.path, request.app.openapi()["paths"]
    named = [path] if path in paths else [each for each in paths if compile_path(each)[0].match(path)]
    return sorted({method.upper() for each in named for method in paths[each]})


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return answer_of(invalid(error.errors()))


def invalid(problems: Sequence[Any]) -> Failure:
    """What a client is told of a request that does not fit its endpoint: where, and what is wrong, not what it sent."""
    first: dict[str, Any] = problems[0] if problems else {"loc": (), "type": ""}
    place, kind = list(first["loc"]), str(first["type"])
    if kind == "extra_forbidden":
        place = place[:-1]  # the last part is a name that came in
    parts = [_shown(part) for part in place[1:]]
    param = ".".join(parts) or (str(place[0]) if place else None)
    problem = next((said for start, said in _PROBLEMS if kind.startswith(start)), "is not what it must be")
    return Failure(400, f"{param or 'The request'} {problem}.", "invalid_request", param)


def _shown(part: object) -> str:
    text = str(part)
    return text if isinstance(part, int) or (_NAME.fullmatch(text) and is_clean(text)) else "…"
