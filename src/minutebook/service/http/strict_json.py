"""A request's body, read strictly: what two readers could understand differently is refused.

Duplicate keys, NaN, numbers that are infinite, bytes that are not UTF-8 and nests that are too deep never get further
than here, so nothing behind has to think of them.

Routes whose bodies are read strictly, before anything else looks at them.
"""

import json
import math
import re
from collections.abc import Awaitable, Callable, Coroutine
from inspect import signature
from typing import Any, Final, NoReturn, get_args, get_origin, get_type_hints

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from minutebook.errors import RequestRefused
from minutebook.service.http.auth import Door
from minutebook.service.state import Here

_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = re.compile(rb"[\[\]{}]")


def parsed(body: bytes, *, max_depth: int) -> Any:
    """The JSON of a body.

    Raises:
        RequestRefused: it is none, or is not plain.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestRefused(400, f"The body is not UTF-8 at byte {error.start}.", "invalid_json") from None
    if _depth(body) > max_depth:
        raise RequestRefused(400, f"The body is nested more than {max_depth} deep.", "too_deep")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number)
    except RequestRefused:
        raise
    except json.JSONDecodeError as error:
        said = f"The body is not JSON: see line {error.lineno}, column {error.colno}."
        raise RequestRefused(400, said, "invalid_json") from None
    except (ValueError, RecursionError):  # such as a number of more than 4,300 digits
        raise RequestRefused(400, "The body is not JSON that can be read.", "invalid_json") from None


def _depth(body: bytes) -> int:
    deepest = depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise RequestRefused(400, "A key stands twice in one object. Keep one of them.", "duplicate_key")
    return made


def _constant(_name: str) -> NoReturn:
    raise RequestRefused(400, "NaN and Infinity are not JSON.", "invalid_json")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RequestRefused(400, "A number is too large.", "invalid_json")
    return value


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRequest(Request):
    """A request whose JSON was read already."""

    strict: Any = None

    async def json(self) -> Any:
        return self.strict


class StrictRoute(APIRoute):
    """A route that refuses JSON which is not plain. Every router of the service uses it: `route_class=StrictRoute`."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        brief = None if self.dependencies else _brief(self.endpoint)

        async def handled(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            body = await strict.body()
            kind = strict.headers.get("content-type", "").partition(";")[0].strip().lower()
            if not body or not (kind == "application/json" or kind.endswith("+json")):
                return await handle(strict)
            strict.strict = parsed(body, max_depth=request.app.state.service.config.limits.json_depth)
            answer = None if brief is None else brief(strict)
            return await handle(strict) if answer is None else await answer

        return handled


def _brief(endpoint: Callable[..., Any]) -> Callable[[StrictRequest], Awaitable[Response] | None] | None:
    """A short way to a handler that takes nothing but the service, the request, a body and the caller.

    FastAPI looks for each of them anew with every request, which takes longer than they do. A body that does not fit has
    no short way: what is wrong with it FastAPI says.
    """
    hints = get_type_hints(endpoint, include_extras=True)
    names = {_role(hints[name]): name for name in signature(endpoint).parameters}
    if len(names) != 4 or names.keys() != {"service", "request", "body", "caller"}:
        return None
    model: type[BaseModel] = hints[names["body"]]
    door: Door = get_args(hints[names["caller"]])[1].dependency

    async def entered(request: StrictRequest, body: BaseModel) -> Response:
        given = {
            names["service"]: request.app.state.service,
            names["request"]: request,
            names["body"]: body,
            names["caller"]: await door(request),
        }
        answer: Response = await endpoint(**given)
        return answer

    def brief(request: StrictRequest) -> Awaitable[Response] | None:
        try:
            body = model.model_validate(request.strict)
        except ValidationError:
            return None
        return entered(request, body)

    return brief


def _role(hint: Any) -> str | None:
    """What a handler's parameter is, of those that any handler has."""
    if hint == Here:
        return "service"
    if isinstance(hint, type) and issubclass(hint, Request):
        return "request"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "body"
    extras = get_args(hint)[1:] if get_origin(hint) is not None else ()
    return "caller" if any(isinstance(getattr(extra, "dependency", None), Door) for extra in extras) else None
