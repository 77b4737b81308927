"""The door: who comes in, with which key, and what they may do.

A handler says what it needs: `caller: Annotated[Caller, needs("read")]`. Whoever may not do that is told so (403); which
conversations there are, nobody is told who may not see them: another's id is not found (404), like one that is not there.
"""

import ipaddress
from functools import lru_cache
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from minutebook.errors import ConversationNotFound, InvalidSetting, RequestRefused
from minutebook.service.access.api_keys import Caller, Keys, Scope, refused, require_tenant
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
