"""Trajectories of SWE-agent and of mini-swe-agent (`.traj`, `.traj.json`)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    items_of,
    list_places,
    read_each,
    text_id,
    time_of,
)
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test


def _history(value: Mapping[str, Any]) -> Any:
    return value.get("history") if "trajectory" in value else value.get("messages")


@shape_test
def matches(value: Any) -> bool:
    is_mini = has_keys(value, "messages", "info") and (
        "mini-swe-agent" in str(value.get("trajectory_format"))
        or has_keys(value["info"], "model_stats")
        or has_keys(value["info"], "exit_status")
    )
    is_full = has_keys(value, "trajectory", "history", "info")
    return (
        (is_mini or is_full)
        and isinstance(_history(value), list)
        and all(has_keys(step, "role") or has_keys(step, "output") for step in _history(value))
    )


def read(source: Source) -> Iterator[SourceConversation]:
    def conversation(value: Mapping[str, Any], place: str) -> SourceConversation:
        list_name = "history" if "trajectory" in value else "messages"
        history = _history(value)
        steps = dict(zip(list_places(place, list_name), history, strict=False))  # by place
        sent = {step_place: step for step_place, step in steps.items() if step.get("role") != "exit"}
        items = [
            _with_step_data(item, steps.pop(item.place, {})) for item in items_of(map(_message, sent.values()), sent)
        ]
        config = (value["info"].get("config") or {}).get("model") or {}
        own_id = text_id(value.get("instance_id"))
        return SourceConversation(
            items=items,
            id=own_id or source.stem,
            is_id_derived=own_id is None,
            model=config.get("model_name") if isinstance(config, Mapping) else None,
            created_at=next((item.at for item in items if item.at), None),
        )

    return read_each(source, matches, conversation)


def _with_step_data(item: SourceMessage, step: Mapping[str, Any]) -> SourceMessage:
    """The message with the time, model and usage of its step."""
    extra = step.get("extra") or {}
    response = step if "output" in step and "role" not in step else extra.get("response") or {}
    at = time_of(extra.get("timestamp", step.get("timestamp")))
    is_answer = item.message.get("role") == "assistant"
    return replace(item, at=at, model=response.get("model"), usage=response.get("usage") if is_answer else None)


def _message(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """The chat message of a step, without the fields that only the program uses. Steps may also be Responses items."""
    if "role" not in step:
        return {key: value for key, value in step.items() if key != "extra"}
    message = {
        key: step[key] for key in ("role", "content", "tool_calls", "tool_call_id", "name") if step.get(key) is not None
    }
    if step["role"] == "tool" and "tool_call_id" not in message:
        message["tool_call_id"] = next(iter(step.get("tool_call_ids") or ()), "")
    if step.get("thought") and step["role"] == "assistant":
        message["reasoning_content"] = step["thought"] if step.get("thought") != step.get("content") else None
    if reasoning := step.get("reasoning_content"):
        message["reasoning_content"] = reasoning
    message.setdefault("content", None if message.get("tool_calls") else "")
    return {key: value for key, value in message.items() if value is not None or key == "content"}


FORMAT: Final = Format(
    name="swe-agent", title="SWE-agent and mini-swe-agent trajectories (.traj, .traj.json)", matches=matches, read=read
)
