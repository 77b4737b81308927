"""The ASGI app of `minutebook inspect`, and of the pages that the service mounts under /ui."""

import hmac
import secrets
from collections.abc import Sequence
from types import ModuleType
from typing import Final
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from minutebook.errors import MinutebookError, RequestRefused
from minutebook.service.http.errors import failure_of
from minutebook.service.inspector.pages import (
    branches,
    conversation,
    conversations,
    diff,
    folds,
    heaviest,
    live,
    plan,
    share,
    timeline,
    treemap,
    what_if,
)
from minutebook.service.inspector.source import InspectorSource
from minutebook.service.inspector.web import SECURITY_HEADERS, Inspector, is_fragment, render, static_file

PAGES: Final[Sequence[ModuleType]] = (
    conversations,
    conversation,
    timeline,
    treemap,
    heaviest,
    what_if,
    folds,
    plan,
    branches,
    diff,
    share,
    live,
)
"""The modules of the pages, in the order of the navigation."""


def create_pages(inspector: Inspector) -> FastAPI:
    """The app with all pages and their static files."""
    app = FastAPI(title="minutebook inspector", docs_url=None, redoc_url=None, openapi_url=None)
    inspector.links = [page.LINK for page in PAGES if hasattr(page, "LINK")]
    app.state.inspector = inspector
    for page in PAGES:
        app.include_router(page.router)

    @app.get("/static/{digest}/{name:path}")
    async def send_static(digest: str, name: str) -> Response:  # noqa: ARG001 - it is in the path so that files may be cached
        return static_file(name)

    for error_class in (MinutebookError, RequestValidationError, HTTPException):
        app.add_exception_handler(error_class, show_error)
    return app


class LocalAccess:
    """Access to an inspector on this machine: a token in the first URL, then a cookie."""

    def __init__(self) -> None:
        self._token: str | None = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self.csrf = secrets.token_urlsafe(32)

    @property
    def sign_in_path(self) -> str:
        """The path of the URL that is opened in the browser. It works once."""
        return f"/open?token={self._token}"

    def exchange(self, token: str) -> str | None:
        """The value of the cookie for the token of the first URL. A token is accepted once."""
        if self._token is None or not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        self._token = None
        return self._session

    def is_known(self, request: Request) -> bool:
        return hmac.compare_digest(request.cookies.get(cookie_name(request), "").encode(), self._session.encode())


def cookie_name(request: Request) -> str:
    """The name of the cookie. Browsers send a cookie to every port of a host, so the name has the port."""
    return f"minutebook_inspect_{request.url.port}"


def create_inspector(source: InspectorSource, access: LocalAccess) -> FastAPI:
    """The app of `minutebook inspect`: pages for a source, for one browser on this machine."""

    async def open_source(request: Request) -> InspectorSource:
        require_local_host(request)
        if not access.is_known(request):
            problem = "Open the address that `minutebook inspect` printed. It works once; start the command again for another."
            raise RequestRefused(401, problem, "unauthorized")
        return source

    app = create_pages(Inspector(root="", open_source=open_source, csrf_token=lambda _: access.csrf))

    @app.get("/open")
    async def open_first(request: Request, token: str = "") -> Response:
        require_local_host(request)
        session = access.exchange(token)
        if session is None and not access.is_known(request):
            raise RequestRefused(401, "This address was used before. Start `minutebook inspect` again.", "unauthorized")
        response = RedirectResponse("/", 303)
        if session is not None:
            response.set_cookie(cookie_name(request), session, httponly=True, samesite="strict", path="/")
        return response

    return app


def require_local_host(request: Request) -> None:
    """Refuse requests through another host name: a page of another site could reach this server by DNS rebinding.

    Raises:
        RequestRefused: the Host header is not an address of this machine.
    """
    host = urlsplit(f"//{request.headers.get('host', '')}").hostname
    if host not in {"127.0.0.1", "::1", "localhost"}:
        raise RequestRefused(421, "Open this page by the address 127.0.0.1.", "wrong_host")


async def show_error(request: Request, error: Exception) -> Response:
    """An error as a page, or as a fragment if a script asks."""
    if isinstance(error, HTTPException):
        status, problem = error.status_code, "There is no such page."
    elif isinstance(error, RequestValidationError):
        status, problem = 400, "The address has an invalid value."
    else:
        failure = failure_of(error)
        status, problem = failure.status, failure.message
    inspector: Inspector = request.app.state.inspector
    if status == 401 and inspector.can_sign_in and request.method == "GET" and not is_fragment(request):
        return RedirectResponse(f"{inspector.root}/login", 303, {**SECURITY_HEADERS, "cache-control": "no-store"})
    template = "_error.html" if is_fragment(request) else "error.html"
    return render(request, template, status=status, problem=problem)
