"""Events of OpenHands, of the first version (actions and observations) and of its SDK (kinds of events)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, time_of
from minutebook.formats.messages import assistant, call, content_of, image_at, json_text, result, system, user
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import shape_test, skip_malformed, skip_unknown_role

_NOT_SENT: Final = frozenset({"change_agent_state", "recall", "agent_state_changed", "null", "condensation"})
"""Actions and observations that are recorded but not sent to the model."""
_SDK_KINDS: Final = frozenset(
    {"SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "UserRejectObservation"}
)
_SDK_KINDS_NOT_SENT: Final = frozenset(
    {"PauseEvent", "Condensation", "CondensationEvent", "CondensationRequest", "CondensationSummaryEvent"}
    | {"ConversationStateUpdateEvent", "ConversationErrorEvent", "LLMCompletionLogEvent", "TokenEvent"}
)


def _is_first_version(value: Any) -> bool:
    return has_keys(value, "id", "source") and ("action" in value or "observation" in value)


@shape_test
def matches(value: Any) -> bool:
    if has_keys(value, "history") and isinstance(value["history"], list):
        return bool(value["history"]) and all(map(_is_first_version, value["history"]))
    if isinstance(value, list):
        return bool(value) and all(map(matches, value))
    return _is_first_version(value) or (
        has_keys(value, "kind", "source")
        and (value["kind"] in _SDK_KINDS_NOT_SENT or str(value["kind"]).endswith(("Event", "Observation")))
    )


def read(source: Source) -> Iterator[SourceConversation]:
    events: list[Value] = []
    for value in source.values():
        if has_keys(value.data, "history"):
            yield _conversation(
                source,
                [Value(event, f"{value.place}, history[{index}]") for index, event in enumerate(value.data["history"])],
                value.data,
            )
        elif matches(value.data):
            events.append(value)
        else:
            source.skip(value.place, "is not an OpenHands event")
    if events:
        yield _conversation(source, events, {})


def _conversation(source: Source, events: list[Value], trajectory: Mapping[str, Any]) -> SourceConversation:
    items: list[SourceMessage] = []
    items_with_calls: dict[str, SourceMessage] = {}
    for event in events:
        with skip_malformed(source, event.place):
            items += list(_items(source, event.data, event.place, items_with_calls))
    own_id = trajectory.get("instance_id")
    return SourceConversation(
        items=items,
        id=str(own_id or source.stem),
        is_id_derived=not own_id,
        created_at=items[0].at if items else None,
    )


def _items(
    source: Source, event: Mapping[str, Any], place: str, items_with_calls: dict[str, SourceMessage]
) -> Iterator[SourceMessage]:
    """The messages of an event. `items_with_calls` has the messages with tool calls so far, by the id of the response."""
    at = time_of(event.get("timestamp"))
    if "kind" in event and event["kind"] not in _SDK_KINDS | _SDK_KINDS_NOT_SENT:
        source.skip(place, f"is an event of the unknown kind {event['kind']!r}")
        return
    if (event.get("llm_message") or {}).get("role", "user") not in {"user", "assistant"}:
        skip_unknown_role(source, place, event["llm_message"]["role"])
        return
    for message, response_id in _sdk_messages(event) if "kind" in event else _first_version_messages(event):
        earlier = items_with_calls.get(response_id) if response_id else None
        if earlier is not None and message.get("tool_calls"):  # a parallel call of the same response
            earlier.message["tool_calls"].extend(message["tool_calls"])
            continue
        response = (event.get("tool_call_metadata") or {}).get("model_response") or {}
        if message["role"] != "assistant":
            response = {}
        item = SourceMessage(message, place, at, response.get("model"), response.get("usage"))
        if response_id and message.get("tool_calls"):
            items_with_calls[response_id] = item
        yield item


def _first_version_messages(event: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The messages of an action or observation, with the id of the model's response if there is one."""
    metadata = event.get("tool_call_metadata") or {}
    arguments = event.get("args") or {}
    kind = event.get("action", event.get("observation"))
    if kind in _NOT_SENT or kind is None:
        return
    if "observation" in event:
        call_id = metadata.get("tool_call_id", f"event_{event.get('cause')}")
        yield result(call_id, str(event.get("content") or "")), None
    elif kind == "system":
        yield system(str(arguments.get("content") or "")), None
    elif kind == "message" or (kind == "finish" and not metadata):
        text = str(arguments.get("content") or arguments.get("final_thought") or event.get("message") or "")
        images = [image_at(str(url)) for url in arguments.get("image_urls") or ()]
        content = [{"type": "text", "text": text}, *images] if images else text
        yield (user(content) if event["source"] == "user" else assistant(text)), None
    else:
        response = metadata.get("model_response") or {}
        call_id = metadata.get("tool_call_id", f"event_{event['id']}")
        inputs = {key: value for key, value in arguments.items() if key != "thought"}
        name = metadata.get("function_name", kind)
        recorded = [
            tool_call
            for choice in response.get("choices") or ()
            for tool_call in (choice.get("message") or {}).get("tool_calls") or ()
            if tool_call.get("id") == call_id
        ]
        tool_call = recorded[0].get("function") or {} if recorded else {"name": name, "arguments": inputs}
        tool_call = call(call_id, tool_call.get("name"), tool_call.get("arguments"))
        yield assistant(str(arguments.get("thought") or ""), [tool_call]), response.get("id")


def _sdk_messages(event: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The messages of an event of the SDK, with the id of the model's response if there is one."""
    kind = event["kind"]
    if kind == "SystemPromptEvent":
        yield system(_text((event.get("system_prompt") or {}).get("text"))), None
    elif kind == "MessageEvent":
        message = event.get("llm_message") or {}
        content = _content([*_parts(message.get("content")), *(event.get("extended_content") or ())])
        text = _text(message.get("content"))
        reasoning = message.get("reasoning_content")
        yield (user(content) if message.get("role") == "user" else assistant(text, reasoning=reasoning)), None
    elif kind == "ActionEvent":
        recorded_call = event.get("tool_call") or {}
        function = recorded_call.get("function") or recorded_call
        tool_call = call(recorded_call.get("id"), function.get("name"), function.get("arguments"))
        yield (
            assistant(_text(event.get("thought")), [tool_call], reasoning=event.get("reasoning_content")),
            event.get("llm_response_id"),
        )
    elif kind in _SDK_KINDS:  # the others are results
        observation = event.get("observation") or {}
        content = _content(_parts(observation.get("content")))
        content = content or str(event.get("error") or event.get("rejection_reason") or "")
        is_error = kind != "ObservationEvent" or bool(observation.get("is_error"))
        yield result(event.get("tool_call_id"), content, is_error=is_error), None


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content] if content else []


def _content(parts: list[Any]) -> Any:
    """The parts as the content of a chat message."""
    chat_parts: list[dict[str, Any]] = []
    for part in parts:
        if has_keys(part, "image_urls"):
            chat_parts += [image_at(str(url)) for url in part["image_urls"]]
        else:
            chat_parts.append({"type": "text", "text": part["text"] if has_keys(part, "text") else json_text(part)})
    return content_of(chat_parts)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] if has_keys(part, "text") else json_text(part) for part in content)
    return content if isinstance(content, str) else ""


FORMAT: Final = Format(name="openhands", title="OpenHands events and trajectories (JSON)", matches=matches, read=read)
