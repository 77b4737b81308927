"""Events of OpenHands, of the first version (actions and observations) and of its SDK (kinds of events)."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, time_of
from minutebook.formats.messages import assistant, call, result, system, user
from minutebook.formats.source import Source, Value

_NOT_SENT: Final = frozenset({"change_agent_state", "recall", "agent_state_changed", "null", "condensation"})
_KINDS: Final = frozenset(
    {"SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "UserRejectObservation"}
)


def _is_old(value: Any) -> bool:
    return has_keys(value, "id", "source") and ("action" in value or "observation" in value)


def matches(value: Any) -> bool:
    if has_keys(value, "history") and isinstance(value["history"], list):
        return bool(value["history"]) and all(map(_is_old, value["history"]))
    if isinstance(value, list):
        return bool(value) and all(map(matches, value))
    return _is_old(value) or (
        has_keys(value, "kind", "source") and str(value["kind"]).endswith(("Event", "Observation"))
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


def _conversation(source: Source, events: list[Value], data: Mapping[str, Any]) -> SourceConversation:
    items: list[SourceMessage] = []
    calls_of: dict[str, SourceMessage] = {}
    for event in events:
        items += _items(event.data, event.place, calls_of)
    name = data.get("instance_id") or source.stem
    return SourceConversation(items=items, id=str(name), created_at=items[0].at if items else None)


def _items(event: Mapping[str, Any], place: str, calls_of: dict[str, SourceMessage]) -> Iterator[SourceMessage]:
    at = time_of(event.get("timestamp"))
    for message, response_id in _new_event(event) if "kind" in event else _old_event(event):
        earlier = calls_of.get(response_id) if response_id else None
        if earlier is not None and message.get("tool_calls"):  # a parallel call of the same response
            earlier.message["tool_calls"].extend(message["tool_calls"])  # built above, not yet shared
            continue
        item = SourceMessage(message, place, at)
        if response_id and message.get("tool_calls"):
            calls_of[response_id] = item
        yield item


def _old_event(event: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
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
        yield (user(text) if event["source"] == "user" else assistant(text)), None
    else:
        response = metadata.get("model_response") or {}
        call_id = metadata.get("tool_call_id", f"event_{event['id']}")
        inputs = {key: value for key, value in arguments.items() if key != "thought"}
        name = metadata.get("function_name", kind)
        yield assistant(str(arguments.get("thought") or ""), [call(call_id, name, inputs)]), response.get("id")


def _new_event(event: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
    kind = event["kind"]
    if kind == "SystemPromptEvent":
        yield system(_text((event.get("system_prompt") or {}).get("text"))), None
    elif kind == "MessageEvent":
        message = event.get("llm_message") or {}
        text = _text(message.get("content"))
        yield (user(text) if message.get("role") == "user" else assistant(text)), None
    elif kind == "ActionEvent":
        used = event.get("tool_call") or {}
        function = used.get("function") or used
        tool_call = call(used.get("id"), function.get("name"), function.get("arguments"))
        yield (
            assistant(_text(event.get("thought")), [tool_call], reasoning=event.get("reasoning_content")),
            event.get("llm_response_id"),
        )
    elif kind in _KINDS:
        observation = event.get("observation") or {}
        text = _text(observation.get("content")) or str(event.get("error") or event.get("rejection_reason") or "")
        yield result(event.get("tool_call_id"), text, is_error=kind != "ObservationEvent"), None


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


FORMAT: Final = Format(name="openhands", title="OpenHands events and trajectories (JSON)", matches=matches, read=read)
