"""The same session under another policy or budget, beside the one of today."""

import asyncio
from concurrent.futures import Future
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minutebook.errors import MinutebookError
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.figures.comparison import (
    SUGGESTED,
    PolicyChoice,
    PolicyRun,
    current_choice,
    start_run,
)
from minutebook.service.inspector.figures.request_diff import MAX_SPANS, Side, request_differences
from minutebook.service.inspector.web import (
    CurrentConversation,
    CurrentSource,
    PageLink,
    RequestNumber,
    is_fragment,
    render,
)

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("whatif", "What if", "w")
WAIT_SECONDS: Final = 1.5
"""How long the page waits for the replays. After that it asks again."""


@router.get("/whatif")
async def show_what_if(
    request: Request,
    source: CurrentSource,
    data: CurrentConversation,
    policy: Annotated[str, Query(max_length=300)] = "",
    budget: Annotated[int | None, Query(ge=1, le=100_000_000)] = None,
    r: RequestNumber = None,
) -> Response:
    """The page, or its results as a fragment while they are computed."""
    today = current_choice(data)
    choice = PolicyChoice(
        policy.strip() or today.text, budget or (today.budget if policy.strip() else today.budget * 2)
    )
    values: dict[str, Any] = {"problem": "", "runs": None, "spans": [], "current": data.request(r)}
    try:
        futures = [start_run(source.name, data, item) for item in (today, choice)]
        values |= await _results(data, futures, r)
    except MinutebookError as error:
        values["problem"] = str(error)
    return render(
        request,
        "_what_if.html" if is_fragment(request) else "what_if.html",
        source=source,
        data=data,
        link=LINK,
        today=today,
        choice=choice,
        suggested=SUGGESTED,
        max_spans=MAX_SPANS,
        total=len(data.requests),
        **values,
    )


async def _results(
    data: InspectedConversation, futures: list["Future[PolicyRun]"], number: int | None
) -> dict[str, Any]:
    waiting = [asyncio.wrap_future(future) for future in futures]
    _, pending = await asyncio.wait([asyncio.shield(item) for item in waiting], timeout=WAIT_SECONDS)
    if pending:
        return {}
    today, other = (future.result() for future in futures)
    left, right = data.request(number), other.conversation.request(number)
    spans = []
    if left is not None and right is not None:
        spans = await asyncio.to_thread(request_differences, Side(data, left), Side(other.conversation, right))
    return {"runs": (today, other), "spans": spans, "other": right}
