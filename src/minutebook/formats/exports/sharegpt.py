"""ShareGPT data: `conversations` of turns with `from` and `value`, as training sets use them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    list_places,
    read_each,
    text_id,
)
from minutebook.formats.messages import assistant, call, json_text, result, system, user
from minutebook.formats.requests.chat import fact_fields, without_messages
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test, skip_unknown_role
from minutebook.record.message import (
    Message,
    call_arguments,
    call_ids,
    call_names,
    is_result,
    result_id,
    role_of,
    text_of,
)

_USER: Final = frozenset({"human", "user"})
_ASSISTANT: Final = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})
_RESULT: Final = frozenset({"observation", "tool", "function_response"})


@shape_test
def matches(value: Any) -> bool:
    turns = value.get("conversations") if isinstance(value, Mapping) else None
    return isinstance(turns, list) and bool(turns) and all(has_keys(turn, "from", "value") for turn in turns)


def read(source: Source) -> Iterator[SourceConversation]:
    return read_each(source, matches, partial(_conversation, source))


def _conversation(source: Source, value: Mapping[str, Any], place: str) -> SourceConversation:
    items = [SourceMessage(system(value["system"]), f"{place}, system")] if value.get("system") else []
    call_id = ""
    turn_places = list_places(place, "conversations")
    for index, (turn, turn_place) in enumerate(zip(value["conversations"], turn_places, strict=False)):
        speaker = turn["from"]
        if speaker == "function_call":
            call_id = f"call_{index}"
        message = _message(speaker, turn["value"], call_id)
        if message is None:
            skip_unknown_role(source, turn_place, speaker)
        else:
            items.append(SourceMessage(message, turn_place, original=turn))
    data = without_messages(value, "conversations")
    return SourceConversation(items=items, id=text_id(value.get("id")), model=text_id(value.get("model")), data=data)


def _message(speaker: str, value: Any, call_id: str) -> Message | None:
    """The message of a turn; None if the speaker is unknown."""
    text = json_text(value)
    if speaker in _USER:
        return user(text)
    if speaker in _RESULT:
        return result(call_id, text)
    if speaker == "function_call":
        try:
            function = json.loads(text)
        except ValueError:
            function = {}
        function = function if isinstance(function, dict) else {}
        return assistant(None, [call(call_id, function.get("name"), function.get("arguments", text))])
    if speaker in _ASSISTANT:
        return assistant(text)
    return system(text) if speaker == "system" else None


def write(conversation: SourceConversation) -> Any:
    data, items = dict(conversation.data), list(conversation.items)
    if not data:
        return {**fact_fields(conversation), "conversations": list(_turns(conversation.messages))}
    if data.get("system") and items and items[0].message == system(data["system"]):
        del items[0]
    else:
        data.pop("system", None)
    turns = [turn for item in items for turn in _original_turns(item) or _turns([item.message])]
    return {**data, "conversations": turns}


def _original_turns(item: SourceMessage) -> list[Any]:
    """The turn that a message was read from; empty if the message was changed."""
    if item.original is None:
        return []
    call_id = next(iter(call_ids(item.message)), "") or result_id(item.message)
    is_same = _message(item.original["from"], item.original["value"], call_id) == item.message
    return [item.original] if is_same else []


def _turns(messages: Iterable[Message]) -> Iterator[dict[str, str]]:
    """The turns of the messages. Turns have no ids, so each call is written directly before its result."""
    open_calls: list[tuple[str, dict[str, str]]] = []
    for message in messages:
        role, text = role_of(message), text_of(message)
        if is_result(message):
            indexes = [index for index, (call_id, _) in enumerate(open_calls) if call_id == result_id(message)]
            if indexes:
                yield open_calls.pop(indexes[0])[1]
        else:
            yield from (turn for _, turn in open_calls)
            open_calls = list(_calls(message))
        if text or role != "assistant":
            speaker = {"assistant": "gpt", "user": "human", "tool": "observation", "function": "observation"}.get(
                role, "system"
            )
            yield {"from": speaker, "value": text}
    yield from (turn for _, turn in open_calls)


def _calls(message: Message) -> Iterator[tuple[str, dict[str, str]]]:
    """The id and the turn of each call."""
    for call_id, name, arguments in zip(call_ids(message), call_names(message), call_arguments(message), strict=True):
        yield call_id, {"from": "function_call", "value": json_text({"name": name, "arguments": arguments or ""})}


FORMAT: Final = Format(
    name="sharegpt", title="ShareGPT training data (JSON or JSONL)", matches=matches, read=read, write=write
)
