"""OpenAI's chat completions: the rules for requests, and responses, streamed or not; also the list of models.

Types of fields and unknown keys are checked first, then the pairing of calls and results with `minutebook.check`. A
conversation of system messages only is accepted.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from minutebook.record.finding import Finding, FindingKind, errors
from minutebook.record.message import ROLES, Provider
from minutebook.record.validation import check
from minutebook.testing.provider.usage import AnswerUsage
from minutebook.testing.script import CallPart, ScriptedAnswer, ScriptedFailure, TextPart, ThinkingPart

ARGUMENT_PIECE = 8
"""Characters of a call's arguments per chunk. Small, so that tests exercise how clients join chunks."""


def completion(
    answer: ScriptedAnswer, usage: AnswerUsage, request: Mapping[str, Any], number: int, created: int
) -> dict[str, Any]:
    """A `chat.completion`."""
    return {
        **_head("chat.completion", request, number, created),
        "choices": [
            {"index": 0, "message": assistant_message(answer), "logprobs": None, "finish_reason": finish_reason(answer)}
        ],
        "usage": _usage(usage),
    }


def assistant_message(answer: ScriptedAnswer) -> dict[str, Any]:
    """The message a client appends to its conversation."""
    texts = [part.text for part in answer.parts if isinstance(part, TextPart)]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": answer.refusal,
    }
    if thoughts := [part.text for part in answer.parts if isinstance(part, ThinkingPart)]:
        message["reasoning_content"] = "".join(thoughts)
    if calls := [part for part in answer.parts if isinstance(part, CallPart)]:
        message["tool_calls"] = [
            {"id": part.call_id, "type": "function", "function": {"name": part.tool, "arguments": part.arguments}}
            for part in calls
        ]
    return message


def chunks(
    answer: ScriptedAnswer, usage: AnswerUsage, request: Mapping[str, Any], number: int, created: int
) -> Iterator[str]:
    """The `chat.completion.chunk` events of a stream. A stream that ends with an error has no `[DONE]`."""
    head = _head("chat.completion.chunk", request, number, created)
    options = request.get("stream_options")
    wants_usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
    extra = {"usage": None} if wants_usage else {}

    def event(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse_event({**head, "choices": [choice], **extra})

    yield event({"role": "assistant", "content": "", "refusal": None})
    for delta in _deltas(answer):
        yield event(delta)
    if answer.failure is None:
        yield event({}, finish_reason(answer))
        if wants_usage:
            yield sse_event({**head, "choices": [], "usage": _usage(usage)})
        yield "data: [DONE]\n\n"


def sse_event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def finish_reason(answer: ScriptedAnswer) -> str:
    if answer.finish is not None:
        return answer.finish
    return "tool_calls" if any(isinstance(part, CallPart) for part in answer.parts) else "stop"


def words(text: str) -> list[str]:
    """The text split into the pieces of a stream."""
    return re.findall(r"\S+\s*|\s+", text)


def pieces(arguments: str) -> list[str]:
    return [arguments[start : start + ARGUMENT_PIECE] for start in range(0, len(arguments), ARGUMENT_PIECE)]


def _deltas(answer: ScriptedAnswer) -> Iterator[dict[str, Any]]:
    index = -1
    for part in answer.parts:
        if isinstance(part, TextPart):
            yield from ({"content": word} for word in words(part.text))
        elif isinstance(part, ThinkingPart):
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


def _usage(usage: AnswerUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning, "audio_tokens": 0},
    }


PART_TYPES: Final[dict[str, frozenset[str]]] = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}
"""Types of parts by role. Messages of other roles have only text."""
REQUIRED_PART_FIELDS: Final[dict[str, frozenset[str]]] = {
    "image_url": frozenset({"url"}),
    "input_audio": frozenset({"data", "format"}),
    "file": frozenset({"file_data", "file_id"}),
}
"""Fields of the object in a part. A file has one of them, the others all."""
MESSAGE_KEYS: Final[dict[str, frozenset[str]]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset(
        {
            *("role", "content", "name", "refusal", "audio", "tool_calls", "function_call"),
            *("annotations", "reasoning_content"),  # answers have these, and clients send answers back unchanged
        }
    ),
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
    "function": frozenset({"role", "content", "name"}),
}
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
AUTHOR_NAME: Final = re.compile(r"[^\s<|\\/>]{1,64}")
CALL_KEYS: Final = frozenset({"id", "type", "function", "custom"})
PROBLEM_TEXTS: Final = {
    FindingKind.ORPHAN_RESULT: "messages with role 'tool' must answer a message with 'tool_calls' before them",
    FindingKind.DANGLING_CALL: "an assistant message with 'tool_calls' needs a tool message for each 'tool_call_id'; without one:",
    FindingKind.DUPLICATE_RESULT: "duplicate value for 'tool_call_id':",
    FindingKind.INTERLEAVED: "messages with role 'tool' must directly follow the message whose 'tool_calls' they answer",
    FindingKind.DUPLICATE_ID: "duplicate 'id' among the 'tool_calls' of one message:",
    FindingKind.MISSING_ID: "missing required parameter: the id of a tool call or of its result",
    FindingKind.MISPLACED_CALLS: "'tool_calls' are only allowed on messages with role 'assistant'",
    FindingKind.UNKNOWN_ROLE: "the role is none of the supported values",
    FindingKind.BAD_CONTENT: "the content is neither a string nor a list of parts",
    FindingKind.BAD_PART: "a part of the content is not allowed in messages with this role",
    FindingKind.BAD_CALLS: "'tool_calls' is not a list of calls",
    FindingKind.BAD_NAME: "a name does not match the pattern '^[a-zA-Z0-9_-]+$'",
    FindingKind.BAD_TEXT: "the request is not valid UTF-8",
}


def chat_problem(body: Mapping[str, Any]) -> ScriptedFailure | None:
    """The first problem for which OpenAI would return status 400."""
    if not isinstance(body.get("model"), str):
        return invalid_parameter("you must provide a model parameter", "model", "missing_required_parameter")
    messages = body.get("messages")
    if not isinstance(messages, list):
        return invalid_parameter("'messages' must be an array", "messages", "invalid_type")
    if not messages:
        return invalid_parameter(
            "'messages' is an empty array; it needs at least one message", "messages", "empty_array"
        )
    for index, message in enumerate(messages):
        if problem := _message_problem(message, f"messages[{index}]"):
            return problem
    findings = [finding for finding in errors(check(messages)) if finding.kind is not FindingKind.EMPTY_VIEW]
    return _finding_failure(findings[0]) if findings else None


def _message_problem(message: Any, path: str) -> ScriptedFailure | None:
    if not isinstance(message, Mapping):
        return invalid_parameter(f"'{path}' must be an object", path, "invalid_type")
    role = message.get("role")
    if role not in ROLES:
        return invalid_parameter(f"'{role}' is none of {sorted(ROLES)}", f"{path}.role", "invalid_value")
    known_keys = MESSAGE_KEYS[role] | (
        {"tool_calls"} if role != "tool" else set()
    )  # misplaced calls have their own error
    if problem := unknown_key(message, known_keys, path):
        return problem
    if "tool_calls" in message and (problem := _calls_problem(message["tool_calls"], f"{path}.tool_calls")):
        return problem
    author = message.get("name")
    if author is not None and not (isinstance(author, str) and AUTHOR_NAME.fullmatch(author)):
        return invalid_parameter(f"'{path}.name' does not match its pattern", f"{path}.name", "invalid_value")
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        name = legacy.get("name")
        if problem := tool_name_problem(name if isinstance(name, str) else "", f"{path}.function_call.name"):
            return problem
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        return invalid_parameter(
            f"'{path}.tool_call_id' is required", f"{path}.tool_call_id", "missing_required_parameter"
        )
    return _content_problem(message, f"{path}.content")


def _content_problem(message: Mapping[str, Any], path: str) -> ScriptedFailure | None:
    content = message.get("content")
    if content is None:
        has_other_content = any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
        if message["role"] == "function" or (message["role"] == "assistant" and has_other_content):
            return None
        return invalid_parameter(f"'{path}' must be a string, not null", path, "invalid_type")
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        return invalid_parameter(f"'{path}' must be a string or an array of parts", path, "invalid_type")
    if not content:
        return invalid_parameter(f"'{path}' is an empty array", path, "empty_array")
    for index, part in enumerate(content):
        where = f"{path}[{index}]"
        if not isinstance(part, Mapping):
            return invalid_parameter(f"'{where}' must be an object", where, "invalid_type")
        known_types = PART_TYPES.get(message["role"], frozenset({"text"}))
        if part.get("type") not in known_types:
            return invalid_parameter(
                f"'{part.get('type')}' is none of {sorted(known_types)}", f"{where}.type", "invalid_value"
            )
        if problem := unknown_key(part, {"type", part["type"]}, where) or _part_field_problem(part, where):
            return problem
    return None


def _part_field_problem(part: Mapping[str, Any], path: str) -> ScriptedFailure | None:
    kind = part["type"]
    value, path = part.get(kind), f"{path}.{kind}"
    if kind not in REQUIRED_PART_FIELDS:
        return None if isinstance(value, str) else invalid_parameter(f"'{path}' must be a string", path, "invalid_type")
    if not isinstance(value, Mapping):
        return invalid_parameter(f"'{path}' must be an object", path, "invalid_type")
    texts = {key for key in REQUIRED_PART_FIELDS[kind] if isinstance(value.get(key), str) and value[key]}
    if texts == REQUIRED_PART_FIELDS[kind] or (kind == "file" and texts):
        return None
    missing = min(REQUIRED_PART_FIELDS[kind] - texts)
    return invalid_parameter(f"'{path}.{missing}' is required", f"{path}.{missing}", "missing_required_parameter")


def _calls_problem(calls: Any, path: str) -> ScriptedFailure | None:
    if calls is None:
        return None
    if not isinstance(calls, list):
        return invalid_parameter(f"'{path}' must be an array", path, "invalid_type")
    if not calls:
        return invalid_parameter(f"'{path}' is an empty array; leave it out instead", path, "empty_array")
    for index, call in enumerate(calls):
        where = f"{path}[{index}]"
        if not isinstance(call, Mapping):
            return invalid_parameter(f"'{where}' must be an object", where, "invalid_type")
        if problem := unknown_key(call, CALL_KEYS, where):
            return problem
        kind, text_key = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
        tool, path_of_tool = call.get(kind), f"{where}.{kind}"
        if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
            return invalid_parameter(f"'{path_of_tool}.name' is required", path_of_tool, "missing_required_parameter")
        if not isinstance(tool.get(text_key), str):
            return invalid_parameter(f"'{path_of_tool}.{text_key}' must be a string", path_of_tool, "invalid_type")
        if problem := tool_name_problem(tool["name"], f"{path_of_tool}.name"):
            return problem
    return None


def tool_name_problem(name: str, path: str) -> ScriptedFailure | None:
    if TOOL_NAME.fullmatch(name):
        return None
    return invalid_parameter(
        f"'{path}': string does not match the pattern '^[a-zA-Z0-9_-]{{1,64}}$'", path, "invalid_value"
    )


def unknown_key(value: Mapping[str, Any], known_keys: Collection[str], path: str) -> ScriptedFailure | None:
    """The error for the first key that OpenAI does not know."""
    for key in value:
        if key not in known_keys:
            param = f"{path}.{key}" if path else key
            return ScriptedFailure(400, f"Unknown parameter: '{param}'.", code="unknown_parameter", param=param)
    return None


def _finding_failure(finding: Finding) -> ScriptedFailure:
    call_id = f" {finding.call_id}" if finding.call_id else ""
    return invalid_parameter(f"{PROBLEM_TEXTS[finding.kind]}{call_id}", f"messages.[{finding.index}].role", None)


def invalid_parameter(message: str, param: str, code: str | None) -> ScriptedFailure:
    return ScriptedFailure(400, f"Invalid parameter: {message}", code=code, param=param)


def model_page(
    name: str, models: tuple[str, ...], created: int, provider: Provider
) -> dict[str, Any] | ScriptedFailure:
    """The list of models, or the model that the path `/name` selects."""
    model_name = name.removeprefix("/")
    if not model_name:
        entries = [_entry(model, created, provider) for model in models]
        if provider == "openai":
            return {"object": "list", "data": entries}
        first, last = (models[0], models[-1]) if models else (None, None)
        return {"data": entries, "has_more": False, "first_id": first, "last_id": last}
    if model_name in models:
        return _entry(model_name, created, provider)
    return ScriptedFailure(404, f"the model '{model_name}' does not exist", code="model_not_found", param="model")


def _entry(model: str, created: int, provider: Provider) -> dict[str, Any]:
    if provider == "openai":
        return {"id": model, "object": "model", "created": created, "owned_by": "minutebook"}
    created_at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "model", "id": model, "display_name": model, "created_at": created_at, "lifecycle": "active"}
