"""What all pages share: templates, static files, security headers, and the source of the request."""

import base64
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import parse_qs

from fastapi import Depends, Query, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import FileResponse, HTMLResponse, Response

from minutebook.errors import RequestRefused
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.heads import visible
from minutebook.service.inspector.requests import Pricing
from minutebook.service.inspector.source import InspectorSource

FOLDER: Final = Path(__file__).parent
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Final = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_MEDIA_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}


@dataclass(frozen=True, slots=True)
class PageLink:
    """An entry of a conversation's navigation. A page module has one as `LINK`."""

    path: str
    """The path after `/c/{id}`, without a slash; empty for the conversation itself."""
    title: str
    key: str = ""
    """Pressed after `g`, it opens the page."""
    count: Callable[[InspectedConversation], int | None] = lambda _: None
    """A number beside the title."""
    is_shown: Callable[[InspectedConversation], bool] = lambda _: True
    """Whether the navigation of a conversation has it."""


@dataclass(slots=True, kw_only=True)
class Inspector:
    """The inspector of an app: where it is mounted, its navigation, and the source of each request."""

    root: str
    """The path of the pages: empty, or "/ui"."""
    open_source: Callable[[Request], Awaitable[InspectorSource]]
    """The source of a request.

    Raises:
        RequestRefused: the client may not read it. 401 leads to the sign-in page.
    """
    csrf_token: Callable[[Request], str] = lambda _: ""
    """The token that changes must send in the header `X-CSRF-Token`."""
    can_sign_in: bool = False
    """Whether there is a sign-in page."""
    is_signed_in: Callable[[Request], bool] = lambda _: False
    links: list[PageLink] = field(default_factory=list)


def inspector_of(request: Request) -> Inspector:
    inspector: Inspector = request.app.state.inspector
    return inspector


async def current_source(request: Request) -> InspectorSource:
    return await inspector_of(request).open_source(request)


CurrentSource = Annotated[InspectorSource, Depends(current_source)]
"""Type of a handler parameter that receives the source."""


def require_same_origin(request: Request) -> None:
    """Refuse a form that a page of another site sends.

    Raises:
        RequestRefused: the Origin header is missing or names another host.
    """
    origin = request.headers.get("origin", "")
    if origin.partition("://")[2] != request.headers.get("host"):
        raise RequestRefused(403, "The request comes from another site.", "csrf")


async def require_change_allowed(request: Request, source: CurrentSource) -> InspectorSource:
    """The source, for a handler that changes something.

    Raises:
        RequestRefused: the request has no valid CSRF token, comes from another site, or the client may only read.
    """
    token = inspector_of(request).csrf_token(request)
    if not token or request.headers.get("x-csrf-token") != token:
        raise RequestRefused(403, "The page is outdated; load it again.", "csrf")
    require_same_origin(request)
    if not source.can_write:
        raise RequestRefused(403, "You may only read these conversations.", "read_only")
    return source


RequestNumber = Annotated[int | None, Query(ge=0, le=10_000_000)]
"""Type of a handler parameter with the number of a request. 0 is the newest one: a page that has none yet sends it."""


def number_in_address(request: Request) -> int | None:
    """The number of the request that the address names. The navigation keeps it."""
    number = request.query_params.get("r", "")
    return int(number) if re.fullmatch(r"[1-9][0-9]{0,6}", number) else None


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a form. Of several with one name, the values are joined by commas."""
    body = await request.body()
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
    return {name: ",".join(values) for name, values in fields.items()}


async def require_form_token(request: Request) -> dict[str, str]:
    """The fields of a form of our own page.

    Raises:
        RequestRefused: the form has no valid CSRF token, or comes from another site.
    """
    require_same_origin(request)
    fields = await form_fields(request)
    token = inspector_of(request).csrf_token(request)
    if not token or not hmac.compare_digest(fields.get("csrf", "").encode(), token.encode()):
        raise RequestRefused(403, "The page is outdated; load it again.", "csrf")
    return fields


FormFields = Annotated[dict[str, str], Depends(require_form_token)]
"""Type of a handler parameter that receives the fields of a form of our own page."""
ChangedSource = Annotated[InspectorSource, Depends(require_change_allowed)]
"""Type of a handler parameter that receives the source, if the request may change it."""


def is_fragment(request: Request) -> bool:
    """Whether a script asks for a part of a page."""
    return request.headers.get("hx-request") == "true"


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> Response:
    """A page or a fragment."""
    inspector = inspector_of(request)
    html = templates().get_template(template).render(
        root=inspector.root,
        static=f"{inspector.root}/static/{assets_digest()}",
        csrf_token=inspector.csrf_token(request),
        can_sign_out=inspector.is_signed_in(request),
        links=inspector.links,
        request_number=number_in_address(request),
        **values,
    )  # fmt: skip
    return HTMLResponse(
        html, status, {**SECURITY_HEADERS, "cache-control": "no-store", "vary": "HX-Request", **(headers or {})}
    )


@cache
def templates() -> Environment:
    """The templates. Every value is escaped."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape_text,
    )
    environment.filters |= {"number": number, "money": money, "moment": moment, "path_id": path_id, "percent": percent}
    return environment


def _escape_text(value: Any) -> Any:
    """A value of a template. Control characters of a text become visible, also in ids and names: transcripts contain these too."""
    return visible(value) if type(value) is str else value


def number(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else f"{value:,.0f}"


def percent(part: float, total: float) -> str:
    return "\N{EN DASH}" if not total else f"{100 * part / total:.0f} %"


def money(value: float | None, pricing: Pricing | bool, *, fine: bool = False) -> str:
    """A cost: dollars, or tokens of plain input if the prices are not known."""
    if value is None:
        return "\N{EN DASH}"
    is_known = pricing if isinstance(pricing, bool) else pricing.is_known
    if not is_known:
        return f"{value:,.0f} tokens"
    return (
        f"${value:,.2f}"
        if value >= (100 if fine else 0.1)
        else f"${value:.4f}"
        if value >= 0.0001 or not value
        else "< $0.0001"
    )


def moment(value: datetime | None) -> str:
    return "" if value is None else f"{value:%Y-%m-%d %H:%M}"


_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def path_id(conversation_id: str) -> str:
    """A conversation's id as a segment of a path. Ids with other characters are encoded."""
    if _PLAIN_ID.fullmatch(conversation_id):
        return conversation_id
    return "~" + base64.urlsafe_b64encode(conversation_id.encode()).decode().rstrip("=")


def id_from_path(segment: str) -> str:
    """The conversation's id of a segment of a path.

    Raises:
        RequestRefused: the segment is not an id.
    """
    if not segment.startswith("~"):
        return segment
    try:
        return base64.urlsafe_b64decode(segment[1:] + "=" * (-len(segment[1:]) % 4)).decode()
    except ValueError:
        raise RequestRefused(404, "There is no such conversation.", "not_found") from None


def conversation_address(request: Request, conversation: InspectedConversation, number: int | None = None) -> str:
    """The path of a conversation's page, at a request."""
    query = "" if number is None else f"?r={number}"
    return f"{inspector_of(request).root}/c/{path_id(conversation.id)}{query}"


async def current_conversation(source: CurrentSource, conversation: str) -> InspectedConversation:
    return await source.open(id_from_path(conversation))


CurrentConversation = Annotated[InspectedConversation, Depends(current_conversation)]
"""Type of a handler parameter that receives the conversation of the path `/c/{conversation}`."""


@cache
def assets_digest() -> str:
    """A digest of all static files. It is in their path, so browsers may keep them forever."""
    digest = hashlib.sha256()
    for path in sorted((FOLDER / "static").rglob("*")):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def static_file(name: str) -> Response:
    """A static file.

    Raises:
        RequestRefused: there is none with that name.
    """
    folder = FOLDER / "static"
    path = (folder / name).resolve()
    if not path.is_relative_to(folder) or not path.is_file() or path.suffix not in _MEDIA_TYPES:
        raise RequestRefused(404, "There is no such file.", "not_found")
    headers = {**SECURITY_HEADERS, "cache-control": "public, max-age=31536000, immutable"}
    return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix], headers=headers)
