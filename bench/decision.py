"""What it costs to decide, before every call, whether the history must be compacted: ours beside counting it anew.

python -m bench.decision ANSWER.json ROUNDS CALLS    in the peers' environment, with litellm in the same process
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Literal

from bench.contest import forget_counts
from bench.corpus import ROOT
from bench.peers_env import OFFLINE, Peers
from bench.replay import Recording
from bench.report import Part, Table, Target, progress, time_of, times
from bench.session import coding_session
from minutebook import (
    CompactionManager,
    HistoryStrategy,
    Message,
    ModelInfo,
    SummarizeStrategy,
    Transcript,
    TruncateStrategy,
    TurnStrategy,
)
from minutebook.compaction import HybridStrategy

AT = 10_000
WINDOW = 128_000
"""One that the conversation is long too large for, so that at its end most of it is folded."""
WIDE = 10_000_000
"""One in which all of it has room."""
CHEAPER = 100
STRATEGIES: dict[str, Callable[[], HistoryStrategy]] = {
    "summarize": SummarizeStrategy,
    "truncate": TruncateStrategy,
    "hybrid": HybridStrategy,
    "turns": TurnStrategy,
}
PEER = "token_counter"

Case = Literal["nothing folded", "folded before", "due"]
CASES: dict[Case, str] = {
    "nothing folded": "not due, nothing folded",
    "folded before": "not due, folded before",
    "due": "due, and made",
}


@dataclass(frozen=True)
class Cost:
    """The median of what one call costs."""

    name: str
    case: Case
    seconds: float
    messages: int
    """How many messages the call is about: what the model is sent."""
    calls: int


def measure(peers: Peers, *, quick: bool) -> Part:
    rounds, calls = (1, 50) if quick else (2, 200)
    costs, remark = _costs(peers, rounds, calls)
    part = Part()
    theirs = {cost.case: cost for cost in costs if cost.name.startswith(PEER)}
    table = Table(
        f"Deciding: is a compaction due? Before one call of the model, at {AT:,} entries of a made-up session",
        ["strategy", "case", "per call", "messages sent", "calls", "token_counter / ours"],
    )
    for cost in costs:
        beside = theirs.get(cost.case)
        ratio = "-" if beside is None or beside is cost else times(beside.seconds / cost.seconds)
        row = [cost.name, CASES[cost.case], time_of(cost.seconds), f"{cost.messages:,}", f"{cost.calls}", ratio]
        table.rows.append(row)
    table.notes = [
        "Ours is taking on the new messages and check_and_apply; litellm's is counting what the call would send.",
        f"Folded before: in a window of {WINDOW:,} tokens. Due: the summary of the rest too, made without a model.",
    ]
    if remark:
        table.notes.append(f"No litellm in this table: {remark}")
    part.tables.append(table)
    part.figures["decision"] = {f"{cost.name}, {cost.case}": cost.seconds for cost in costs}
    ours = {cost.name: cost for cost in costs if cost.case == "nothing folded" and cost.name in STRATEGIES}
    if counted := theirs.get("nothing folded"):
        ratios = {name: counted.seconds / cost.seconds for name, cost in ours.items()}
        what = f"to see at {AT:,} entries that nothing is due is {CHEAPER} times cheaper than litellm's token_counter"
        measured = ", ".join(f"{name} {times(ratio)}" for name, ratio in ratios.items())
        part.targets.append(Target(what, measured, min(ratios.values()) >= CHEAPER))
    return part


def _costs(peers: Peers, rounds: int, calls: int) -> tuple[list[Cost], str]:
    remark = peers.why
    if peers.python is not None:
        progress("decision: ours and litellm's in one process")
        try:
            return _beside_litellm(peers.python, rounds, calls), ""
        except (OSError, subprocess.SubprocessError) as error:
            remark = f"it failed: {error}"
    progress("decision: ours alone")
    return our_costs(rounds, calls), remark


def _beside_litellm(python: Path, rounds: int, calls: int) -> list[Cost]:
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", suffix=".json") as answer:
        subprocess.run(
            [str(python), "-m", "bench.decision", answer.name, str(rounds), str(calls)],
            cwd=ROOT,
            env=os.environ | OFFLINE | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
            stdout=subprocess.DEVNULL,
            timeout=1_800,
            check=True,
        )
        return [Cost(**made) for made in json.load(answer)]


def our_costs(rounds: int, calls: int) -> list[Cost]:
    """What each strategy costs in each case: the best of some rounds, so that what else the machine does falls out."""
    session = coding_session(AT + 40 * calls)
    stops = [stop for stop in Recording("made up", session).calls if stop >= AT][: calls + 1]
    found: list[Cost] = []
    for name, make in STRATEGIES.items():
        progress(f"decision: {name}")
        wide = TurnStrategy(max_turns=AT) if name == "turns" else make()
        best: dict[Case, Cost] = {}
        for _ in range(rounds):
            for cost in (
                *_costs_of(name, wide, WIDE, session, stops),
                *_costs_of(name, make(), WINDOW, session, stops),
            ):
                known = best.setdefault(cost.case, cost)
                best[cost.case] = min(known, cost, key=lambda one: one.seconds)
        found += best.values()
    return found


def _costs_of(
    name: str, strategy: HistoryStrategy, window: int, session: Sequence[Message], stops: Sequence[int]
) -> list[Cost]:
    """What the first call costs, if everything before is too much at once, and those after it at which nothing is due."""
    record, compactor = _started(strategy, window, session[: stops[0]])

    async def calls() -> tuple[float, bool, list[float]]:
        began = perf_counter()
        due = bool(await compactor.check_and_apply(record))
        first = perf_counter() - began
        seconds = []
        for start, stop in pairwise(stops):
            began = perf_counter()
            record.extend(session[start:stop])
            done = await compactor.check_and_apply(record)
            taken = perf_counter() - began
            if not done:
                seconds.append(taken)
        return first, due, seconds

    first, due, seconds = asyncio.run(calls())
    sent = len(compactor.compaction_input(record).shown)
    usual = Cost(name, "folded before" if due else "nothing folded", median(seconds), sent, len(seconds))
    return [usual, Cost(name, "due", first, sent, 1)] if due else [usual]


def _started(
    strategy: HistoryStrategy, window: int, messages: Sequence[Message]
) -> tuple[Transcript, CompactionManager]:
    forget_counts()
    record = Transcript(messages, broken="mark")
    gc.collect()
    return record, CompactionManager(strategy, ModelInfo("gpt-4o", max_input_tokens=window))


def their_costs(rounds: int) -> list[Cost]:
    """litellm's count of what a call sends: of the whole conversation, and of what is left of it when it is folded."""
    count = import_module("litellm").token_counter
    session = coding_session(AT)
    record, compactor = _started(SummarizeStrategy(), WINDOW, session)
    done = asyncio.run(compactor.check_and_apply(record))
    assert done
    view: list[Message] = [dict(message) for message in compactor.compaction_input(record).shown]
    sent: dict[Case, list[Message]] = {"nothing folded": session, "folded before": view}
    found = []
    for case, messages in sent.items():
        progress(f"decision: litellm, {len(messages):,} messages")
        count(model="gpt-4o", messages=messages[:10])  # what it puts off until then is not the call's
        seconds = []
        for _ in range(rounds + 1):
            began = perf_counter()
            count(model="gpt-4o", messages=messages)
            seconds.append(perf_counter() - began)
        name = f"{PEER} (litellm {version('litellm')})"
        found.append(Cost(name, case, median(seconds), len(messages), len(seconds)))
    return found


def main(answer: str, rounds: str, calls: str) -> None:
    costs = [*our_costs(int(rounds), int(calls)), *their_costs(int(rounds))]
    Path(answer).write_text(json.dumps([asdict(cost) for cost in costs]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
