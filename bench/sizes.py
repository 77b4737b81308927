"""The size on disk of several kinds of conversations."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

from bench.corpus import conversations, folder
from bench.report import Part, Table, Target, progress
from bench.session import coding_session
from bench.store_adapters import PostgresDatabases, SqliteFiles
from bench.store_contest import DatabaseSource
from minutebook import Message, open_store
from minutebook.errors import InvalidMessage
from minutebook.lab.peers import plain
from minutebook.record.message import text_of
from minutebook.wire.chat import provider_message_to_entry

FILES = ("coding_agents", "customer_service", "long_chat", "multilingual", "terminal")
MAX_CHARACTERS = 2_000_000
"""Maximum number of characters read from a file of the corpus."""


def measure(part: Part, server: str | None) -> None:
    """Measure the size of every kind of conversation, on SQLite and, if there is a server, on PostgreSQL."""
    generated = {
        "generated: an agent session of 2,000 messages": [coding_session(2_000)],
        "generated: a chat of 1,000 messages of 400 characters": [_chat(1_000, 400)],
        "generated: a chat of 10,000 messages of 85 characters": [_chat(10_000, 85)],
        "generated: a chat of 1,000 messages of 85 characters": [_chat(1_000, 85)],
    }
    recorded = {f"recorded: {name}": _read_conversations(name) for name in FILES} if folder() is not None else {}
    databases: dict[str, DatabaseSource] = {"SQLite": SqliteFiles()} | (
        {"PostgreSQL": PostgresDatabases(server)} if server else {}
    )
    table = Table(
        "Store: bytes on disk / bytes of text, with the search index, each turn appended separately",
        ["minutebook", "messages", "characters each", *databases],
    )
    ratios: dict[str, dict[str, float]] = {database: {} for database in databases}
    for what, chats in {**recorded, **generated}.items():
        texts = [text_of(message) for chat in chats for message in chat]
        size = sum(len(text.encode()) for text in texts)
        for database, source in databases.items():
            progress(f"store: bytes of {what}, {database}")
            ratios[database][what] = asyncio.run(measure_stored_bytes(chats, source)) / size
        mean = sum(map(len, texts)) / len(texts)
        shown = [f"{ratios[database][what]:.2f}" for database in databases]
        table.rows.append([what, f"{len(texts):,}", f"{mean:,.0f}", *shown])
    table.notes.append(
        "Text is the content of messages. Names, ids and arguments of calls are stored, but not counted as text."
    )
    if server:
        empty = asyncio.run(measure_stored_bytes([], databases["PostgreSQL"]))
        table.notes.append(f"PostgreSQL: {empty:,} of these bytes are used by an empty database; a page has 8,192.")
    part.tables.append(table)
    part.figures["bytes_over_text"] = ratios
    _add_targets(part, ratios)


def _add_targets(part: Part, ratios: Mapping[str, Mapping[str, float]]) -> None:
    for database, database_ratios in ratios.items():
        for kind in ("recorded", "generated"):
            selected = {what: ratio for what, ratio in database_ratios.items() if what.startswith(kind)}
            if selected:
                worst = max(selected, key=lambda what: selected[what])
                measured = f"{selected[worst]:.2f} ({worst.partition(': ')[2]})"
                what = f"{database}, every {kind} transcript: bytes on disk at most 1.5 times the text"
                part.targets.append(Target(what, measured, selected[worst] <= 1.5))


def _read_conversations(name: str) -> list[list[Message]]:
    """The conversations of a file of the corpus that a store accepts."""
    chats: list[list[Message]] = []
    remaining = MAX_CHARACTERS
    for recorded in conversations(name):
        chat = [plain(message) for message in recorded["messages"]]
        try:
            for message in chat:
                provider_message_to_entry(message, evaluation_id=uuid4(), sequence=0, created_at=datetime.now(UTC))
        except InvalidMessage:
            continue
        chats.append(chat)
        remaining -= sum(len(text_of(message)) for message in chat)
        if remaining <= 0:
            break
    return chats


async def measure_stored_bytes(chats: Iterable[Sequence[Message]], databases: DatabaseSource) -> int:
    """The bytes on disk of conversations, with the search index, each turn appended separately."""
    location = await databases.new()
    try:
        async with open_store(location if "://" in location else f"sqlite:///{location}") as store:
            for number, chat in enumerate(chats):
                for turn in _turns(chat):
                    evaluation, now = uuid4(), datetime.now(UTC)
                    entries = [
                        provider_message_to_entry(message, evaluation_id=evaluation, sequence=sequence, created_at=now)
                        for sequence, message in enumerate(turn)
                    ]
                    await store.append(f"chat {number}", entries, broken="mark")
        return await databases.size(location)
    finally:
        await databases.remove(location)


def _turns(chat: Sequence[Message]) -> list[list[Message]]:
    """The turns of a conversation: a user message and all messages up to the next."""
    turns: list[list[Message]] = [[]]
    for message in chat:
        if message["role"] == "user":
            turns.append([])
        turns[-1].append(message)
    return [turn for turn in turns if turn]


def _chat(count: int, characters: int) -> list[Message]:
    """Questions and answers of one length, in the words of the generated sessions."""
    source = " ".join(text_of(message) for message in coding_session(8 * count) if message["role"] != "tool")
    texts = (source[number * characters % (len(source) - characters) :][:characters] for number in range(count))
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
