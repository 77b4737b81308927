"""OpenAI's Responses API: the rules for requests, and responses, streamed or not.

Nothing is stored, so `previous_response_id` and references to items are always rejected. Like the rules for Anthropic, these
rules do not use `minutebook.check`, so that tests can compare the two.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from minutebook.testing.provider.openai import (
    finish_reason,
    invalid_parameter,
    pieces,
    tool_name_problem,
    unknown_key,
    words,
)
from minutebook.testing.provider.usage import AnswerUsage
from minutebook.testing.script import CallPart, ScriptedAnswer, ScriptedFailure, TextPart, ThinkingPart

BODY_FIELDS: Final = frozenset(
    {
        *("background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens"),
        *("max_tool_calls", "metadata", "model", "parallel_tool_calls", "previous_response_id", "prompt"),
        *("prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store"),
        *("stream", "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p"),
        *("truncation", "user"),
    }
)
ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
INPUT_PARTS: Final[dict[str, frozenset[str]]] = {
    "input_text": frozenset({"type", "text"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail"}),
    "input_file": frozenset({"type", "file_data", "file_id", "file_url", "filename"}),
}
OUTPUT_PARTS: Final[dict[str, frozenset[str]]] = {
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
}
ITEM_FIELDS: Final[dict[str, dict[str, type | tuple[type, ...] | None]]] = {
    "message": {"role": str, "content": (str, list), "phase": None},
    "function_call": {"call_id": str, "name": str, "arguments": str, "namespace": None},
    "function_call_output": {"call_id": str, "output": (str, list)},
    "custom_tool_call": {"call_id": str, "name": str, "input": str, "namespace": None},
    "custom_tool_call_output": {"call_id": str, "output": (str, list)},
    "reasoning": {"summary": list, "content": None, "encrypted_content": None},
}
"""The fields of items and their types; None for an optional field. `type`, `id` and `status` are always optional."""
HOSTED_ITEMS: Final = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "compaction"),
        *("mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
    }
)
"""Types of items that are not checked."""
CLIENT_CALLS: Final = frozenset({"computer_call", "local_shell_call", "shell_call", "apply_patch_call"})
"""Types of calls of which only the pairing with their outputs is checked."""
CALL_TYPES: Final = CLIENT_CALLS | {"function_call", "custom_tool_call"}
OUTPUT_SUFFIX: Final = "_output"


def responses_problem(body: Mapping[str, Any]) -> ScriptedFailure | None:
    """The first problem for which OpenAI would return status 400."""
    if problem := unknown_key(body, BODY_FIELDS, ""):
        return problem
    if not isinstance(body.get("model"), str):
        return invalid_parameter("you must provide a model parameter", "model", "missing_required_parameter")
    if (response_id := body.get("previous_response_id")) is not None:
        problem_text = f"Previous response with id '{response_id}' not found."
        return ScriptedFailure(400, problem_text, code="previous_response_not_found", param="previous_response_id")
    if not isinstance(body.get("instructions"), str | None):
        return invalid_parameter("'instructions' must be a string", "instructions", "invalid_type")
    input_items = body.get("input")
    if isinstance(input_items, str):
        return None
    if not isinstance(input_items, list):
        return invalid_parameter("'input' must be a string or an array", "input", "invalid_type")
    if not input_items:
        return invalid_parameter("'input' is an empty array", "input", "empty_array")
    for index, item in enumerate(input_items):
        if problem := _item_problem(item, f"input[{index}]"):
            return problem
    return _pairing_problem(input_items) or _reasoning_problem(input_items)


def _item_problem(item: Any, path: str) -> ScriptedFailure | None:
    if not isinstance(item, Mapping):
        return invalid_parameter(f"'{path}' must be an object", path, "invalid_type")
    kind = type_of(item)
    if kind in HOSTED_ITEMS or kind.removesuffix(OUTPUT_SUFFIX) in CLIENT_CALLS:
        return None
    if kind not in ITEM_FIELDS:
        supported = sorted({*ITEM_FIELDS, *HOSTED_ITEMS, *CLIENT_CALLS})
        return invalid_parameter(f"'{kind}' is none of {supported}", f"{path}.type", "invalid_value")
    fields = ITEM_FIELDS[kind]
    if problem := unknown_key(item, {"type", "id", "status", *fields}, path):
        return problem
    for key, expected in fields.items():
        if expected is not None and not isinstance(item.get(key), expected):
            return invalid_parameter(f"'{path}.{key}' is required", f"{path}.{key}", "missing_required_parameter")
    if "name" in fields and (problem := tool_name_problem(item["name"], f"{path}.name")):
        return problem
    if kind == "message":
        if item["role"] not in ROLES:
            return invalid_parameter(f"'{item['role']}' is none of {sorted(ROLES)}", f"{path}.role", "invalid_value")
        known_parts = OUTPUT_PARTS if item["role"] == "assistant" else INPUT_PARTS
        return _parts_problem(item["content"], known_parts, f"{path}.content")
    return _parts_problem(item.get("output"), INPUT_PARTS, f"{path}.output")


def _parts_problem(parts: Any, known_parts: Mapping[str, frozenset[str]], path: str) -> ScriptedFailure | None:
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        where = f"{path}[{index}]"
        kind = str(part.get("type")) if isinstance(part, Mapping) else ""
        if kind not in known_parts:
            return invalid_parameter(f"'{kind}' is none of {sorted(known_parts)}", f"{where}.type", "invalid_value")
        if problem := unknown_key(part, known_parts[kind], where):
            return problem
        text_key = "refusal" if kind == "refusal" else "text"
        if text_key in known_parts[kind] and not isinstance(part.get(text_key), str):
            param = f"{where}.{text_key}"
            return invalid_parameter(f"'{param}' is required", param, "missing_required_parameter")
    return None


def _pairing_problem(items: Sequence[Mapping[str, Any]]) -> ScriptedFailure | None:
    """The first violation of: every call has one output, after it."""
    open_calls: dict[str, str] = {}
    for item in items:
        kind = type_of(item)
        if kind in CALL_TYPES:
            open_calls[item["call_id"]] = kind
        elif kind.removesuffix(OUTPUT_SUFFIX) in CALL_TYPES:
            call_id = item.get("call_id", item.get("id"))  # a local shell output may have the call's id under `id`
            if open_calls.get(call_id) != kind.removesuffix(OUTPUT_SUFFIX):
                problem = f"No tool call found for {kind.replace('_', ' ')} with call_id {call_id}."
                return ScriptedFailure(400, problem, param="input")
            del open_calls[call_id]
    for call_id, kind in open_calls.items():
        return ScriptedFailure(400, f"No tool output found for {kind.replace('_', ' ')} {call_id}.", param="input")
    return None


def _reasoning_problem(items: Sequence[Mapping[str, Any]]) -> ScriptedFailure | None:
    """The first reasoning item that is not followed by an item of the same answer."""
    for item, following in zip(items, [*items[1:], {}], strict=True):
        ends_answer = type_of(following).endswith(OUTPUT_SUFFIX) or following.get("role", "assistant") != "assistant"
        if type_of(item) == "reasoning" and "id" in item and (not following or ends_answer):
            problem = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            return ScriptedFailure(400, problem, param="input")
    return None


def type_of(item: Mapping[str, Any]) -> str:
    """The item's type, which a message may leave out."""
    kind = item.get("type", "message" if "role" in item else None)
    return kind if isinstance(kind, str) else ""


def response(
    answer: ScriptedAnswer, usage: AnswerUsage, request: Mapping[str, Any], number: int, created: int
) -> dict[str, Any]:
    """A `response` that has ended."""
    finish = finish_reason(answer)
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(finish)
    return {
        **_head(request, number, created),
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output_items(answer, number),
        "usage": {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.completion,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.prompt + usage.completion,
        },
    }


def _head(request: Mapping[str, Any], number: int, created: int) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "metadata": request.get("metadata") or {},
        "model": request["model"],
        "output": [],
        "parallel_tool_calls": True,
        "temperature": request.get("temperature"),
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools") or [],
        "top_p": request.get("top_p"),
        "usage": None,
    }


def output_items(answer: ScriptedAnswer, number: int) -> list[dict[str, Any]]:
    """The items of an answer, in the order of its parts. A refusal is a separate message."""
    items = [_item(part, f"{number}_{index}") for index, part in enumerate(answer.parts)]
    if answer.refusal is not None:
        content = [{"type": "refusal", "refusal": answer.refusal}]
        items.append({**_message_head(f"{number}_{len(items)}"), "content": content})
    return items


def _message_head(number: str) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}


def _item(part: TextPart | ThinkingPart | CallPart, number: str) -> dict[str, Any]:
    if isinstance(part, TextPart):
        content = [{"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}]
        return {**_message_head(number), "content": content}
    if isinstance(part, ThinkingPart):
        return {"id": f"rs_{number}", "type": "reasoning", "summary": [{"type": "summary_text", "text": part.text}]}
    call = {"call_id": part.call_id, "name": part.tool, "arguments": part.arguments}
    return {"id": f"fc_{number}", "type": "function_call", "status": "completed", **call}


class ResponseStream:
    """Numbers and formats the events of one streamed response. A stream that ends with an error has no final event."""

    def __init__(self) -> None:
        self._number = 0

    def events(
        self, answer: ScriptedAnswer, usage: AnswerUsage, request: Mapping[str, Any], number: int, created: int
    ) -> Iterator[str]:
        head, final = _head(request, number, created), response(answer, usage, request, number, created)
        yield self.event("response.created", response=head)
        yield self.event("response.in_progress", response=head)
        for index, item in enumerate(final["output"]):
            yield from self._item_events(index, item)
        if answer.failure is None:
            yield self.event(f"response.{final['status']}", response=final)

    def event(self, kind: str, **fields: Any) -> str:
        """One event with the next sequence number."""
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return f"event: {kind}\ndata: {json.dumps(body, ensure_ascii=False)}\n\n"

    def _item_events(self, index: int, item: Mapping[str, Any]) -> Iterator[str]:
        empty: dict[str, dict[str, Any]] = {
            "message": {"content": []},
            "function_call": {"arguments": ""},
            "reasoning": {"summary": []},
        }
        announced = {**item, **empty[item["type"]], **({"status": "in_progress"} if "status" in item else {})}
        yield self.event("response.output_item.added", output_index=index, item=announced)
        where = {"item_id": item["id"], "output_index": index}
        if item["type"] == "function_call":
            arguments = item["arguments"]
            for piece in pieces(arguments):
                yield self.event("response.function_call_arguments.delta", **where, delta=piece)
            done = {"name": item["name"], "arguments": arguments}
            yield self.event("response.function_call_arguments.done", **where, **done)
        elif item["type"] == "reasoning":
            yield from self._part_events("reasoning_summary_text", {**where, "summary_index": 0}, item["summary"][0])
        else:
            part = item["content"][0]
            name = "refusal" if part["type"] == "refusal" else "output_text"
            yield from self._part_events(name, {**where, "content_index": 0}, part)
        yield self.event("response.output_item.done", output_index=index, item=item)

    def _part_events(self, name: str, where: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[str]:
        part_name = "reasoning_summary_part" if name.startswith("reasoning") else "content_part"
        key = "refusal" if name == "refusal" else "text"
        logprobs: dict[str, Any] = {"logprobs": []} if name == "output_text" else {}
        yield self.event(f"response.{part_name}.added", **where, part={**part, key: ""})
        for word in words(part[key]):
            yield self.event(f"response.{name}.delta", **where, delta=word, **logprobs)
        yield self.event(f"response.{name}.done", **where, **{key: part[key]}, **logprobs)
        yield self.event(f"response.{part_name}.done", **where, part=part)
