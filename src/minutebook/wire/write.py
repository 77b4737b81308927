"""Chat messages of a view as a client's keyword arguments, without the keys that only minutebook reads."""

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    custom_ids = {
        str(call.get("id"))
        for message in messages[leading:]
        for call in message.get("tool_calls") or ()
        if isinstance(call.get("custom"), Mapping)
    }
    items = [item for message in messages[leading:] for item in _items(message, custom_ids)]
    copy: dict[str, Any] = encodable_copy({"input": items, **({"instructions": instructions} if instructions else {})})
    return copy


def _items(message: Message, custom_ids: Collection[str]) -> list[dict[str, Any]]:
    """The items of a message. A chat message with only a role and a text is also a valid item, so it is not changed."""
    chat_message = without_own_keys(message)
    has_only_text = chat_message.keys() == {"role", "content"} and isinstance(chat_message["content"], str)
    if has_only_text and ITEMS_KEY not in message:
        return [dict(chat_message)]
    items = message_to_items(message)
    if is_result(message) and result_id(message) in custom_ids:  # a chat result does not have the type of its call
        return [{**item, "type": "custom_tool_call_output"} if "output" in item else item for item in items]
    return items
