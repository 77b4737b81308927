"""A conversation at one request: the record, what was sent, and why."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response

from minutebook.errors import RequestRefused
from minutebook.history.names import full_text
from minutebook.record.message import is_result
from minutebook.service.inspector.cards import card_of, line_index, long_lines
from minutebook.service.inspector.content import blocks_of
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.requests import InspectedRequest
from minutebook.service.inspector.rows import CHUNK_ROWS, GLYPHS, chunks_with, row_blocks
from minutebook.service.inspector.strip import strip_of
from minutebook.service.inspector.web import (
    SECURITY_HEADERS,
    CurrentConversation,
    CurrentSource,
    PageLink,
    RequestNumber,
    id_from_path,
    render,
)

router = APIRouter(prefix="/c/{conversation}")
LINK = PageLink("", "Conversation", "c")
Position = Annotated[int, Path(ge=0, le=100_000_000)]
_CHIPS: Final = (("kept", "kept"), ("new", "new"), ("cleared", "cleared"), ("folded", "folded"), ("dropped", "not sent"), ("repaired", "repaired"))  # fmt: skip


@router.get("")
async def show_conversation(
    request: Request,
    source: CurrentSource,
    conversation: str,
    r: RequestNumber = None,
    m: Annotated[int | None, Query(ge=0, le=100_000_000)] = None,
) -> Response:
    """The page. While a long conversation is loaded, it has the first messages; its script asks for the others."""
    data = await source.open_first(id_from_path(conversation))
    current = data.request(r)
    start = 0 if m is None else min(m, max(0, len(data.messages) - 1)) // CHUNK_ROWS * CHUNK_ROWS
    return render(
        request,
        "conversation.html",
        source=source,
        link=LINK,
        r=r,
        m=m,
        start=start,
        chunk_rows=CHUNK_ROWS,
        blocks=row_blocks(data, current, start, start + CHUNK_ROWS),
        strip=strip_of(data),
        **_request_values(data, current),
    )


@router.get("/request")
async def show_request(request: Request, data: CurrentConversation, r: RequestNumber = None) -> Response:
    """The figures of a request: a fragment."""
    return render(request, "_request.html", **_request_values(data, data.request(r)))


@router.get("/strip")
async def show_strip(request: Request, data: CurrentConversation, r: RequestNumber = None) -> Response:
    """The strip and the totals: a fragment, for conversations that grow."""
    return render(request, "_strip.html", strip=strip_of(data), **_request_values(data, data.request(r)))


@router.get("/rows")
async def show_rows(
    request: Request,
    data: CurrentConversation,
    start: Annotated[int, Query(alias="from", ge=0, le=100_000_000)] = 0,
    r: RequestNumber = None,
    n: Annotated[int, Query(ge=1, le=CHUNK_ROWS)] = CHUNK_ROWS,
) -> Response:
    """The rows from a position on: a fragment."""
    current = data.request(r)
    return render(request, "_rows.html", data=data, current=current, blocks=row_blocks(data, current, start, start + n))


@router.get("/chunks.json")
async def send_chunks(
    data: CurrentConversation, r: RequestNumber = None, only: Annotated[str, Query(max_length=20)] = "changed"
) -> Response:
    """Where the chunks of rows begin that a filter shows."""
    current = data.request(r)
    chunks = [] if current is None else chunks_with(data, current, only)
    return JSONResponse(chunks, headers={**SECURITY_HEADERS, "cache-control": "no-store"})


@router.get("/m/{position}")
async def show_message(
    request: Request, data: CurrentConversation, position: Position, r: RequestNumber = None
) -> Response:
    """The whole content of a message, and what it cost: a fragment."""
    message = _message(data, position)
    index = line_index(data)
    used = {
        line for line in long_lines(full_text(message)) if any(use > position for use in index.positions.get(line, ()))
    }
    current = data.request(r)
    part = None if current is None or position >= current.length else data.sent_part(current, position)
    return render(
        request,
        "_opened.html",
        blocks=list(blocks_of(message, used)),
        sent_blocks=[] if part is None or part.message is None else list(blocks_of(part.message)),
        **_card_values(data, current, position),
    )


@router.get("/m/{position}/card")
async def show_card(
    request: Request, data: CurrentConversation, position: Position, r: RequestNumber = None
) -> Response:
    """What a message cost: a fragment."""
    _message(data, position)
    return render(request, "_card.html", **_card_values(data, data.request(r), position))


@router.get("/m/{position}/raw")
async def download_message(data: CurrentConversation, position: Position) -> Response:
    """The whole text of a message, as a file."""
    message = _message(data, position)
    headers = {
        **SECURITY_HEADERS,
        "cache-control": "no-store",
        "content-disposition": f'attachment; filename="message-{position}.txt"',
    }
    text = full_text(message).encode("utf-8", "backslashreplace")
    return Response(text, media_type="text/plain; charset=utf-8", headers=headers)


@router.get("/series.json")
async def send_series(data: CurrentConversation, after: Annotated[int, Query(ge=0, le=100_000_000)] = 0) -> Response:
    """The figures of the requests after a number, for the slider and the keys."""
    is_complete, requests = data.is_complete, data.requests[after:]
    values: dict[str, Any] = {
        "complete": is_complete,
        "messages": len(data.messages),
        "sent": [request.sent for request in requests],
        "marks": {str(request.number): marks for request in requests if (marks := request.marks)},
    }
    return JSONResponse(values, headers={**SECURITY_HEADERS, "cache-control": "no-store"})


def _card_values(data: InspectedConversation, current: InspectedRequest | None, position: int) -> dict[str, Any]:
    return {
        "data": data,
        "current": current,
        "card": card_of(data, position),
        "pair_word": "Answers" if is_result(data.messages[position]) else "Results",
        "at": data.times[position] if position < len(data.times) else None,
        "total": len(data.requests),
    }


def _message(data: InspectedConversation, position: int) -> Any:
    if position >= len(data.messages):
        raise RequestRefused(404, "There is no such message.", "not_found")
    return data.messages[position]


def _request_values(data: InspectedConversation, current: InspectedRequest | None) -> dict[str, Any]:
    """What the templates of the figures need."""
    counts = None if current is None else data.counts(current)
    chips = [
        {
            "fate": fate,
            "glyph": GLYPHS[fate],  # type: ignore[index]
            "word": word,
            "count": counts.totals[fate],  # type: ignore[index]
            "changes": counts.changes[fate] if fate not in {"kept", "new"} else 0,  # type: ignore[index]
            "added": counts.added if fate == "folded" else 0,
        }
        for fate, word in _CHIPS
        if counts is not None and counts.totals[fate]  # type: ignore[index]
    ]
    previous = None if current is None else data.previous(current)
    return {
        "data": data,
        "current": current,
        "previous": previous,
        "chips": chips,
        "total": len(data.requests),
        "cost": data.series.cost,
        "full_cost": data.series.full_cost,
        "sent_count": 0 if current is None else data.sent_count(current),
    }
