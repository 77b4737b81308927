"""Clients that go away before they have their answer, and want it to be stopped then."""

import asyncio

from fastapi import Request

from minutebook.service.runs import Run
from minutebook.service.state import Service


def watched(service: Service, request: Request, run: Run) -> "asyncio.Task[None] | None":
    """Who stops an answer when its client is gone, where that is wanted. Keep it: tasks that nobody keeps may vanish."""
    if request.query_params.get("on_disconnect", service.config.server.on_disconnect) != "cancel":
        return None
    return asyncio.create_task(_stop_when_gone(service, request, run))


async def _stop_when_gone(service: Service, request: Request, run: Run) -> None:
    """Of an idle stream, and of an answer that is to come whole, only the connection says that nobody waits for it."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    await service.runs.cancel(run)
