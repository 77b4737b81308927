"""The answer to a completion that was asked for before, built again from the record."""

from collections.abc import Mapping
from typing import Any

from minutebook.errors import DocumentNotFound
from minutebook.service.replies import Claim, earlier_run
from minutebook.service.turns import REQUEST
from minutebook.service.wire import DONE, sse
from minutebook.store.contract import ConversationStore
from minutebook.wire.chat import entry_to_provider_message


async def earlier_completion(store: ConversationStore, claim: Claim) -> dict[str, Any] | None:
    """What the same request was answered before; None if it was not. Ask while you hold the conversation.

    Raises:
        IdempotencyConflict: the key came with another body.
    """
    name = await earlier_run(store, claim)
    if name is None:
        return None
    try:
        request = await store.document(REQUEST, name)
    except DocumentNotFound:
        return None
    told = request.body
    if "answer" not in told:
        return None
    loaded = await store.load(request.conversation, since=told["answer"], limit=1)
    usage = told["usage"] and dict(told["usage"])
    head = {"id": told["run"], "created": int(request.created_at.timestamp()), "model": told["model"], **told["head"]}
    return completion_of(entry_to_provider_message(loaded.entries[0]), head, usage, told["finish"])


def completion_of(
    message: Mapping[str, Any],
    head: Mapping[str, Any],
    usage: Mapping[str, Any] | None = None,
    finish: str | None = None,
) -> dict[str, Any]:
    """A message of the record as a completion."""
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    return {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": usage,
    }


def as_stream(completion: Mapping[str, Any]) -> list[bytes]:
    """The same answer as the events of a stream."""
    choice = completion["choices"][0]
    head = {key: completion[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    said = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    ended = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    return [sse(said), sse(ended), DONE]
