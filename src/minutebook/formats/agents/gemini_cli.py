"""Sessions of Gemini CLI: `~/.gemini/tmp/*/chats/session-*.json` or `.jsonl`.

Saved checkpoints (`/chat save`) have contents of Gemini's API in `history`. Those of the first versions are lists of such
contents, which is the format `gemini`.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    items_of,
    list_places,
    time_of,
)
from minutebook.formats.messages import assistant, call, content_of, json_text, result, user
from minutebook.formats.requests.gemini import is_content
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import shape_test, skip_malformed
from minutebook.record.message import call_ids, is_result, result_id
from minutebook.wire.gemini import chat_part

_TYPES: Final = frozenset({"user", "gemini", "info", "error", "warning"})


@shape_test
def _is_message(value: Any) -> bool:
    return has_keys(value, "id", "timestamp", "type") and value["type"] in _TYPES and "uuid" not in value


@shape_test
def matches(value: Any) -> bool:
    if has_keys(value, "sessionId", "projectHash"):
        return True
    if has_keys(value, "history"):
        return bool(value["history"]) and all(map(is_content, value["history"]))
    return (_is_message(value) and "content" in value) or has_keys(value, "$set") or has_keys(value, "$rewindTo")


def read(source: Source) -> Iterator[SourceConversation]:
    header: Mapping[str, Any] = {}
    items_by_id: dict[str, list[SourceMessage]] = {}

    def add(values: Iterable[Value]) -> None:
        for value in values:
            if _is_message(value.data):
                with skip_malformed(source, value.place):
                    items_by_id[str(value.data["id"])] = list(_items(value.data, value.place))
            else:
                source.skip(value.place, "is not a message of a Gemini CLI session")

    for value in source.values():
        if has_keys(value.data, "history") and matches(value.data):
            with skip_malformed(source, value.place):
                for item in items_of(value.data["history"], list_places(value.place, "history")):
                    items_by_id.setdefault(item.place, []).append(item)
            continue
        change = value.data.get("$set") if isinstance(value.data, Mapping) else None
        if has_keys(value.data, "sessionId") or isinstance(change, Mapping):
            header = {**header, **(change or value.data)}
            if "messages" in (change or value.data):
                items_by_id.clear()
                with skip_malformed(source, value.place):
                    add(map(Value, (change or value.data)["messages"], list_places(value.place)))
        elif has_keys(value.data, "$rewindTo"):
            ids = list(items_by_id)
            rewound = str(value.data["$rewindTo"])
            for message_id in ids[ids.index(rewound) if rewound in items_by_id else 0 :]:
                del items_by_id[message_id]
        else:
            add([value])
    items = list(_without_repeated_results(chain.from_iterable(items_by_id.values())))
    model = next((item.model for item in reversed(items) if item.model), None)
    yield SourceConversation(
        items=items,
        id=str(header.get("sessionId") or source.stem),
        is_id_derived=not header.get("sessionId"),
        title=header.get("summary"),
        model=model,
        created_at=time_of(header.get("startTime")),
    )


def _without_repeated_results(items: Iterable[SourceMessage]) -> Iterator[SourceMessage]:
    """The items without results of answered calls. A session may have a result at its call and in the user's message too."""
    answered: set[str] = set()
    for item in items:
        call_id = result_id(item.message) if is_result(item.message) else ""
        if not call_id or call_id not in answered:
            yield item
        answered.add(call_id)
        answered.difference_update(call_ids(item.message))


def _items(message: Mapping[str, Any], place: str) -> Iterator[SourceMessage]:
    at, kind = time_of(message["timestamp"]), message["type"]
    if kind == "user":
        typed_parts, responses = _with_responses(_parts(message.get("content")))
        for response in responses:
            call_id = response[0]["functionResponse"].get("id")
            yield SourceMessage(result(call_id, _response_content(response)), place, at)
        if typed_parts or not responses:
            yield SourceMessage(user(content_of(list(map(_part, typed_parts)), "")), place, at)
    elif kind == "gemini":
        tools = message.get("toolCalls") or ()
        thoughts = [
            f"{thought.get('subject')}: {thought.get('description')}" for thought in message.get("thoughts") or ()
        ]
        calls = [call(tool.get("id"), tool.get("name"), tool.get("args")) for tool in tools]
        answer = assistant(_text(message.get("content")), calls, reasoning="\n".join(thoughts))
        yield SourceMessage(answer, place, at, message.get("model"), _usage(message.get("tokens")))
        for tool in tools:
            if tool.get("status") in {"success", "error", "cancelled"}:
                content = _response_content(_parts(tool.get("result"))) or json_text(tool.get("resultDisplay") or "")
                output = result(tool.get("id"), content, is_error=tool["status"] != "success")
                yield SourceMessage(output, place, time_of(tool.get("timestamp")) or at)


def _with_responses(parts: list[Any]) -> tuple[list[Any], list[list[Any]]]:
    """The parts that the user typed, and those of each function response. An image or a file follows its response."""
    typed_parts: list[Any] = []
    responses: list[list[Any]] = []
    for part in parts:
        if has_keys(part, "functionResponse"):
            responses.append([part])
        else:
            (responses[-1] if responses else typed_parts).append(part)
    return typed_parts, responses


def _parts(content: Any) -> list[Any]:
    """The parts of a content, which is a text, a part or a list of these."""
    if content is None or content == "":
        return []
    return content if isinstance(content, list) else [content]


def _text(content: Any) -> str:
    return "".join(part["text"] if has_keys(part, "text") else json_text(part) for part in _parts(content))


def _part(part: Any) -> dict[str, Any]:
    """The part as a part of a chat message."""
    return chat_part(part) if isinstance(part, Mapping) else {"type": "text", "text": json_text(part)}


def _response_content(responses: list[Any]) -> Any:
    """The content of a result from the parts that were sent to the model."""
    parts: list[dict[str, Any]] = []
    for part in responses:
        if not has_keys(part, "functionResponse"):
            parts.append(_part(part))
            continue
        response = part["functionResponse"].get("response")
        output = response.get("output", response.get("error")) if isinstance(response, Mapping) else None
        parts.append({"type": "text", "text": output if isinstance(output, str) else json_text(response)})
        parts += map(_part, part["functionResponse"].get("parts") or ())
    return content_of(parts)


def _usage(tokens: Any) -> dict[str, Any] | None:
    if not isinstance(tokens, Mapping):
        return None
    return {
        "prompt_tokens": tokens.get("input", 0),
        "completion_tokens": tokens.get("output", 0) + tokens.get("thoughts", 0),
        "prompt_tokens_details": {"cached_tokens": tokens.get("cached", 0)},
        "completion_tokens_details": {"reasoning_tokens": tokens.get("thoughts", 0)},
        "total_tokens": tokens.get("total", 0),
    }


FORMAT: Final = Format(
    name="gemini-cli",
    title="Gemini CLI sessions (~/.gemini/tmp/*/chats/session-*.json)",
    matches=matches,
    read=read,
    provider="gemini",
)
