"""The cost of storing a conversation: appends, loads and bytes, compared with plain databases and the peers' stores."""

import asyncio
import json
from collections.abc import Sequence
from statistics import median

from bench import last_turns, sizes
from bench.peers_env import Peers
from bench.report import Part, Table, Target, progress, time_of, times
from bench.session import long_conversation
from bench.store_adapters import (
    GROUPED_INSERTS,
    OURS,
    OURS_WITHOUT_SEARCH,
    RAW,
    RAW_IN_THREAD,
    RAW_POSTGRES,
    SYNCED_FILE,
    PostgresDatabases,
    SqliteFiles,
    our_contenders,
)
from bench.store_contest import LAST, SHORT, WRITERS, Contender, Effort, Score, TextMessage, contest, ratio
from minutebook import Message
from minutebook.record.message import text_of
from torture.server import Unsupported, postgres

EFFORTS = {
    "full": Effort(turns=24),
    "quick": Effort(turns=8, warm_seconds=5.0, long=10_000),
}
BOUNDS = {RAW: SYNCED_FILE, RAW_POSTGRES: GROUPED_INSERTS}
"""Plain database → an upper bound for the appends of a store on it."""
LOAD_TARGETS = {"SQLiteSession": 1.5, RAW_POSTGRES: 3}
"""Start of a contender's name → maximum ratio of our load time to its load time."""
BARE = {OURS_WITHOUT_SEARCH, RAW, RAW_IN_THREAD, RAW_POSTGRES, *BOUNDS.values()}


def measure(peers: Peers, *, quick: bool) -> Part:
    part = Part()
    effort = "quick" if quick else "full"
    scores, remark = _measure_scores(peers, effort, None)
    _add_tables(part, "SQLite", scores, remark, RAW)
    try:
        with postgres("wal_recycle=on") as server:
            scores, remark = _measure_scores(peers, effort, server.url())
            _add_tables(part, "PostgreSQL", scores, remark, RAW_POSTGRES)
            sizes.measure(part, server.url())
    except Unsupported as reason:
        part.tables.append(Table(f"Store: PostgreSQL was skipped: {reason}", []))
        sizes.measure(part, None)
    last_turns.measure(part, quick=quick)
    return part


def run_contest(contenders: Sequence[Contender], effort: str, server: str | None) -> list[Score]:
    """Measure the contenders on SQLite files, or on a PostgreSQL server."""
    databases = PostgresDatabases(server) if server else SqliteFiles()
    return asyncio.run(contest(contenders, _text_messages(long_conversation().messages), EFFORTS[effort], databases))


def _text_messages(messages: Sequence[Message]) -> list[TextMessage]:
    """The texts of a conversation as plain messages, which every store accepts."""
    texts = [(message["role"], text_of(message)) for message in messages]
    return [("user" if role == "user" else "assistant", text) for role, text in texts if text]


def _measure_scores(peers: Peers, effort: str, server: str | None) -> tuple[list[Score], str]:
    remark = peers.missing_reason
    if peers.python is not None:
        progress("store: ours and the peers', in one process")
        try:
            scores = peers.run("store", effort, *([server] if server else []))
            return [Score(**fields) for fields in json.loads(scores)], ""
        except Exception as error:
            remark = f"the peers failed: {error}"
    progress("store: only ours")
    return run_contest(our_contenders(server=bool(server)), effort, server), remark


def _add_tables(part: Part, database: str, scores: Sequence[Score], remark: str, bare: str) -> None:
    good = {score.name: score for score in scores if not score.error}
    _add_append_table(part, database, scores, good[bare])
    _add_load_table(part, database, good, bare)
    if remark:
        part.tables[-1].notes.append(f"No peers on {database}: {remark}")
    part.figures[database] = {score.name: score.as_json() for score in scores}
    _add_targets(part, database, good, bare)


def _add_append_table(part: Part, database: str, scores: Sequence[Score], bare: Score) -> None:
    table = Table(
        f"Store: single messages appended durably, per second (texts of {long_conversation().source})",
        [database, "1 writer", "/ raw", f"{WRITERS} writers", "/ raw", "failed", "bytes / text", "durability"],
    )
    for score in scores:
        if score.error:
            table.rows.append([score.name, f"failed: {score.error[:90]}"])
            continue
        single = (f"{median(score.single):,.0f}", times(ratio(score.single, bare.single)))
        many = (f"{median(score.many):,.0f}", times(ratio(score.many, bare.many)), f"{score.failed:,}")
        size = f"{score.size:.2f}" if score.size else "-"
        table.rows.append([score.name, *single, *many, size, score.durability])
    table.notes = [
        "Medians over short turns; ratios are of the same turn. Each writer awaits each append, and has its own conversation.",
        "The log has its final size before the measurement.",
        "raw: one table with one index, one row and one commit per message. Bytes are of the same messages.",
    ]
    table.notes.append(
        f"{BOUNDS[bare.name]!r} is the approximate upper bound: it does no checks, no compression and no indexing."
    )
    table.notes.append(
        f"{OURS!r} writes a search index with each message. {OURS_WITHOUT_SEARCH!r}, the plain databases and the peers have none."
    )
    if database == "SQLite":
        table.notes.append(
            "durability: journal mode, synchronous. In a thread: asyncio.to_thread, so that the event loop is not blocked."
        )
    part.tables.append(table)


def _add_load_table(part: Part, database: str, good: dict[str, Score], bare: str) -> None:
    readable = {name: score for name, score in good.items() if score.loads}
    short, long = readable[OURS].loads
    raw = readable[bare].loads[long]
    table = Table(
        f"Store: load the last {LAST} messages",
        [database, f"of {int(short):,}", f"of {int(long):,}", "long / short", "/ raw", "ours / it"],
    )
    for name, score in readable.items():
        few, many = score.loads.values()
        ratios = (ratio(many, few), ratio(many, raw), ratio(readable[OURS].loads[long], many))
        table.rows.append([name, time_of(median(few)), time_of(median(many)), *map(times, ratios)])
    table.notes.append("Medians over short turns; ratios are of the same turn.")
    part.tables.append(table)


def _add_targets(part: Part, database: str, good: dict[str, Score], bare: str) -> None:
    ours = good[OURS]
    without_search = good[OURS_WITHOUT_SEARCH]
    theirs = {name: score.many for name, score in good.items() if name not in BARE | {OURS}}
    if theirs:
        ahead = {name: ratio(ours.many, many) for name, many in theirs.items()}
        best = min(ahead, key=lambda name: ahead[name])
        bound = ratio(good[BOUNDS[bare]].many, theirs[best])
        what = f"{database}, {WRITERS} writers: 10 times the appends of the best peer, as durable or more"
        measured = f"{times(ahead[best])} of {best}; {times(bound)} is the upper bound"
        part.targets.append(Target(what, measured, ahead[best] >= 10))
    single = ratio(ours.single, good[bare].single)
    measured = f"{times(single)}, without the search index {times(ratio(without_search.single, good[bare].single))}"
    if RAW_IN_THREAD in good:
        measured += f"; {times(ratio(ours.single, good[RAW_IN_THREAD].single))} of the same in a thread"
    measured += f"; {times(ratio(good[BOUNDS[bare]].single, good[bare].single))} is the upper bound"
    part.targets.append(Target(f"{database}, 1 writer: at least 0.9 of {bare}", measured, single >= 0.9))
    (_, short), (length, long) = ours.loads.items()
    what = f"{database}: the last {LAST} of {int(length):,} messages in at most 1.5 times the time of {SHORT}"
    longer = ratio(long, short)
    part.targets.append(Target(what, times(longer), longer <= 1.5))
    for prefix, max_ratio in LOAD_TARGETS.items():
        for score in (score for name, score in good.items() if name.startswith(prefix)):
            slower = ratio(long, score.loads[length])
            what = f"{database}: the last {LAST} of {int(length):,} messages in at most {max_ratio} times the time of {score.name}"
            part.targets.append(Target(what, times(slower), slower <= max_ratio))
    what = f"{database}: bytes on disk at most 1.5 times the text"
    measured = (
        f"{ours.size:.2f}, of which {ours.empty:.2f} for an empty database; without the index {without_search.size:.2f}"
    )
    part.targets.append(Target(what, measured, ours.size <= 1.5))
