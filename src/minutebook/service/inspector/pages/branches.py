"""The branches of a conversation: copies that continue in another way, as a small tree."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from minutebook.service.inspector.web import CurrentConversation, CurrentSource, PageLink, render

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("branches", "Branches", "b")


@router.get("/branches")
async def show_branches(request: Request, source: CurrentSource, data: CurrentConversation) -> Response:
    """The page."""
    tree = await source.branches(data.id)
    return render(request, "branches.html", source=source, data=data, link=LINK, tree=tree)
