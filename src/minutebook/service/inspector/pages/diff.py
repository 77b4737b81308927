"""The differences between two requests of a conversation."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from minutebook.service.inspector.figures.request_diff import MAX_SPANS, Side, request_differences
from minutebook.service.inspector.web import CurrentConversation, CurrentSource, PageLink, RequestNumber, render

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("diff", "Diff", "d")


@router.get("/diff")
async def show_diff(
    request: Request,
    source: CurrentSource,
    data: CurrentConversation,
    a: RequestNumber = None,
    b: RequestNumber = None,
    r: RequestNumber = None,
) -> Response:
    """The page. Without `b`: the request `r` of the navigation. Without numbers: the last cut, or the newest request."""
    right = data.request(r if b is None else b)
    if a is None and b is None and r is None:
        right = next((item for item in reversed(data.requests) if item.cache_break), right)
    left = right if right is None else data.request(a if a is not None else max(1, right.number - 1))
    spans = []
    if left is not None and right is not None:
        spans = await asyncio.to_thread(request_differences, Side(data, left), Side(data, right))
    return render(
        request,
        "diff.html",
        source=source,
        data=data,
        link=LINK,
        left=left,
        right=right,
        spans=spans,
        max_spans=MAX_SPANS,
    )
