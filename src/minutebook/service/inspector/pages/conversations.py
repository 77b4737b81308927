"""The list of conversations, with search and filters. The query of the URL is the state."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minutebook.service.inspector.source import SORTS, ListFilter
from minutebook.service.inspector.web import CurrentSource, inspector_of, is_fragment, render

router = APIRouter()
FILTERS = {"cut": "cuts", "fold": "folds", "refusal": "refusals", "error": "errors"}


@router.get("/")
async def show_conversations(
    request: Request,
    source: CurrentSource,
    q: Annotated[str, Query(max_length=500)] = "",
    model: Annotated[str, Query(max_length=200)] = "",
    min_cost: Annotated[str, Query(max_length=20)] = "",
    has: Annotated[list[str] | None, Query(max_length=8)] = None,
    sort: Annotated[str, Query(max_length=20)] = "recent",
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """The list of conversations."""
    names = {name for item in has or () for name in item.split(",") if name in FILTERS}
    try:
        cost = float(min_cost) if min_cost else None
    except ValueError:
        cost = None
    query = ListFilter(
        q=q, model=model, min_cost=cost, has=frozenset(names), sort=sort if sort in SORTS else "recent", after=after
    )
    found = await source.list(query)
    path = f"{inspector_of(request).root}/"
    template = "_conversations.html" if is_fragment(request) else "conversations.html"
    return render(
        request,
        template,
        found=found,
        query=query,
        source=source,
        here=f"{path}?after={after}" if after else path,
        following=f"{path}?{request.url.include_query_params(after=found.next).query}",
        filters={name: FILTERS[name] for name in source.filters},
    )
