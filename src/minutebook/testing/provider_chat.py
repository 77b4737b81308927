"""Answers in the shape of OpenAI's chat completions, whole and as a stream."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from minutebook.testing.provider_tally import Tally
from minutebook.testing.script import Answer, Text, Thinking, Use

ARGUMENT_PIECE = 8
"""Characters of a call's arguments in one chunk: few, because clients must put the pieces together."""


def completion(answer: Answer, tally: Tally, request: Mapping[str, Any], number: int, created: int) -> dict[str, Any]:
    """A `chat.completion`."""
    return {
        **_head("chat.completion", request, number, created),
        "choices": [
            {"index": 0, "message": assistant_message(answer), "logprobs": None, "finish_reason": finish_reason(answer)}
        ],
        "usage": _usage(tally),
    }


def assistant_message(answer: Answer) -> dict[str, Any]:
    """The message a client appends to its conversation."""
    texts = [part.text for part in answer.parts if isinstance(part, Text)]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": answer.refusal,
    }
    if thoughts := [part.text for part in answer.parts if isinstance(part, Thinking)]:
        message["reasoning_content"] = "".join(thoughts)
    if calls := [part for part in answer.parts if isinstance(part, Use)]:
        message["tool_calls"] = [
            {"id": part.call_id, "type": "function", "function": {"name": part.tool, "arguments": part.arguments}}
            for part in calls
        ]
    return message


def chunks(answer: Answer, tally: Tally, request: Mapping[str, Any], number: int, created: int) -> Iterator[str]:
    """The events of a stream: `chat.completion.chunk`s, without the `[DONE]` where the answer breaks off."""
    head = _head("chat.completion.chunk", request, number, created)
    options = request.get("stream_options")
    wants_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
    extra = {"usage": None} if wants_usage else {}

    def event(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return data({**head, "choices": [choice], **extra})

    yield event({"role": "assistant", "content": "", "refusal": None})
    for delta in _deltas(answer):
        yield event(delta)
    if answer.failure is None:
        yield event({}, finish_reason(answer))
        if wants_usage:
            yield data({**head, "choices": [], "usage": _usage(tally)})
        yield "data: [DONE]\n\n"


def data(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def finish_reason(answer: Answer) -> str:
    if answer.finish is not None:
        return answer.finish
    return "tool_calls" if any(isinstance(part, Use) for part in answer.parts) else "stop"


def words(text: str) -> list[str]:
    """A text in the pieces a model would send it in."""
    return re.findall(r"\S+\s*|\s+", text)


def pieces(arguments: str) -> list[str]:
    return [arguments[at : at + ARGUMENT_PIECE] for at in range(0, len(arguments), ARGUMENT_PIECE)]


def _deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    index = -1
    for part in answer.parts:
        if isinstance(part, Text):
            yield from ({"content": word} for word in words(part.text))
        elif isinstance(part, Thinking):
            yield from ({"reasoning_content": word} for word in words(part.text))
        else:
            index += 1
            start = {"name": part.tool, "arguments": ""}
            yield {"tool_calls": [{"index": index, "id": part.call_id, "type": "function", "function": start}]}
            for piece in pieces(part.arguments):
                yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
    if answer.refusal is not None:
        yield from ({"refusal": word} for word in words(answer.refusal))


def _head(kind: str, request: Mapping[str, Any], number: int, created: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": created, "model": request["model"]}


def _usage(tally: Tally) -> dict[str, Any]:
    return {
        "prompt_tokens": tally.prompt,
        "completion_tokens": tally.completion,
        "total_tokens": tally.prompt + tally.completion,
        "prompt_tokens_details": {"cached_tokens": tally.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": tally.reasoning, "audio_tokens": 0},
    }
