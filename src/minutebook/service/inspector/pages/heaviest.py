"""The messages that cost most over the session."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minutebook.service.inspector.figures.heaviest import SORTS, heaviest
from minutebook.service.inspector.web import CurrentConversation, CurrentSource, PageLink, render

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("heaviest", "Heaviest", "h")


@router.get("/heaviest")
async def show_heaviest(
    request: Request,
    source: CurrentSource,
    data: CurrentConversation,
    turns: Annotated[int, Query(ge=0, le=1_000)] = 5,
    sort: Annotated[str, Query(max_length=10)] = "cost",
) -> Response:
    """The page. `turns`: after how many turns the messages would be cleared."""
    order = sort if sort in SORTS else "cost"
    rows = await asyncio.to_thread(heaviest, data, turns, order)
    return render(
        request, "heaviest.html", source=source, data=data, link=LINK, rows=rows, turns=turns, sort=order, sorts=SORTS
    )
