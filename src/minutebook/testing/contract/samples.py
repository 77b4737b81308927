"""Helpers and sample data of the store contract."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final, TypeVar
from uuid import UUID

from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.wire.chat import provider_message_to_entry

E = TypeVar("E", bound=Exception)
Scenario = Callable[[Any, ConversationStore], Coroutine[Any, Any, None]]

SOME_TIME: Final = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def scenario(test: Scenario) -> Callable[[Any, ConversationStore], None]:
    """Turn an async test into a sync one. It gets a new store, which is closed afterwards."""

    @wraps(test)
    def run(self: Any, store: ConversationStore) -> None:
        async def with_store() -> None:
            async with store:
                await test(self, store)

        asyncio.run(with_store())

    return run


async def expect_error(error: type[E], attempt: Awaitable[object]) -> E:
    """Await `attempt` and return the expected error; fail if it is not raised."""
    try:
        result = await attempt
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was expected, but the call returned {result!r}")


def entries_of(messages: Sequence[Message], *, first: int = 0) -> list[ConversationEntry]:
    """The messages as entries of one evaluation."""
    return [
        provider_message_to_entry(message, evaluation_id=UUID(int=7), sequence=number, created_at=SOME_TIME, model="m")
        for number, message in enumerate(messages, first)
    ]


def text_entries(*texts: str, role: str = "user") -> list[ConversationEntry]:
    """One entry per text."""
    return entries_of([{"role": role, "content": text} for text in texts])


def turn(number: int, *, results: int = 2) -> list[ConversationEntry]:
    """One turn: a user message, calls, their results and an answer."""
    ids = [f"call_{number}_{index}" for index in range(results)]
    calls = [{"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call_id in ids]
    return entries_of(
        [
            {"role": "user", "content": f"question {number}"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            *({"role": "tool", "tool_call_id": call_id, "content": f"found {call_id}"} for call_id in ids),
            {"role": "assistant", "content": f"answer {number}"},
        ]
    )


def turns(count: int) -> list[ConversationEntry]:
    """This many turns of five entries: user message, calls, two results, answer."""
    return [entry for number in range(count) for entry in turn(number)]


def summary_fold(name: str, start: int, stop: int, text: str = "") -> Fold:
    """A fold with a one-line summary."""
    shown = {"role": "system", "kind": "summary", "content": text or f"[{name}: entries {start} to {stop}]"}
    return Fold(name, start, stop, (shown,), "for a test")


def cut_fold(name: str, start: int, stop: int) -> Fold:
    """A fold that shows nothing."""
    return Fold(name, start, stop, (), "for a test")


def texts(entries: Sequence[ConversationEntry]) -> list[str | None]:
    return [entry.content for entry in entries]
