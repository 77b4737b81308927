"""The timeline of a conversation: tokens and cost of all requests, and where something happened."""

import asyncio
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minutebook.service.inspector.charts.timeline import MARK_WORDS, NARROW, timeline_svg
from minutebook.service.inspector.web import (
    SECURITY_HEADERS,
    CurrentConversation,
    CurrentSource,
    PageLink,
    conversation_address,
    render,
)

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("timeline", "Timeline", "t")
TABLE_ROWS: Final = 200


@router.get("/timeline")
async def show_timeline(
    request: Request,
    source: CurrentSource,
    data: CurrentConversation,
    after: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    only: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """The page. `after` and `only` choose the rows of the table."""
    rows = [item for item in data.requests if not only or item.marks]
    address = partial(conversation_address, request, data)
    return render(
        request,
        "timeline.html",
        source=source,
        data=data,
        link=LINK,
        wide=await asyncio.to_thread(timeline_svg, data, address=address),
        small=await asyncio.to_thread(timeline_svg, data, width=NARROW, address=address),
        rows=rows[after : after + TABLE_ROWS],
        words=MARK_WORDS,
        after=after,
        only=only,
        before=max(0, after - TABLE_ROWS) if after else None,
        following=after + TABLE_ROWS if after + TABLE_ROWS < len(rows) else None,
        is_open="after" in request.query_params or bool(only),
    )


@router.get("/timeline.svg")
async def download_timeline(data: CurrentConversation) -> Response:
    """The picture alone, for a document or a web page."""
    headers = {**SECURITY_HEADERS, "cache-control": "no-store"}
    picture = await asyncio.to_thread(timeline_svg, data)
    return Response(str(picture), media_type="image/svg+xml", headers=headers)
