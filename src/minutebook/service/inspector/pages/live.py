"""Server-sent events: tells a page that its conversation has changed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from minutebook.service.inspector.source import InspectorSource
from minutebook.service.inspector.web import SECURITY_HEADERS, CurrentSource, id_from_path

router = APIRouter()
POLL_SECONDS: Final = 1.0
STREAM_SECONDS: Final = 20.0
"""The browser connects again after this time. So a stopped server does not wait, and a signed-out page gets nothing."""


@router.get("/live")
async def stream_changes(source: CurrentSource, c: Annotated[str, Query(max_length=2000)]) -> Response:
    """An event with the state of the conversation, now and whenever it has changed."""
    conversation_id = id_from_path(c)
    state = await source.state(conversation_id)
    headers = {**SECURITY_HEADERS, "cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_events(source, conversation_id, state), media_type="text/event-stream", headers=headers)


async def _events(source: InspectorSource, conversation_id: str, state: str) -> AsyncIterator[str]:
    yield f"retry: 1000\nevent: state\ndata: {_line(state)}\n\n"
    for _ in range(int(STREAM_SECONDS / POLL_SECONDS)):
        await asyncio.sleep(POLL_SECONDS)
        now = await source.state(conversation_id)
        if now != state:
            state = now
            yield f"event: state\ndata: {_line(state)}\n\n"


def _line(state: str) -> str:
    return " ".join(state.split())
