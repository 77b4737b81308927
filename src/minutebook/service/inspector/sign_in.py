"""The inspector of the service: sign-in with an API key, and the conversations that the key may read.

The cookie has a random session id, never the key. The session is a document of the reserved tenant, so every replica
knows it, and the key is looked up on every request: a revoked key ends its sessions.
"""

import hashlib
import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Final

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from minutebook.errors import DocumentNotFound, RequestRefused, VersionConflict
from minutebook.service.access.api_keys import Caller, unauthorized
from minutebook.service.conversations.objects import hold_for_writing
from minutebook.service.http.requests import authenticate
from minutebook.service.inspector.app import create_pages
from minutebook.service.inspector.policy import ReplayPolicy
from minutebook.service.inspector.source import InspectorSource
from minutebook.service.inspector.sources.database import OpenConversations, StoreSource
from minutebook.service.inspector.web import (
    SECURITY_HEADERS,
    Inspector,
    form_fields,
    render,
    require_form_token,
    require_same_origin,
)
from minutebook.service.state import Service
from minutebook.store.rules import now
from minutebook.store.types import RESERVED_TENANT, NewDocument

ROOT: Final = "/ui"
COOKIE: Final = "minutebook_session"
SESSION_HOURS: Final = 12
_CONVERSATION: Final = "ui sessions"
_KIND: Final = "ui session"


class ServiceAccess:
    """Who uses the pages of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store = service.store.for_tenant(RESERVED_TENANT).with_expiry(None)
        self._cache = OpenConversations()
        self._local_csrf = secrets.token_urlsafe(32)
        """For a service without keys, whose pages need no sign-in."""

    async def open_source(self, request: Request) -> InspectorSource:
        """The conversations that the caller may read.

        Raises:
            RequestRefused: the caller is not signed in, or the key lacks the scope `read`.
        """
        service, caller = self._service, await self._caller(request)
        if not caller.has_scope("read"):
            raise RequestRefused(403, "This API key lacks the scope 'read'.", "insufficient_scope")
        service.limiter.count_request(caller)

        async def undo(conversation_id: str, fold_id: str) -> None:
            async with hold_for_writing(service, caller, conversation_id) as (store, _):
                await store.undo_fold(conversation_id, fold_id)
            await service.audit.note(caller, "undo", conversation_id)

        return StoreSource(
            service.store_of(caller),
            ReplayPolicy(models=service.config.models),
            name=f"tenant {caller.tenant}",
            cache=self._cache,
            recipient=caller.recipient,
            undo=undo if caller.has_scope("write") else None,
        )

    async def _caller(self, request: Request) -> Caller:
        session = request.cookies.get(COOKIE, "")
        if session:
            try:
                document = await self._store.document(_KIND, _digest(session))
            except DocumentNotFound:
                raise unauthorized("The session has ended; sign in again.") from None
            return await self._service.keys.caller(document.body["key_id"])
        database = self._service.config.database
        if "authorization" in request.headers:
            raise unauthorized("Sign in with an API key.")
        return await authenticate(request, self._service.keys, tenant=database.tenant, optional=database.optional)

    def csrf_token(self, request: Request) -> str:
        session = request.cookies.get(COOKIE, "")
        return _digest(f"csrf {session}") if session else self._local_csrf

    async def sign_in(self, token: str) -> str:
        """A new session for an API key.

        Raises:
            RequestRefused: the key is unknown, revoked or expired, or may not read.
        """
        caller = await self._service.keys.verify(token)
        if not caller.has_scope("read"):
            raise RequestRefused(403, "This API key lacks the scope 'read'.", "insufficient_scope")
        session = secrets.token_urlsafe(32)
        with suppress(VersionConflict):
            await self._store.append(_CONVERSATION, [], expected_version=0)
        expires_at = now() + timedelta(hours=SESSION_HOURS)
        document = NewDocument(_KIND, _digest(session), {"key_id": caller.key_id}, expires_at=expires_at)
        await self._store.put_document(_CONVERSATION, document)
        return session

    async def sign_out(self, session: str) -> None:
        await self._store.delete_document(_KIND, _digest(session))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def create_service_pages(service: Service) -> FastAPI:
    """The app that the service mounts under `/ui`."""
    access = ServiceAccess(service)
    app = create_pages(
        Inspector(
            root=ROOT,
            open_source=access.open_source,
            csrf_token=access.csrf_token,
            can_sign_in=True,
            is_signed_in=lambda request: COOKIE in request.cookies,
        )
    )

    @app.get("/login")
    async def show_sign_in(request: Request) -> Response:
        return render(request, "sign_in.html", problem="")

    @app.post("/login")
    async def sign_in(request: Request) -> Response:
        require_same_origin(request)
        fields = await form_fields(request)
        try:
            session = await access.sign_in(fields.get("key", "").strip())
        except RequestRefused as error:
            return render(request, "sign_in.html", status=error.status, problem=error.problem)
        response = RedirectResponse(f"{ROOT}/", 303, SECURITY_HEADERS)
        is_secure = request.url.scheme == "https"
        response.set_cookie(
            COOKIE, session, max_age=SESSION_HOURS * 3600, path=ROOT, httponly=True, samesite="strict", secure=is_secure
        )
        return response

    @app.post("/logout")
    async def sign_out(request: Request) -> Response:
        await require_form_token(request)
        await access.sign_out(request.cookies.get(COOKIE, ""))
        response = RedirectResponse(f"{ROOT}/login", 303, SECURITY_HEADERS)
        response.delete_cookie(COOKIE, path=ROOT, httponly=True, samesite="strict")
        return response

    return app
