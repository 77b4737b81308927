"""What it costs to keep a conversation: appends, loads and bytes, beside bare databases and the peers' stores."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import UUID

from bench.keepers import (
    LAST,
    LONG,
    OURS,
    RAW,
    RAW_IN_THREAD,
    SHORT,
    WRITERS,
    Effort,
    Said,
    Score,
    contest,
    new_file,
    our_contenders,
)
from bench.peers_env import Peers
from bench.report import Part, Table, Target, progress, time_of, times
from bench.session import coding_session, long_conversation
from minutebook import ConversationEntry, Message, open_store
from minutebook.record.message import text_of
from minutebook.wire.chat import provider_message_to_entry

FULL = Effort(rounds=3, appends=320, warm_seconds=3.0)
QUICK = Effort(rounds=1, appends=160, warm_seconds=1.0, long=10_000)
MILLION = 1_000_000
PLAIN = 1_000
"""How many entries the short conversation beside the longest has."""
TURNS = 10


def measure(peers: Peers, *, quick: bool) -> Part:
    part = Part()
    effort = QUICK if quick else FULL
    scores, remark = _scores(peers, effort, quick=quick)
    _appends(part, scores, remark)
    _loads(part, scores)
    _sizes(part, scores)
    _longest(part, 100_000 if quick else MILLION)
    return part


def said_in(messages: Sequence[Message]) -> list[Said]:
    """The texts of a conversation as plain messages, which every store takes."""
    texts = [(message["role"], text_of(message)) for message in messages]
    return [("user" if role == "user" else "assistant", text) for role, text in texts if text]


def _scores(peers: Peers, effort: Effort, *, quick: bool) -> tuple[list[Score], str]:
    remark = peers.why
    if peers.python is not None:
        progress("store: ours and the peers' in one process")
        try:
            return [Score(**made) for made in json.loads(peers.run("store", "quick" if quick else "full"))], ""
        except Exception as error:
            remark = f"the peers failed: {error}"
    progress("store: ours alone")
    return asyncio.run(contest(our_contenders(), said_in(long_conversation().messages), effort, new_file)), remark


def _appends(part: Part, scores: Sequence[Score], remark: str) -> None:
    good = {score.name: score for score in scores if not score.error}
    raw, ours = good[RAW], good[OURS]
    table = Table(
        f"Store: single messages appended durably, per second (texts of {long_conversation().source})",
        ["SQLite", "1 writer", "/ raw", f"{WRITERS} writers", "/ raw", "refused", "journal, synchronous"],
    )
    for score in scores:
        if score.error:
            table.rows.append([score.name, f"failed: {score.error[:90]}"])
            continue
        rates = (
            f"{score.single:,.0f}",
            times(score.single / raw.single),
            f"{score.many:,.0f}",
            times(score.many / raw.many),
        )
        table.rows.append([score.name, *rates, f"{score.refused:,}", score.durability])
    table.notes = [
        "Each writer awaits each append, and has a conversation of its own; the log is warm, so that it need not grow.",
        "raw sqlite3 is one table, one row and one commit for a message. It is no async store: the loop stands still while",
        "the disk works; in a thread (asyncio.to_thread) it does not.",
    ]
    if remark:
        table.notes.append(f"No peers in this table: {remark}")
    part.tables.append(table)
    part.figures["appends"] = {score.name: score.as_json() for score in scores}
    theirs = {name: score.many for name, score in good.items() if name not in {OURS, RAW, RAW_IN_THREAD}}
    if theirs:
        best = max(theirs, key=lambda name: theirs[name])
        ratio = ours.many / theirs[best]
        what = f"{WRITERS} writers: at least 10 times the appends of the best peer, as durable or more"
        part.targets.append(Target(what, f"{times(ratio)} of {best}", ratio >= 10))
    single, threaded = ours.single / raw.single, ours.single / good[RAW_IN_THREAD].single
    measured = f"{times(single)}; {times(threaded)} of the same in a thread"
    part.targets.append(Target("1 writer: at least 0.9 of raw sqlite3", measured, single >= 0.9))


def _loads(part: Part, scores: Sequence[Score]) -> None:
    table = Table(
        f"Store: the last {LAST} messages",
        ["SQLite", f"of {SHORT:,}", "of many", "many", "long / short"],
    )
    for score in scores:
        if score.loads and not score.error:
            short, long = score.loads.values()
            table.rows.append(
                [score.name, time_of(short), time_of(long), f"{int(list(score.loads)[1]):,}", times(long / short)]
            )
    part.tables.append(table)
    short, long = next(score.loads for score in scores if score.name == OURS).values()
    part.targets.append(
        Target(
            f"the last {LAST} of {LONG:,} messages in at most 1.5 times the time of {SHORT}",
            times(long / short),
            long <= 1.5 * short,
        )
    )


def _sizes(part: Part, scores: Sequence[Score]) -> None:
    """The same plain texts for all; and whole messages, with calls and results, for us."""
    table = Table(
        "Store: bytes on disk over bytes of text, each message appended by itself", ["SQLite", "bytes / text"]
    )
    table.rows = [[score.name, f"{score.size:.2f}"] for score in scores if not score.error]
    recorded = long_conversation().messages
    ours = {
        "a recorded agent session, calls and all": _size(recorded),
        "a made-up agent session of 2,000 messages": _size(coding_session(2_000)),
        "a chat of 1,000 messages of 85 characters": _size(_chat(1_000, 85)),
        "a chat of 1,000 messages of 400 characters": _size(_chat(1_000, 400)),
    }
    table.rows += [[f"minutebook: {what}", f"{ratio:.2f}"] for what, ratio in ours.items()]
    table.notes.append("Ours has the search index in it; the others have none.")
    part.tables.append(table)
    part.figures["bytes_over_text"] = ours
    worst = max(ours, key=lambda what: ours[what])
    part.targets.append(
        Target("bytes on disk at most 1.5 times the text", f"{ours[worst]:.2f} at most: {worst}", ours[worst] <= 1.5)
    )


def _size(messages: Sequence[Message]) -> float:
    async def keep(path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            evaluation = UUID(int=0)
            for number, message in enumerate(messages):
                if message["role"] == "user":
                    evaluation = UUID(int=(7 << 76) + (number << 40) + 123456789)
                entry = _entry(message, evaluation, number)
                await store.append("a", [entry], broken="mark")
            await store.search("anything")  # so that everything is indexed

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(keep(Path(folder) / "chat.db"))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return size / sum(len(text_of(message).encode()) for message in messages)


def _entry(message: Message, evaluation: UUID, number: int) -> ConversationEntry:
    return provider_message_to_entry(message, evaluation_id=evaluation, sequence=number, created_at=datetime.now(UTC))


def _chat(count: int, characters: int) -> list[Message]:
    """Questions and answers of one length, in the words of our made-up sessions."""
    source = " ".join(text_of(message) for message in coding_session(4 * count) if message["role"] != "tool")
    texts = (source[at : at + characters] for at in range(0, count * characters, characters))
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def _longest(part: Part, length: int) -> None:
    """The last turns of the longest conversation beside those of a plain one."""
    taken = asyncio.run(_last_turns(length))
    ratio = taken[length] / taken[PLAIN]
    table = Table(
        f"Store: the last {TURNS} turns",
        ["SQLite, minutebook", "time"],
        [[f"of a conversation of {size:,} entries", time_of(seconds)] for size, seconds in taken.items()],
    )
    part.tables.append(table)
    part.figures["last_turns_seconds"] = {str(size): seconds for size, seconds in taken.items()}
    what = f"the last {TURNS} turns of {length:,} entries in at most 1.5 times the time of {PLAIN:,}"
    part.targets.append(Target(what, times(ratio), ratio <= 1.5))


async def _last_turns(length: int) -> dict[int, float]:
    evaluation, when = UUID(int=7), datetime.now(UTC)
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(f"sqlite:///{folder}/chat.db") as store:
            for size in (PLAIN, length):
                for start in range(0, size, 10_000):
                    if start % 200_000 == 0 and start:
                        progress(f"store: {start:,} of {size:,} entries")
                    roles = ("user", "assistant", "assistant", "assistant", "assistant")
                    batch = [
                        provider_message_to_entry(
                            {"role": roles[at % 5], "content": f"entry {at}"},
                            **{"evaluation_id": evaluation, "sequence": at, "created_at": when},
                        )
                        for at in range(start, min(start + 10_000, size))
                    ]
                    await store.append(f"{size}", batch)
            await store.search("entry", limit=1)  # what was put off is done before the clock runs
            seconds: dict[int, list[float]] = {PLAIN: [], length: []}
            for _ in range(50):
                for size, found in seconds.items():
                    began = perf_counter()
                    loaded = await store.load(f"{size}", last_turns=TURNS)
                    found.append(perf_counter() - began)
                    assert len(loaded.entries) == 5 * TURNS
    return {size: median(found) for size, found in seconds.items()}
