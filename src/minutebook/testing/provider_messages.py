"""Answers in the shape of Anthropic's messages, whole and as a stream."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from minutebook.testing.provider_chat import finish_reason, pieces, words
from minutebook.testing.provider_tally import Tally
from minutebook.testing.script import Answer, Part, Text, Thinking

STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}

Sign = Callable[[str], str]
"""The signature of a thinking block."""


def message(answer: Answer, tally: Tally, request: Mapping[str, Any], number: int, sign: Sign) -> dict[str, Any]:
    """A `message`."""
    return {
        **_head(request, number),
        "content": [block(part, sign) for part in answer.parts],
        **_ending(answer),
        "usage": _usage(tally, tally.completion),
    }


def block(part: Part, sign: Sign) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": part.text, "signature": sign(part.text)}
    return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": part.input}


def events(answer: Answer, tally: Tally, request: Mapping[str, Any], number: int, sign: Sign) -> Iterator[str]:
    """The events of a stream, without the ending where the answer breaks off."""
    begun = {**_head(request, number), "content": [], "stop_reason": None, "stop_sequence": None}
    yield event("message_start", message={**begun, "usage": _usage(tally, 1)})
    yield event("ping")
    for index, part in enumerate(answer.parts):
        yield event("content_block_start", index=index, content_block=_opening(part))
        for delta in _deltas(part, sign):
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    if answer.failure is None:
        usage = {"output_tokens": tally.completion}
        yield event("message_delta", delta=_ending(answer), usage=usage)
        yield event("message_stop")


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}\n\n"


def _opening(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": ""}
    if isinstance(part, Thinking):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": part.call_id, "name": part.tool, "input": {}}


def _deltas(part: Part, sign: Sign) -> Iterator[dict[str, Any]]:
    if isinstance(part, Text):
        yield from ({"type": "text_delta", "text": word} for word in words(part.text))
    elif isinstance(part, Thinking):
        yield from ({"type": "thinking_delta", "thinking": word} for word in words(part.text))
        yield {"type": "signature_delta", "signature": sign(part.text)}
    else:
        yield {"type": "input_json_delta", "partial_json": ""}
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in pieces(part.arguments))


def _ending(answer: Answer) -> dict[str, Any]:
    if answer.refusal is not None:
        # Anthropic writes no words of refusal into the content; the reason is all there is.
        details = {"type": "refusal", "category": None, "explanation": answer.refusal}
        return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    return {"stop_reason": STOP_REASONS[finish_reason(answer)], "stop_sequence": None}


def _head(request: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": request["model"]}


def _usage(tally: Tally, output: int) -> dict[str, Any]:
    return {
        "input_tokens": tally.prompt - tally.cached - tally.written,
        "cache_read_input_tokens": tally.cached,
        "cache_creation_input_tokens": tally.written,
        "output_tokens": output,
    }
