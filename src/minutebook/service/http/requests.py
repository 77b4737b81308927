"""Authentication, scopes and bodies of requests.

A handler declares its scope: `caller: Annotated[Caller, require_scope("read")]`. A caller without that scope gets 403. A
conversation that the caller may not access gets 404, like one that does not exist.

The caller is authenticated before the body is read, and JSON bodies are parsed by `json_codec`.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from inspect import signature
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints
from urllib.parse import unquote, urlsplit

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope as RequestScope

from minutebook.errors import ConversationNotFound, InvalidSetting, RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import ApiKeys, Caller, Scope, require_tenant, unauthorized
from minutebook.service.http.json_codec import parse_body
from minutebook.service.state import CurrentService
from minutebook.store.types import ConversationHeader

_BEARER: Final = HTTPBearer(auto_error=False, description="An API key from `minutebook keys create`.")
_FORWARDED: Final = (
    *("forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"),
    *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-server"),
)
"""Headers of a proxy, behind which the client may be on another machine."""


class Authenticator:
    """A FastAPI dependency that returns the caller, if it has a scope and is within its rate limit."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def __call__(self, request: Request, _for_openapi: Annotated[Any, Depends(_BEARER)] = None) -> Caller:
        state = request.scope.setdefault("state", {})
        if state.get("authenticator") is self:  # `StrictRoute` calls it before the body is read
            authenticated_caller: Caller = state["caller"]
            return authenticated_caller
        service = request.app.state.service
        database = service.config.database
        caller = await authenticate(request, service.keys, tenant=database.tenant, optional=database.optional)
        state["caller"] = caller
        if not caller.has_scope(self._scope):
            raise RequestRefused(403, f"This API key lacks the scope '{self._scope}'.", "insufficient_scope")
        service.limiter.count_request(caller)
        state["authenticator"] = self
        return caller


def require_scope(scope: Scope) -> Any:
    """The FastAPI dependency that authenticates the caller and requires a scope."""
    return Depends(Authenticator(scope))


async def authenticate(request: Request, keys: ApiKeys, *, tenant: str, optional: bool = False) -> Caller:
    """The caller of a request. While the service has no keys, any client on this machine is accepted.

    With `optional`, such a client is also accepted if the database was never available since the start.

    Raises:
        RequestRefused: the request has no valid API key.
    """
    try:
        return await _verify_caller(request, keys, tenant=tenant)
    except StoreUnavailable:
        # A service that could not read its keys since its start listens on a loopback address only.
        if not optional or keys.was_read or not is_local_request(request):
            raise
        return Caller(require_tenant(tenant))


async def _verify_caller(request: Request, keys: ApiKeys, *, tenant: str) -> Caller:
    scheme, _, token = request.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip().startswith("mb_"):
        return await keys.verify(token.strip())
    if await keys.any():
        raise unauthorized("Send an API key of this service: 'Authorization: Bearer mb_…'.")
    if not is_local_request(request):
        raise unauthorized(
            "This service has no API keys yet; until it has, it only accepts requests from its own machine."
        )
    return Caller(require_tenant(tenant))


def is_local_request(request: Request) -> bool:
    """Whether the client is on this machine and is not a web page of another site.

    A page can reach a service on loopback through a domain that resolves to it (DNS rebinding). The browser then sends
    that domain as Host or Origin.
    """
    client = request.client
    if client is not None and _ip_address(client.host) and not is_loopback(client.host):
        return False
    if any(name in request.headers for name in _FORWARDED):
        return False
    urls = [f"//{request.headers['host']}"] if request.headers.get("host") else []
    if "origin" in request.headers:
        urls.append(request.headers["origin"])
    return all(map(_has_local_host, urls))


@lru_cache(maxsize=64)
def _has_local_host(url: str) -> bool:
    """Whether the URL's host is this machine, or a name without a dot, which no public site can have."""
    try:
        name = urlsplit(url).hostname
    except ValueError:
        return False
    return name is not None and (is_loopback(name) or ("." not in name and ":" not in name))


def require_keys_for_remote(host: str, *, has_keys: bool) -> None:
    """Allow a service without API keys to listen on loopback addresses only.

    Raises:
        InvalidSetting: other machines can reach the host, and there are no keys.
    """
    if not has_keys and not is_loopback(host):
        expected = "127.0.0.1 while there are no API keys; create one with: minutebook keys create NAME --db URL"
        raise InvalidSetting("host", host, expected)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host.lower().rstrip(".") == "localhost":
        return True
    address = _ip_address(host)
    return address is not None and address.is_loopback


def require_access(caller: Caller, conversation: ConversationHeader) -> ConversationHeader:
    """Return the conversation if the caller may access it.

    Raises:
        ConversationNotFound: the caller's key is bound to another recipient.
    """
    if caller.recipient is not None and caller.recipient != conversation.recipient:
        raise ConversationNotFound(conversation.id)
    return conversation


@lru_cache(maxsize=64)  # every request has one of the same few hosts
def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    ipv4_address = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if ipv4_address is None else ipv4_address


_ENCODED_SLASH: Final = re.compile("%2f", re.IGNORECASE)
_SLASH_IN_ID: Final = "\ufdd0"
"""Replaces an encoded slash in the path while a route is chosen. It is not printable, so no id has it."""


def path_for_routing(raw_path: bytes, path: str) -> str:
    """The decoded path, in which the encoded slashes of ids do not separate segments. `StrictRoute` decodes them."""
    if b"%2f" not in raw_path.lower():
        return path
    return unquote(_ENCODED_SLASH.sub(_SLASH_IN_ID, raw_path.decode("ascii", "replace")))


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRequest(Request):
    """A request whose JSON body was already parsed. `await body()` returns the bytes of the body."""

    parsed_body: Any = None

    async def json(self) -> Any:
        return self.parsed_body


class StrictRoute(APIRoute):
    """A route that authenticates before it reads the body, and accepts strict JSON only.

    Every router of the service uses it: `route_class=StrictRoute`. Ids in its path may contain encoded slashes (`%2F`).
    """

    def matches(self, scope: RequestScope) -> tuple[Match, RequestScope]:
        match, child_scope = super().matches(scope)
        if _SLASH_IN_ID in scope["path"]:
            for name, value in child_scope.get("path_params", {}).items():
                child_scope["path_params"][name] = value.replace(_SLASH_IN_ID, "/")
        return match, child_scope

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        authenticators = [part.call for part in self.dependant.dependencies if isinstance(part.call, Authenticator)]
        fast_path = None if self.dependencies else _fast_path(self.endpoint)

        async def handle_strictly(request: Request) -> Response:
            strict_request = StrictRequest(request.scope, request.receive)
            for authenticator in authenticators:
                await authenticator(strict_request)
            body = await strict_request.body()
            media_type = strict_request.headers.get("content-type", "").partition(";")[0].strip().lower()
            is_json = media_type == "application/json" or media_type.endswith("+json")
            if body and not is_json and self.body_field is not None:
                problem = "The body must be JSON, with the header 'Content-Type: application/json'."
                raise RequestRefused(415, problem, "unsupported_media_type", "Content-Type")
            if not body or not is_json:
                return await handle(strict_request)
            limits = request.app.state.service.config.limits
            strict_request.parsed_body = await parse_body(
                body, max_depth=limits.json_depth, max_values=limits.json_values
            )
            response = None if fast_path is None else fast_path(strict_request)
            return await handle(strict_request) if response is None else await response

        return handle_strictly


def _fast_path(endpoint: Callable[..., Any]) -> Callable[[StrictRequest], Awaitable[Response] | None] | None:
    """A function that calls the handler without FastAPI; None if it has other parameters than service, request, body, caller.

    FastAPI's dependency resolution takes longer than getting these four values directly. For an invalid body the function
    returns None, so that FastAPI reports what is wrong.
    """
    hints = get_type_hints(endpoint, include_extras=True)
    names = {_parameter_role(hints[name]): name for name in signature(endpoint).parameters}
    if len(names) != 4 or names.keys() != {"service", "request", "body", "caller"}:
        return None
    model: type[BaseModel] = hints[names["body"]]
    authenticator: Authenticator = get_args(hints[names["caller"]])[1].dependency

    async def call_endpoint(request: StrictRequest, body: BaseModel) -> Response:
        arguments = {
            names["service"]: request.app.state.service,
            names["request"]: request,
            names["body"]: body,
            names["caller"]: await authenticator(request),
        }
        response: Response = await endpoint(**arguments)
        return response

    def fast_path(request: StrictRequest) -> Awaitable[Response] | None:
        try:
            body = model.model_validate(request.parsed_body)
        except ValidationError:
            return None
        return call_endpoint(request, body)

    return fast_path


def _parameter_role(hint: Any) -> str | None:
    """The role of a handler's parameter, by its annotation; None for another parameter."""
    if hint == CurrentService:
        return "service"
    if isinstance(hint, type) and issubclass(hint, Request):
        return "request"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "body"
    extras = get_args(hint)[1:] if get_origin(hint) is not None else ()
    return "caller" if any(isinstance(getattr(extra, "dependency", None), Authenticator) for extra in extras) else None
