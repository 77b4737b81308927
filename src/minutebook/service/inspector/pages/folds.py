"""The folds of a conversation: what each one replaces, and undo."""

from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from minutebook.service.inspector.content import ContentBlock, blocks_of
from minutebook.service.inspector.conversation import InspectedConversation, InspectedFold
from minutebook.service.inspector.heads import MessageHead, head_of
from minutebook.service.inspector.source import InspectorSource
from minutebook.service.inspector.web import (
    ChangedSource,
    CurrentConversation,
    CurrentSource,
    PageLink,
    id_from_path,
    render,
)

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("folds", "Folds", "f", lambda data: len(data.folds) or None)
MAX_HEADS: Final = 200


@dataclass(frozen=True, slots=True)
class FoldCard:
    """A fold, for the page."""

    item: InspectedFold
    tokens: int
    shown_tokens: int
    shown: list[ContentBlock]
    heads: list[tuple[int, MessageHead]]
    first_request: int | None
    """The number of the first request that has it."""


@router.get("/folds")
async def show_folds(request: Request, source: CurrentSource, data: CurrentConversation) -> Response:
    """The page."""
    return render(request, "folds.html", link=LINK, undone="", **_values(source, data))


@router.post("/folds/{fold}/undo")
async def undo_fold(request: Request, source: ChangedSource, conversation: str, fold: str) -> Response:
    """Undo a fold, and show all of them again: a fragment."""
    await source.undo_fold(id_from_path(conversation), fold)
    data = await source.open(id_from_path(conversation))
    return render(request, "_folds.html", undone=fold, **_values(source, data))


def _values(source: InspectorSource, data: InspectedConversation) -> dict[str, Any]:
    return {"source": source, "data": data, "cards": [_card(data, item) for item in data.folds]}


def _card(data: InspectedConversation, item: InspectedFold) -> FoldCard:
    fold, count = item.fold, len(data.messages)
    counter, stop = data.record.counter, min(item.fold.stop, count)
    return FoldCard(
        item,
        sum(data.tokens_of(position) for position in range(fold.start, stop)),
        sum(counter.message(message) for message in fold.shown),
        [block for message in fold.shown for block in blocks_of(message)],
        [
            (position, head_of(data.messages[position]))
            for position in range(fold.start, min(stop, fold.start + MAX_HEADS))
        ],
        next((request.number for request in data.requests if fold.id in request.folds), None),
    )
