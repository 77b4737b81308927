"""Chat messages of a view as a client's keyword arguments, without the keys that only minutebook reads."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from minutebook.record.message import Message, leading_system_count, plain_copy, text_of
from minutebook.wire.anthropic import BLOCKS_KEY, PROMPT_DIGEST_KEY, to_anthropic
from minutebook.wire.responses import ITEMS_KEY, message_to_items

OWN_KEYS: Final = frozenset({"kind", "is_error", "interrupted", BLOCKS_KEY, PROMPT_DIGEST_KEY, ITEMS_KEY})
"""Message keys that only minutebook reads. OpenAI rejects messages with unknown keys."""


def openai_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The messages for `client.chat.completions.create`."""
    return [plain_copy({key: value for key, value in message.items() if key not in OWN_KEYS}) for message in messages]


def anthropic_arguments(messages: Sequence[Message]) -> dict[str, Any]:
    """`messages`, and `system` if there is one, for `client.messages.create`."""
    converted = to_anthropic(messages)
    return {"messages": converted.messages, **({"system": converted.system} if converted.system else {})}


def responses_arguments(messages: Sequence[Message]) -> dict[str, Any]:
    """`input`, and `instructions` if there is a system message, for `client.responses.create`."""
    leading = leading_system_count(messages)
    instructions = "\n\n".join(map(text_of, messages[:leading]))
    items = [item for message in messages[leading:] for item in message_to_items(message)]
    return {"input": items, **({"instructions": instructions} if instructions else {})}
