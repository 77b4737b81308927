"""What became of an answer in a thread: as `done` says it, and told again from the record."""

from collections.abc import Mapping, Sequence
from typing import Any

from minutebook.errors import DocumentNotFound
from minutebook.record.message import Message
from minutebook.service.dialogue import said_in, tools_shown
from minutebook.service.keeping import SURFACE
from minutebook.service.replies import RUN
from minutebook.service.state import Service
from minutebook.service.telling import Telling
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import Document


def exposes(service: Service) -> bool:
    """Whether clients are told what tools were asked and answered."""
    return service.config.conversation.effective_retention.expose_tool_details


async def run_of(store: ConversationStore, run_id: str | None) -> Document | None:
    """What is known of an answer in a thread; None if there is none."""
    if run_id is None:
        return None
    try:
        known = await store.document(RUN, run_id)
    except DocumentNotFound:
        return None
    return known if known.body.get("surface") == SURFACE else None


async def retell(
    service: Service, store: ConversationStore, known: Document, telling: Telling, *, heard: int = 0
) -> None:
    """Tell an answer that is in the record, from a character on."""
    body = known.body
    loaded = await store.load(body["conversation"], since=body["answer"], limit=body["stop"] - body["answer"])
    telling.whole(said_in(loaded.messages), heard)
    telling.done(result_of(known.id, body, loaded.messages, expose=exposes(service)))


def result_of(run_id: str, body: Mapping[str, Any], messages: Sequence[Message], *, expose: bool) -> dict[str, Any]:
    """What `done` says, and the whole answer where it was not to be streamed."""
    recorded = "answer" in body
    return {
        "id": run_id,
        "object": "thread.answer",
        "thread_id": body["conversation"],
        "message_id": f"msg_{body['answer']}" if recorded else None,
        "text": said_in(messages),
        "tools": tools_shown(messages, expose_tool_details=True) if expose else [dict(used) for used in body["tools"]],
        "model": body["model"],
        "finish": body["finish"],
        "usage": _plain(body["usage"]),
        "version": body.get("version"),
        "history": "recorded" if recorded else "unrecorded",
    }


def _plain(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in usage.items()}
