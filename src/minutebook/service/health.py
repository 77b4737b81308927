"""What those who run the service ask of it: whether it lives, whether it can work, what it counts and allows."""

from typing import Annotated, Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from minutebook.errors import MinutebookError
from minutebook.service.access.api_keys import Caller
from minutebook.service.http.auth import needs
from minutebook.service.http.responses import Json
from minutebook.service.http.strict_json import StrictRoute
from minutebook.service.observability.metrics import CONTENT_TYPE
from minutebook.service.state import Here

router = APIRouter(tags=["operations"], route_class=StrictRoute)


@router.get("/healthz")
async def is_alive() -> dict[str, str]:
    """Whether the process answers at all."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "The database cannot be reached."}})
async def is_ready(service: Here) -> Response:
    """Whether it can work: whether the database answers."""
    try:
        await service.store.list(limit=1)
    except MinutebookError as error:
        ready = service.config.database.optional
        return Json(
            {"status": "unrecorded" if ready else "unready", "database": type(error).__name__}, 200 if ready else 503
        )
    return Json({"status": "ok", "database": "ok", "active_runs": service.runs.active})


@router.get("/metrics", dependencies=[needs("read")], response_class=PlainTextResponse)
async def tell_metrics(service: Here) -> Response:
    """What is counted, for Prometheus."""
    return Response(service.metrics.render(), media_type=CONTENT_TYPE)


@router.get("/v1/limits")
async def tell_limits(service: Here, caller: Annotated[Caller, needs("read")]) -> dict[str, Any]:
    """What is too much, for this caller."""
    return {
        "object": "limits",
        **service.config.limits.model_dump(),
        **service.limiter.limits_of(caller),
        "runs_per_conversation": 1,
        "tokens_used_today": await service.limiter.tokens_used(caller),
    }
