"""What fills the window of a request, as areas: by role, tool or file."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minutebook.service.inspector.charts.treemap import treemap_svg
from minutebook.service.inspector.figures.window_fill import GROUPINGS, window_fill
from minutebook.service.inspector.web import (
    CurrentConversation,
    CurrentSource,
    PageLink,
    RequestNumber,
    conversation_address,
    render,
)

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("treemap", "Treemap", "m")


@router.get("/treemap")
async def show_treemap(
    request: Request,
    source: CurrentSource,
    data: CurrentConversation,
    r: RequestNumber = None,
    by: Annotated[str, Query(max_length=10)] = "role",
) -> Response:
    """The page."""
    current, grouping = data.request(r), by if by in GROUPINGS else "role"
    groups = [] if current is None else await asyncio.to_thread(window_fill, data, current, grouping)

    def address(position: int) -> str:
        assert current is not None
        return f"{conversation_address(request, data, current.number)}&m={position}"

    return render(
        request,
        "treemap.html",
        source=source,
        data=data,
        link=LINK,
        current=current,
        by=grouping,
        groupings=GROUPINGS,
        groups=groups,
        total=sum(group.tokens for group in groups),
        wide=treemap_svg(groups, width=1200, height=600, address=address),
        small=treemap_svg(groups, width=372, height=560, address=address),
    )
