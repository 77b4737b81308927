"""The plan of an agent: its steps, which messages belong to each, and the summaries that are shown instead."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from minutebook.service.inspector.figures.plan_steps import LEVEL_WORDS, MAX_EXCHANGES, STATUS_WORDS, plan_tasks
from minutebook.service.inspector.web import CurrentConversation, CurrentSource, PageLink, render

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("plan", "Plan", "p", is_shown=lambda data: data.plan is not None)


@router.get("/plan")
async def show_plan(request: Request, source: CurrentSource, data: CurrentConversation) -> Response:
    """The page."""
    return render(
        request,
        "plan.html",
        source=source,
        data=data,
        link=LINK,
        tasks=await asyncio.to_thread(plan_tasks, data),
        statuses=STATUS_WORDS,
        levels=LEVEL_WORDS,
        max_exchanges=MAX_EXCHANGES,
    )
