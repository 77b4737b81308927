"""Conversations with tools, and a store that has them."""

from datetime import UTC, datetime
from uuid import UUID

from minutebook.store.memory import MemoryStore
from minutebook.wire.chat import provider_message_to_entry

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def call(call_id, name="search", arguments='{"query": "tea, green or black"}'):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def turn(number, *, words="found it " * 20):
    """A turn with one call: four messages."""
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": None, "tool_calls": [call(f"call_{number}")]},
        {"role": "tool", "tool_call_id": f"call_{number}", "name": "search", "content": f"{number}: {words}"},
        {"role": "assistant", "content": f"answer {number}"},
    ]


def turns(count, **given):
    return [message for number in range(count) for message in turn(number, **given)]


def entries(messages, start=0):
    return [
        provider_message_to_entry(message, evaluation_id=UUID(int=1), sequence=start + at, created_at=NOON)
        for at, message in enumerate(messages)
    ]


async def kept(messages, conversation="c"):
    """A store in memory that has these messages."""
    store = MemoryStore()
    await store.append(conversation, entries(messages))
    return store


def has_tools(messages):
    return any(message["role"] == "tool" or message.get("tool_calls") for message in messages)
