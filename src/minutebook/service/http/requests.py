"""What comes in: who sent it, with which key, what they may do, and its body, parsed strictly.

A handler says what it needs: `caller: Annotated[Caller, needs("read")]`. Whoever may not do that is told so (403); which
conversations there are, nobody is told who may not see them: another's id is not found (404), like one that is not there.

Duplicate keys, NaN, numbers that are infinite, bytes that are not UTF-8 and nests that are too deep are refused here, so
nothing behind has to think of them.
"""

import ipaddress
import json
import math
import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from inspect import signature
from typing import Annotated, Any, Final, NoReturn, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from minutebook.errors import ConversationNotFound, InvalidSetting, RequestRefused
from minutebook.service.access.api_keys import Caller, Keys, Scope, refused, require_tenant
from minutebook.service.state import Here
from minutebook.store.types import Conversation

_BEARER: Final = HTTPBearer(auto_error=False, description="A key that `minutebook keys create` made.")
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-real-ip")


class Door:
    """Lets in whoever may do something, and not too often."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def __call__(self, request: Request, _documented: Annotated[Any, Depends(_BEARER)] = None) -> Caller:
        service = request.app.state.service
        caller = await entered(request, service.keys, tenant=service.config.database.tenant)
        request.scope.setdefault("state", {})["caller"] = caller
        if not caller.may(self._scope):
            raise RequestRefused(403, f"This API key lacks the scope '{self._scope}'.", "insufficient_scope")
        service.limiter.request(caller)
        return caller


def needs(scope: Scope) -> Any:
    """A FastAPI dependency: the caller, who may do this, and not too often."""
    return Depends(Door(scope))


async def entered(request: Request, keys: Keys, *, tenant: str) -> Caller:
    """Whoever a request comes from. Where there are no keys, that is anybody on this machine.

    Raises:
        RequestRefused: it may not come in.
    """
    given = request.headers.get("authorization")
    scheme, _, token = (given or "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip().startswith("mb_"):
        return await keys.verify(token.strip())
    if await keys.any():
        raise refused("Send an API key of this service: 'Authorization: Bearer mb_…'.")
    if not from_here(request):
        raise refused("This service has no API keys yet, and answers only on its own machine until it has.")
    return Caller(require_tenant(tenant))


def from_here(request: Request) -> bool:
    """Whether a request was made on this machine, and not by a page from elsewhere in a browser on it.

    A page may reach a service on loopback under a name of its own; a browser then says that name as Host or Origin.
    """
    client = request.client
    if client is not None and _address(client.host) and not is_loopback(client.host):
        return False
    if any(name in request.headers for name in _FORWARDED):
        return False
    named = [f"//{request.headers['host']}"] if request.headers.get("host") else []
    if "origin" in request.headers:
        named.append(request.headers["origin"])
    return all(_is_ours(each) for each in named)


@lru_cache(maxsize=64)
def _is_ours(url: str) -> bool:
    """Whether a browser got there by a name that nobody elsewhere can own: one of this machine, or one without a dot."""
    try:
        name = urlsplit(url).hostname
    except ValueError:
        return False
    return name is not None and (is_loopback(name) or ("." not in name and ":" not in name))


def require_guarded(host: str, *, has_keys: bool) -> None:
    """Refuse to listen where others could come in, unless there are keys.

    Raises:
        InvalidSetting: others could, and there are none.
    """
    if not has_keys and not is_loopback(host):
        expected = "127.0.0.1, or make an API key first: minutebook keys create NAME --db URL"
        raise InvalidSetting("host", host, expected)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def require_sight(caller: Caller, conversation: Conversation) -> Conversation:
    """A conversation that the caller may see.

    Raises:
        ConversationNotFound: its key is bound to another recipient.
    """
    if caller.recipient is not None and caller.recipient != conversation.recipient:
        raise ConversationNotFound(conversation.id)
    return conversation


@lru_cache(maxsize=64)  # asked of the same few with every request
def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


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
