"""Chat messages of a view as a client's keyword arguments, without the keys that only minutebook reads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from minutebook.record.message import Message, has_fold_kind, is_result, leading_system_count, result_id, text_of
from minutebook.record.parts import with_known_parts
from minutebook.record.shapes import encodable_copy
from minutebook.tokens.counter import BLOCKS_KEY, ITEMS_KEY, PATCH_KEY
from minutebook.wire.anthropic import FIELDS_KEY, PROMPT_DIGEST_KEY, START_KEY, to_anthropic
from minutebook.wire.gemini import GEMINI_KEY
from minutebook.wire.responses import message_to_items

FORMAT_KEYS: Final = frozenset({BLOCKS_KEY, PATCH_KEY, START_KEY, PROMPT_DIGEST_KEY, FIELDS_KEY, ITEMS_KEY, GEMINI_KEY})
"""Message keys that store what a chat message cannot express. They are read when the message is written in the
format that it came in."""
_OWN_KEYS: Final = FORMAT_KEYS | {"is_error", "interrupted"}
"""Message keys that only minutebook reads. OpenAI rejects messages with unknown keys."""

_CLIENT_CALLS: Final = frozenset({"computer_call", "local_shell_call", "shell_call", "apply_patch_call"})
"""Types of items of calls that the client executes, and that chat completions do not have."""
_OUTPUT: Final = "_output"
"""The type of an output is the type of its call with this suffix."""


def openai_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages for `client.chat.completions.create`."""
    return [encodable_copy(chat_message(message)) for message in messages]


def chat_message(message: Message) -> Message:
    """The message without own keys. Parts that only the Responses API has are replaced by placeholders."""
    plain = without_own_keys(message)
    return with_known_parts(plain, "openai") if ITEMS_KEY in message else plain


def without_own_keys(message: Message) -> Message:
    """The message without the keys that only minutebook reads; the same object if it has none of them."""
    own_keys = message.keys() & _OWN_KEYS
    if has_fold_kind(message):
        own_keys |= {"kind"}
    return {key: value for key, value in message.items() if key not in own_keys} if own_keys else message


def anthropic_arguments(messages: Sequence[Message], *, as_read: bool = False) -> dict[str, Any]:
    """`messages`, and `system` if there is one, for `client.messages.create`. See `to_anthropic` for `as_read`."""
    converted = to_anthropic(messages, as_read=as_read)
    arguments = {"messages": converted.messages, **({"system": converted.system} if converted.system else {})}
    copy: dict[str, Any] = encodable_copy(arguments)
    return copy


def responses_arguments(messages: Sequence[Message]) -> dict[str, Any]:
    """`input`, and `instructions` if there is a system message, for `client.responses.create`."""
    leading = leading_system_count(messages)
    instructions = "\n\n".join(map(text_of, messages[:leading]))
    items: list[Mapping[str, Any]] = []
    is_custom: dict[str, bool] = {}  # the newest call with an id counts: a later one may have the same id
    for message in messages[leading:]:
        calls = message.get("tool_calls") or ()
        is_custom.update((str(call.get("id")), isinstance(call.get("custom"), Mapping)) for call in calls)
        items += _items(message, answers_custom_call=is_result(message) and is_custom.get(result_id(message), False))
    items = _with_pairs_only(items)
    copy: dict[str, Any] = encodable_copy({"input": items, **({"instructions": instructions} if instructions else {})})
    return copy


def _with_pairs_only(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The items without client calls whose output was cut, and without outputs whose call was cut.

    A chat message cannot express these items, so they are stored with a message next to them, and a manager may leave out
    one of the two messages.
    """
    calls = {item["call_id"] for item in items if item.get("type") in _CLIENT_CALLS and "call_id" in item}
    outputs = {item.get("call_id", item.get("id")) for item in items if str(item.get("type")).endswith(_OUTPUT)}

    def is_paired(item: Mapping[str, Any]) -> bool:
        kind = str(item.get("type"))
        if kind in _CLIENT_CALLS:
            return item.get("call_id") in outputs
        return kind.removesuffix(_OUTPUT) not in _CLIENT_CALLS or item.get("call_id", item.get("id")) in calls

    return list(filter(is_paired, items))


def _items(message: Message, *, answers_custom_call: bool) -> list[dict[str, Any]]:
    """The items of a message. A chat message with only a role and a text is also a valid item, so it is not changed."""
    chat_message = without_own_keys(message)
    has_only_text = chat_message.keys() == {"role", "content"} and isinstance(chat_message["content"], str)
    if has_only_text and ITEMS_KEY not in message:
        return [dict(chat_message)]
    items = message_to_items(message)
    if answers_custom_call:  # a chat result does not have the type of its call
        new_type = {"type": "custom_tool_call_output"}
        return [{**item, **new_type} if item.get("type") == "function_call_output" else item for item in items]
    return items
