"""The overhead of `AsyncConversation` and `Conversation` over the same writes with the bare store and `view_of`."""

import asyncio
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import uuid4

from bench.report import Part, Table, Target, progress, time_of
from bench.session import coding_session
from minutebook import (
    AsyncConversation,
    Conversation,
    ConversationStore,
    MemoryStore,
    Message,
    TokenBudgetManager,
    Transcript,
    open_store,
    view_of,
)
from minutebook.conversation.requests import request_id
from minutebook.store import NewDocument
from minutebook.store.types import REQUEST_KIND
from minutebook.wire.chat import new_entries

LENGTHS = (100, 1_000)
MAX_TOKENS = 32_000
MAX_OVERHEAD = 0.30
BARE, OBJECT, FACADE = "bare store and view_of", "AsyncConversation", "Conversation"


@dataclass
class Costs:
    """The seconds of each turn of one contender."""

    name: str
    turns: list[float]


def measure(*, quick: bool) -> Part:
    part = Part()
    turns = 20 if quick else 100
    for database in ("SQLite", "memory"):
        table = Table(
            f"Conversation: one turn (append a question, view, append the answer), {database}, median of {turns}",
            ["contender", *(f"{length:,} messages" for length in LENGTHS), *(f"overhead at {n:,}" for n in LENGTHS)],
        )
        seconds_of: dict[str, dict[int, float]] = {BARE: {}, OBJECT: {}, FACADE: {}}
        for length in LENGTHS:
            progress(f"conversation: {database}, {length:,} messages")
            with tempfile.TemporaryDirectory() as folder:
                store = open_store(Path(folder) / "chat.db") if database == "SQLite" else MemoryStore()
                for costs in _measure_turns(store, length, turns):
                    seconds_of[costs.name][length] = median(costs.turns)
        overheads = {
            name: [seconds[length] / seconds_of[BARE][length] - 1 for length in LENGTHS]
            for name, seconds in seconds_of.items()
        }
        table.rows = [
            [name, *map(time_of, seconds.values()), *(f"{overhead:+.0%}" for overhead in overheads[name])]
            for name, seconds in seconds_of.items()
        ]
        table.notes.append(
            "The bare loop writes the same entries and a document of the same size, and views a Transcript."
        )
        part.tables.append(table)
        part.figures[database] = seconds_of
        if database == "SQLite":
            part.targets += [
                Target(
                    f"{name}: at most {MAX_OVERHEAD:.0%} more than the bare store and view_of on SQLite",
                    ", ".join(f"{overhead:+.0%}" for overhead in overheads[name]),
                    max(overheads[name]) <= MAX_OVERHEAD,
                )
                for name in (OBJECT, FACADE)
            ]
    return part


def _measure_turns(store: ConversationStore, length: int, turns: int) -> list[Costs]:
    """Run the contenders in turns on one store, so that they meet the same load of the machine."""
    messages = _chat_messages(length + 2 * turns)
    history, rest = messages[:length], messages[length:]
    with asyncio.Runner() as runner:
        bare = runner.run(_BareLoop.start(store, history))
        chat = runner.run(_chat(store, history))
        sync_chat = Conversation(runner.run(_chat(store, history)).id, store=store, max_tokens=MAX_TOKENS)

        async def take_async_turn(question: Message, answer: Message) -> None:
            await chat.append(question)
            await chat.view()
            await chat.append(answer)

        def take_sync_turn(question: Message, answer: Message) -> float:
            start = perf_counter()
            sync_chat.append(question)
            sync_chat.view()
            sync_chat.append(answer)
            return perf_counter() - start

        takers: dict[str, Callable[[Message, Message], float]] = {
            BARE: lambda question, answer: runner.run(_async_seconds(bare.take_turn, question, answer)),
            OBJECT: lambda question, answer: runner.run(_async_seconds(take_async_turn, question, answer)),
            FACADE: take_sync_turn,
        }
        costs = {name: Costs(name, []) for name in takers}
        order = deque(takers)
        for question, answer in zip(rest[::2], rest[1::2], strict=True):
            order.rotate()  # a turn also waits for what the one before it left to do in the background
            for name in order:
                costs[name].turns.append(takers[name](question, answer))
        runner.run(store.close())
    return list(costs.values())


def _chat_messages(count: int) -> list[Message]:
    """Questions and answers in turns, with the texts of a generated session."""
    texts = [message["content"] for message in coding_session(1_000) if message["role"] in {"user", "assistant"}]
    long_enough = cycle([text for text in texts if text])
    return [{"role": ("user", "assistant")[index % 2], "content": next(long_enough)} for index in range(count)]


async def _chat(store: ConversationStore, history: list[Message]) -> AsyncConversation:
    chat = AsyncConversation(store=store, max_tokens=MAX_TOKENS)
    await chat.append(history)
    await chat.view()
    return chat


async def _async_seconds(
    take_turn: Callable[[Message, Message], Awaitable[None]], question: Message, answer: Message
) -> float:
    start = perf_counter()
    await take_turn(question, answer)
    return perf_counter() - start


class _BareLoop:
    """A conversation without the object: a store, a transcript, and documents that say what was sent."""

    def __init__(self, store: ConversationStore, record: Transcript, minutes: dict[str, object], version: int) -> None:
        self._store, self._record, self._minutes, self._version = store, record, minutes, version
        self._id = str(uuid4())
        self._number = 0
        self._manager = TokenBudgetManager(MAX_TOKENS)

    @classmethod
    async def start(cls, store: ConversationStore, history: list[Message]) -> "_BareLoop":
        chat = await _chat(store, history)
        minutes = await store.document(REQUEST_KIND, request_id(chat.id, 1))
        loop = cls(store, Transcript(history), dict(minutes.body), 0)
        loop._version = await store.append(loop._id, new_entries(history))
        return loop

    async def take_turn(self, question: Message, answer: Message) -> None:
        await self._append(question)
        view = view_of(self._record, self._manager, max_tokens=MAX_TOKENS)
        self._number += 1
        body = {**self._minutes, "number": self._number, "tokens_after": view.tokens}
        document = NewDocument(REQUEST_KIND, request_id(self._id, self._number), body)
        await self._store.put_document(self._id, document)
        await self._append(answer)

    async def _append(self, message: Message) -> None:
        self._version = await self._store.append(self._id, new_entries([message]), expected_version=self._version)
        self._record.append(message)
