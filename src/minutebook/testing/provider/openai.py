"""OpenAI's chat completions: the rules for requests, and answers whole and streamed.

Answers in the shape of OpenAI's chat completions, whole and as a stream.

What OpenAI refuses in a chat completions request.

The shapes come first, because only messages that have them can be checked for what belongs together; that part is
`minutebook.check`. A key nobody knows is let through, and so is a conversation of system messages alone.

The list of models, as each provider writes it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from minutebook.record.finding import Finding, FindingKind, errors
from minutebook.record.message import ROLES, Provider
from minutebook.record.validation import check
from minutebook.testing.provider.usage import Tally
from minutebook.testing.script import Answer, Failure, Text, Thinking, Use

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


PART_TYPES: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})
SENTENCES: Final = {
    FindingKind.ORPHAN_RESULT: "messages with role 'tool' must answer a message with 'tool_calls' before them",
    FindingKind.DANGLING_CALL: "an assistant message with 'tool_calls' needs a tool message for each 'tool_call_id'; without one:",
    FindingKind.DUPLICATE_RESULT: "duplicate value for 'tool_call_id':",
    FindingKind.INTERLEAVED: "messages with role 'tool' must directly follow the message whose 'tool_calls' they answer",
    FindingKind.DUPLICATE_ID: "duplicate 'id' among the 'tool_calls' of one message:",
    FindingKind.MISSING_ID: "missing required parameter: the id of a tool call or of its result",
    FindingKind.MISPLACED_CALLS: "'tool_calls' are only allowed on messages with role 'assistant'",
    FindingKind.UNKNOWN_ROLE: "the role is none of the supported values",
}


def chat_problem(body: Mapping[str, Any]) -> Failure | None:
    """The first thing that OpenAI would answer 400 to."""
    if not isinstance(body.get("model"), str):
        return _wrong("you must provide a model parameter", "model", "missing_required_parameter")
    messages = body.get("messages")
    if not isinstance(messages, list):
        return _wrong("'messages' must be an array", "messages", "invalid_type")
    if not messages:
        return _wrong("'messages' is an empty array; it needs at least one message", "messages", "empty_array")
    for index, message in enumerate(messages):
        if problem := _message_problem(message, f"messages[{index}]"):
            return problem
    found = [one for one in errors(check(messages)) if one.kind is not FindingKind.EMPTY_VIEW]
    return _told(found[0]) if found else None


def _message_problem(message: Any, path: str) -> Failure | None:
    if not isinstance(message, Mapping):
        return _wrong(f"'{path}' must be an object", path, "invalid_type")
    role = message.get("role")
    if role not in ROLES:
        return _wrong(f"'{role}' is none of {sorted(ROLES)}", f"{path}.role", "invalid_value")
    if "tool_calls" in message and (problem := _calls_problem(message["tool_calls"], f"{path}.tool_calls")):
        return problem
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        return _wrong(f"'{path}.tool_call_id' is required", f"{path}.tool_call_id", "missing_required_parameter")
    return _content_problem(message, f"{path}.content")


def _content_problem(message: Mapping[str, Any], path: str) -> Failure | None:
    content = message.get("content")
    if content is None:
        says_otherwise = any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
        if message["role"] == "function" or (message["role"] == "assistant" and says_otherwise):
            return None
        return _wrong(f"'{path}' must be a string, not null", path, "invalid_type")
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        return _wrong(f"'{path}' must be a string or an array of parts", path, "invalid_type")
    if not content:
        return _wrong(f"'{path}' is an empty array", path, "empty_array")
    for place, part in enumerate(content):
        where = f"{path}[{place}]"
        if not isinstance(part, Mapping):
            return _wrong(f"'{where}' must be an object", where, "invalid_type")
        if part.get("type") not in PART_TYPES:
            return _wrong(f"'{part.get('type')}' is none of {sorted(PART_TYPES)}", f"{where}.type", "invalid_value")
    return None


def _calls_problem(calls: Any, path: str) -> Failure | None:
    if calls is None:
        return None
    if not isinstance(calls, list):
        return _wrong(f"'{path}' must be an array", path, "invalid_type")
    if not calls:
        return _wrong(f"'{path}' is an empty array; leave it out instead", path, "empty_array")
    for place, call in enumerate(calls):
        where = f"{path}[{place}]"
        if not isinstance(call, Mapping):
            return _wrong(f"'{where}' must be an object", where, "invalid_type")
        if call.get("type") == "custom":
            continue
        function = call.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return _wrong(f"'{where}.function.name' is required", f"{where}.function", "missing_required_parameter")
        if not isinstance(function.get("arguments"), str):
            return _wrong(f"'{where}.function.arguments' must be a string", f"{where}.function", "invalid_type")
    return None


def _told(finding: Finding) -> Failure:
    which = f" {finding.call_id}" if finding.call_id else ""
    return _wrong(f"{SENTENCES[finding.kind]}{which}", f"messages.[{finding.index}].role", None)


def _wrong(message: str, param: str, code: str | None) -> Failure:
    return Failure(400, f"Invalid parameter: {message}", code=code, param=param)


def model_page(name: str, models: tuple[str, ...], created: int, provider: Provider) -> dict[str, Any] | Failure:
    """All models, or the one that `/name` asks for."""
    wanted = name.removeprefix("/")
    if not wanted:
        entries = [_entry(model, created, provider) for model in models]
        if provider == "openai":
            return {"object": "list", "data": entries}
        first, last = (models[0], models[-1]) if models else (None, None)
        return {"data": entries, "has_more": False, "first_id": first, "last_id": last}
    if wanted in models:
        return _entry(wanted, created, provider)
    return Failure(404, f"the model '{wanted}' does not exist", code="model_not_found", param="model")


def _entry(model: str, created: int, provider: Provider) -> dict[str, Any]:
    if provider == "openai":
        return {"id": model, "object": "model", "created": created, "owned_by": "minutebook"}
    born = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": model, "display_name": model, "created_at": born, "lifecycle": "active"}
