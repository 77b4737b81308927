"""What it costs to keep a conversation: appends, loads and bytes, beside bare databases and the peers' stores."""

import asyncio
import json
from collections.abc import Sequence
from statistics import median

from bench import longest, sizes
from bench.keepers import (
    BARE_GROUP,
    BARE_LOG,
    OURS,
    RAW,
    RAW_IN_THREAD,
    RAW_POSTGRES,
    Databases,
    Files,
    our_contenders,
)
from bench.keeping import LAST, SHORT, WRITERS, Contender, Effort, Said, Score, contest, ratio
from bench.peers_env import Peers
from bench.report import Part, Table, Target, progress, time_of, times
from bench.session import long_conversation
from minutebook import Message
from minutebook.record.message import text_of
from torture.server import Unsupported, postgres

EFFORTS = {
    "full": Effort(turns=24),
    "quick": Effort(turns=8, warm_seconds=5.0, long=10_000),
}
BOUNDS = {RAW: BARE_LOG, RAW_POSTGRES: BARE_GROUP}
"""What hardly anybody can be quicker than, on each database."""
LOAD_TARGETS = {"SQLiteSession": 1.5, RAW_POSTGRES: 3}
"""How many times as long as these a load may take, by what the name begins with."""
BARE = {RAW, RAW_IN_THREAD, RAW_POSTGRES, *BOUNDS.values()}


def measure(peers: Peers, *, quick: bool) -> Part:
    part = Part()
    effort = "quick" if quick else "full"
    scores, remark = _scores(peers, effort, None)
    _tables(part, "SQLite", scores, remark, RAW)
    try:
        with postgres("wal_recycle=on") as server:
            scores, remark = _scores(peers, effort, server.url())
            _tables(part, "PostgreSQL", scores, remark, RAW_POSTGRES)
            sizes.measure(part, server.url())
    except Unsupported as missing:
        part.tables.append(Table(f"Store: nothing was measured on PostgreSQL: {missing}", []))
        sizes.measure(part, None)
    longest.measure(part, quick=quick)
    return part


def measured(contenders: Sequence[Contender], effort: str, server: str | None) -> list[Score]:
    """What was measured of each, on files, or on a server."""
    places = Databases(server) if server else Files()
    return asyncio.run(contest(contenders, _said_in(long_conversation().messages), EFFORTS[effort], places))


def _said_in(messages: Sequence[Message]) -> list[Said]:
    """The texts of a conversation as plain messages, which every store takes."""
    texts = [(message["role"], text_of(message)) for message in messages]
    return [("user" if role == "user" else "assistant", text) for role, text in texts if text]


def _scores(peers: Peers, effort: str, server: str | None) -> tuple[list[Score], str]:
    remark = peers.why
    if peers.python is not None:
        progress("store: ours and the peers' in one process")
        try:
            answer = peers.run("store", effort, *([server] if server else []))
            return [Score(**made) for made in json.loads(answer)], ""
        except Exception as error:
            remark = f"the peers failed: {error}"
    progress("store: ours alone")
    return measured(our_contenders(server=bool(server)), effort, server), remark


def _tables(part: Part, database: str, scores: Sequence[Score], remark: str, bare: str) -> None:
    good = {score.name: score for score in scores if not score.error}
    _appends(part, database, scores, good[bare])
    _loads(part, database, good, bare)
    if remark:
        part.tables[-1].notes.append(f"No peers on {database}: {remark}")
    part.figures[database] = {score.name: score.as_json() for score in scores}
    _targets(part, database, good, bare)


def _appends(part: Part, database: str, scores: Sequence[Score], bare: Score) -> None:
    table = Table(
        f"Store: single messages appended durably, per second (texts of {long_conversation().source})",
        [database, "1 writer", "/ raw", f"{WRITERS} writers", "/ raw", "refused", "bytes / text", "durability"],
    )
    for score in scores:
        if score.error:
            table.rows.append([score.name, f"failed: {score.error[:90]}"])
            continue
        single = (f"{median(score.single):,.0f}", times(ratio(score.single, bare.single)))
        many = (f"{median(score.many):,.0f}", times(ratio(score.many, bare.many)), f"{score.refused:,}")
        size = f"{score.size:.2f}" if score.size else "-"
        table.rows.append([score.name, *single, *many, size, score.durability])
    table.notes = [
        "Medians over short turns; ratios are those of the same turn. Each writer awaits each append, and has a conversation",
        "of its own. The log is warm: it need not grow any more.",
        "raw: one table with one index, one row and one commit for a message. Bytes are those of the same messages.",
    ]
    table.notes.append(
        f"{BOUNDS[bare.name]!r} is the bound, about: it checks, packs, finds and indexes nothing, on the same disk and loop."
    )
    later = next(score.settling for score in scores if score.name == OURS)
    table.notes.append(
        f"Our search index follows when there is time for it: {time_of(later)} for each message, not in this table."
    )
    if database == "SQLite":
        table.notes.append(
            "durability: journal mode, synchronous. In a thread: asyncio.to_thread, so that the loop goes on."
        )
    part.tables.append(table)


def _loads(part: Part, database: str, good: dict[str, Score], bare: str) -> None:
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
    table.notes.append("Medians over short turns; ratios are those of the same turn.")
    part.tables.append(table)


def _targets(part: Part, database: str, good: dict[str, Score], bare: str) -> None:
    ours = good[OURS]
    theirs = {name: score.many for name, score in good.items() if name not in BARE | {OURS}}
    if theirs:
        ahead = {name: ratio(ours.many, many) for name, many in theirs.items()}
        best = min(ahead, key=lambda name: ahead[name])
        bound = ratio(good[BOUNDS[bare]].many, theirs[best])
        what = f"{database}, {WRITERS} writers: 10 times the appends of the best peer, as durable or more"
        said = f"{times(ahead[best])} of {best}; {times(bound)} is the bound"
        part.targets.append(Target(what, said, ahead[best] >= 10))
    single = ratio(ours.single, good[bare].single)
    said = times(single)
    if RAW_IN_THREAD in good:
        said += f"; {times(ratio(ours.single, good[RAW_IN_THREAD].single))} of the same in a thread"
    said += f"; {times(ratio(good[BOUNDS[bare]].single, good[bare].single))} is the bound"
    part.targets.append(Target(f"{database}, 1 writer: at least 0.9 of {bare}", said, single >= 0.9))
    (_, short), (length, long) = ours.loads.items()
    what = f"{database}: the last {LAST} of {int(length):,} messages in at most 1.5 times the time of {SHORT}"
    longer = ratio(long, short)
    part.targets.append(Target(what, times(longer), longer <= 1.5))
    for name, most in LOAD_TARGETS.items():
        for score in (score for found, score in good.items() if found.startswith(name)):
            slower = ratio(long, score.loads[length])
            what = f"{database}: the last {LAST} of {int(length):,} messages in at most {most} times the time of {score.name}"
            part.targets.append(Target(what, times(slower), slower <= most))
    what = f"{database}: bytes on disk at most 1.5 times the text"
    said = f"{ours.size:.2f}, of which {ours.empty:.2f} are there before the first message"
    part.targets.append(Target(what, said, ours.size <= 1.5))
