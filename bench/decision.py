"""The cost of deciding, before every model call, whether to compact the history, compared with counting it again.

python -m bench.decision RESULT.json ROUNDS CALLS    in the peers' environment, with litellm in the same process
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

from bench.contest import clear_count_cache
from bench.corpus import ROOT
from bench.peers_env import OFFLINE, Peers
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
from minutebook.lab.sessions import call_indexes

ENTRIES = 10_000
"""Length of the conversation."""
WINDOW = 128_000
"""Much smaller than the conversation, so that most of it is folded."""
LARGE_WINDOW = 10_000_000
"""Larger than the conversation."""
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
    "due": "due, and applied",
}


@dataclass(frozen=True)
class DecisionCost:
    """The median cost of one call."""

    name: str
    case: Case
    seconds: float
    messages: int
    """Number of messages that the call sends."""
    calls: int


def measure(peers: Peers, *, quick: bool) -> Part:
    rounds, calls = (1, 50) if quick else (2, 200)
    costs, remark = _measure_costs(peers, rounds, calls)
    part = Part()
    theirs = {cost.case: cost for cost in costs if cost.name.startswith(PEER)}
    table = Table(
        f"Decision whether a compaction is due, before one model call, at {ENTRIES:,} entries of a generated session",
        ["strategy", "case", "per call", "messages sent", "calls", "token_counter / ours"],
    )
    for cost in costs:
        peer = theirs.get(cost.case)
        ratio = "-" if peer is None or peer is cost else times(peer.seconds / cost.seconds)
        row = [cost.name, CASES[cost.case], time_of(cost.seconds), f"{cost.messages:,}", f"{cost.calls}", ratio]
        table.rows.append(row)
    table.notes = [
        "Ours: append the new messages and check_and_apply. litellm: count the messages that the call would send.",
        f"Folded before: in a window of {WINDOW:,} tokens. Due: includes creating the summary, without a model.",
    ]
    if remark:
        table.notes.append(f"Without litellm: {remark}")
    part.tables.append(table)
    part.figures["decision"] = {f"{cost.name}, {cost.case}": cost.seconds for cost in costs}
    ours = {cost.name: cost for cost in costs if cost.case == "nothing folded" and cost.name in STRATEGIES}
    if peer := theirs.get("nothing folded"):
        ratios = {name: peer.seconds / cost.seconds for name, cost in ours.items()}
        what = f"at {ENTRIES:,} entries, deciding that nothing is due is {CHEAPER} times cheaper than litellm's token_counter"
        measured = ", ".join(f"{name} {times(ratio)}" for name, ratio in ratios.items())
        part.targets.append(Target(what, measured, min(ratios.values()) >= CHEAPER))
    return part


def _measure_costs(peers: Peers, rounds: int, calls: int) -> tuple[list[DecisionCost], str]:
    remark = peers.missing_reason
    if peers.python is not None:
        progress("decision: ours and litellm's, in one process")
        try:
            return _measure_with_litellm(peers.python, rounds, calls), ""
        except (OSError, subprocess.SubprocessError) as error:
            remark = f"it failed: {error}"
    progress("decision: only ours")
    return measure_ours(rounds, calls), remark


def _measure_with_litellm(python: Path, rounds: int, calls: int) -> list[DecisionCost]:
    with tempfile.NamedTemporaryFile("r", encoding="utf-8", suffix=".json") as result:
        subprocess.run(
            [str(python), "-m", "bench.decision", result.name, str(rounds), str(calls)],
            cwd=ROOT,
            env=os.environ | OFFLINE | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
            stdout=subprocess.DEVNULL,
            timeout=1_800,
            check=True,
        )
        return [DecisionCost(**fields) for fields in json.load(result)]


def measure_ours(rounds: int, calls: int) -> list[DecisionCost]:
    """The cost of each strategy in each case: the minimum over the rounds."""
    session = coding_session(ENTRIES + 40 * calls)
    stops = [stop for stop in call_indexes(session) if stop >= ENTRIES][: calls + 1]
    costs: list[DecisionCost] = []
    for name, make in STRATEGIES.items():
        progress(f"decision: {name}")
        strategy = TurnStrategy(max_turns=ENTRIES) if name == "turns" else make()
        best: dict[Case, DecisionCost] = {}
        for _ in range(rounds):
            for cost in (
                *_measure_strategy(name, strategy, LARGE_WINDOW, session, stops),
                *_measure_strategy(name, make(), WINDOW, session, stops),
            ):
                fastest = best.setdefault(cost.case, cost)
                best[cost.case] = min(fastest, cost, key=lambda candidate: candidate.seconds)
        costs += best.values()
    return costs


def _measure_strategy(
    name: str, strategy: HistoryStrategy, window: int, session: Sequence[Message], stops: Sequence[int]
) -> list[DecisionCost]:
    """The cost of the first call, if a compaction is due, and of the later calls at which none is due."""
    record, compactor = _prepare(strategy, window, session[: stops[0]])

    async def run_calls() -> tuple[float, bool, list[float]]:
        started = perf_counter()
        due = bool(await compactor.check_and_apply(record))
        first = perf_counter() - started
        seconds = []
        for start, stop in pairwise(stops):
            started = perf_counter()
            record.extend(session[start:stop])
            result = await compactor.check_and_apply(record)
            elapsed = perf_counter() - started
            if not result:
                seconds.append(elapsed)
        return first, due, seconds

    first, due, seconds = asyncio.run(run_calls())
    sent = len(compactor.compaction_input(record).shown)
    usual = DecisionCost(name, "folded before" if due else "nothing folded", median(seconds), sent, len(seconds))
    return [usual, DecisionCost(name, "due", first, sent, 1)] if due else [usual]


def _prepare(
    strategy: HistoryStrategy, window: int, messages: Sequence[Message]
) -> tuple[Transcript, CompactionManager]:
    clear_count_cache()
    record = Transcript(messages, broken="mark")
    gc.collect()
    return record, CompactionManager(strategy, ModelInfo("gpt-4o", max_input_tokens=window))


def measure_litellm(rounds: int) -> list[DecisionCost]:
    """The cost of litellm's token count of the messages that a call sends, without folds and with folds."""
    count = import_module("litellm").token_counter
    session = coding_session(ENTRIES)
    record, compactor = _prepare(SummarizeStrategy(), WINDOW, session)
    assert asyncio.run(compactor.check_and_apply(record))
    view: list[Message] = [dict(message) for message in compactor.compaction_input(record).shown]
    sent: dict[Case, list[Message]] = {"nothing folded": session, "folded before": view}
    costs = []
    for case, messages in sent.items():
        progress(f"decision: litellm, {len(messages):,} messages")
        count(model="gpt-4o", messages=messages[:10])  # loads what litellm loads on first use
        seconds = []
        for _ in range(rounds + 1):
            started = perf_counter()
            count(model="gpt-4o", messages=messages)
            seconds.append(perf_counter() - started)
        name = f"{PEER} (litellm {version('litellm')})"
        costs.append(DecisionCost(name, case, median(seconds), len(messages), len(seconds)))
    return costs


def main(result_path: str, rounds: str, calls: str) -> None:
    costs = [*measure_ours(int(rounds), int(calls)), *measure_litellm(int(rounds))]
    Path(result_path).write_text(json.dumps([asdict(cost) for cost in costs]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
