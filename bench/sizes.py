"""What a conversation takes on disk, for every kind of transcript that we have."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from uuid import uuid4

from bench.corpus import conversations, folder
from bench.keepers import Databases, Files
from bench.keeping import Places
from bench.replay import plain
from bench.report import Part, Table, Target, progress
from bench.session import coding_session
from minutebook import Message, open_store
from minutebook.errors import InvalidMessage
from minutebook.record.message import text_of
from minutebook.wire.chat import provider_message_to_entry

FILES = ("coding_agents", "customer_service", "long_chat", "multilingual", "terminal")
MOST = 2_000_000
"""How much text of a file is read."""


def measure(part: Part, server: str | None) -> None:
    """The bytes of every kind of transcript, in a file and, if there is one, on a server."""
    made = {
        "made up: an agent session of 2,000 messages": [coding_session(2_000)],
        "made up: a chat of 1,000 messages of 400 characters": [_chat(1_000, 400)],
        "made up: a chat of 10,000 messages of 85 characters": [_chat(10_000, 85)],
        "made up: a chat of 1,000 messages of 85 characters": [_chat(1_000, 85)],
    }
    found = {f"recorded: {name}": _recorded(name) for name in FILES} if folder() is not None else {}
    places: dict[str, Places] = {"SQLite": Files()} | ({"PostgreSQL": Databases(server)} if server else {})
    table = Table(
        "Store: bytes on disk over bytes of text, search index and all, each exchange appended by itself",
        ["minutebook", "messages", "characters each", *places],
    )
    ratios: dict[str, dict[str, float]] = {database: {} for database in places}
    for what, chats in {**found, **made}.items():
        texts = [text_of(message) for chat in chats for message in chat]
        size = sum(len(text.encode()) for text in texts)
        for database, where in places.items():
            progress(f"store: bytes of {what}, {database}")
            ratios[database][what] = asyncio.run(stored_bytes(chats, where)) / size
        mean = sum(map(len, texts)) / len(texts)
        shown = [f"{ratios[database][what]:.2f}" for database in places]
        table.rows.append([what, f"{len(texts):,}", f"{mean:,.0f}", *shown])
    table.notes.append(
        "Text is what was said; the names, ids and arguments of calls are stored too, and not counted as text."
    )
    if server:
        empty = asyncio.run(stored_bytes([], places["PostgreSQL"]))
        table.notes.append(
            f"PostgreSQL: {empty:,} of these bytes are there before the first message; a page has 8,192."
        )
    part.tables.append(table)
    part.figures["bytes_over_text"] = ratios
    _judge(part, ratios)


def _judge(part: Part, ratios: Mapping[str, Mapping[str, float]]) -> None:
    for database, all_of_them in ratios.items():
        for kind in ("recorded", "made up"):
            mine = {what: ratio for what, ratio in all_of_them.items() if what.startswith(kind)}
            if mine:
                worst = max(mine, key=lambda what: mine[what])
                said = f"{mine[worst]:.2f} ({worst.partition(': ')[2]})"
                what = f"{database}, every {kind} transcript: bytes on disk at most 1.5 times the text"
                part.targets.append(Target(what, said, mine[worst] <= 1.5))


def _recorded(name: str) -> list[list[Message]]:
    """Conversations of a file, as far as they are made of messages that a store takes."""
    chats: list[list[Message]] = []
    left = MOST
    for recorded in conversations(name):
        chat = [plain(message) for message in recorded["messages"]]
        try:
            for message in chat:
                provider_message_to_entry(message, evaluation_id=uuid4(), sequence=0, created_at=datetime.now(UTC))
        except InvalidMessage:
            continue
        chats.append(chat)
        left -= sum(len(text_of(message)) for message in chat)
        if left <= 0:
            break
    return chats


async def stored_bytes(chats: Iterable[Sequence[Message]], places: Places) -> int:
    """What conversations take on disk, search index and all, each turn appended by itself."""
    place = await places.new()
    try:
        async with open_store(place if "://" in place else f"sqlite:///{place}") as store:
            for number, chat in enumerate(chats):
                for turn in _turns(chat):
                    evaluation, when = uuid4(), datetime.now(UTC)
                    entries = [
                        provider_message_to_entry(message, evaluation_id=evaluation, sequence=at, created_at=when)
                        for at, message in enumerate(turn)
                    ]
                    await store.append(f"chat {number}", entries, broken="mark")
            await store.search("anything")  # so that everything is indexed
        return await places.size(place)
    finally:
        await places.remove(place)


def _turns(chat: Sequence[Message]) -> list[list[Message]]:
    """What an evaluation adds: a user message and what follows it."""
    turns: list[list[Message]] = [[]]
    for message in chat:
        if message["role"] == "user":
            turns.append([])
        turns[-1].append(message)
    return [turn for turn in turns if turn]


def _chat(count: int, characters: int) -> list[Message]:
    """Questions and answers of one length, in the words of our made-up sessions."""
    source = " ".join(text_of(message) for message in coding_session(8 * count) if message["role"] != "tool")
    texts = (source[at * characters % (len(source) - characters) :][:characters] for at in range(count))
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
