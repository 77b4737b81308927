"""Download a conversation as one HTML file."""

import asyncio
import re

from fastapi import APIRouter, Request
from starlette.responses import Response

from minutebook.errors import RequestRefused
from minutebook.service.inspector.share.export import export_html
from minutebook.service.inspector.share.redaction import KINDS
from minutebook.service.inspector.web import (
    SECURITY_HEADERS,
    CurrentConversation,
    CurrentSource,
    FormFields,
    PageLink,
    RequestNumber,
    render,
)

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("share", "Share", "s")


@router.get("/share")
async def show_share(
    request: Request,
    source: CurrentSource,
    data: CurrentConversation,
    r: RequestNumber = None,
) -> Response:
    """The form."""
    return render(request, "share.html", source=source, data=data, link=LINK, current=data.request(r))


@router.post("/export")
async def download_export(data: CurrentConversation, fields: FormFields) -> Response:
    """The file."""
    number, redact = fields.get("r", ""), [kind for kind in fields.get("redact", "").split(",") if kind]
    if not re.fullmatch(r"\d{0,8}", number) or not set(redact) <= set(KINDS):
        raise RequestRefused(400, "The form has an invalid value.", "invalid_request")
    html = await asyncio.to_thread(export_html, data, int(number) if number else None, redact)
    headers = {
        **SECURITY_HEADERS,
        "cache-control": "no-store",
        "content-disposition": 'attachment; filename="conversation.html"',
    }
    return Response(html.encode("utf-8", "backslashreplace"), media_type="text/html; charset=utf-8", headers=headers)
