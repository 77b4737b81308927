"""The cost of a view for each model call, with our managers and the peers', and as conversations grow."""

import json
from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import Any

from bench.contest import (
    BUDGET,
    FLOOR,
    OUR_WINDOW,
    OURS,
    WINDOW,
    Timing,
    clear_count_cache,
    contest,
    our_entries,
)
from bench.peers_env import Peers
from bench.report import Part, Table, Target, progress, time_of, times
from bench.session import Conversation, coding_session, long_conversation
from minutebook import Message, TokenBudgetManager, Transcript

LANGCHAIN = "trim_messages, exact (langchain-core"
SIZES = (2_000, 20_000)
LONG = 10_000
"""Messages of the conversation to which single messages are added."""


def measure(peers: Peers, *, quick: bool) -> Part:
    conversation = long_conversation()
    rounds = 3 if quick else 5
    part = Part()
    timings, remark = _measure_timings(conversation, peers, rounds)
    _add_table(part, conversation, timings, remark)
    _measure_growth(part, quick=quick)
    return part


def _measure_timings(conversation: Conversation, peers: Peers, rounds: int) -> tuple[list[Timing], str]:
    remark = peers.missing_reason
    if peers.python is not None:
        progress("calls: ours and the peers', in one process")
        try:
            return [Timing(**fields) for fields in json.loads(peers.run("calls", str(rounds), "20"))], ""
        except Exception as error:
            remark = f"the peers failed: {error}"
    progress("calls: only ours")
    ours = contest(our_entries(), conversation.messages, conversation.calls, rounds=rounds, allowance_seconds=20)
    return ours, remark


def _add_table(part: Part, conversation: Conversation, timings: Sequence[Timing], remark: str) -> None:
    messages = conversation.messages
    table = Table(
        f"Calls: a view before each of the {len(conversation.calls)} model calls of one conversation of "
        f"{len(messages):,} messages\n({conversation.source}; {BUDGET:,} tokens counted exactly, or {WINDOW} messages)",
        ["per call", "p50", "p99", "mean", "view alone", "whole session", "mean / ours", "calls measured", "last view"],
    )
    good = {timing.name: timing for timing in timings if not timing.error}
    for timing in timings:
        ours = good[OURS if timing.kind == "tokens" else OUR_WINDOW]
        if timing.error:
            table.rows.append([timing.name, f"failed: {timing.error[:90]}"])
            continue
        table.rows.append(
            [
                timing.name,
                time_of(timing.quantile(0.5)),
                time_of(timing.quantile(0.99)),
                time_of(timing.mean),
                time_of(timing.mean_view),
                time_of(timing.total) if timing.calls == timing.of else f"~{time_of(timing.total)}",
                times(timing.mean / ours.mean),
                f"{timing.calls} of {timing.of}",
                f"{timing.last_view}",
            ]
        )
    table.notes = [
        "mean / ours: relative to our budget manager if tokens are counted, else to our window; both on a Transcript.",
        "A call adds the new messages (ours: checks, indexes and counts them, once) and builds the view.",
    ]
    if remark:
        table.notes.append(f"Without peers: {remark}")
    part.tables.append(table)
    part.figures["calls"] = {
        timing.name: {
            "p50_seconds": timing.quantile(0.5),
            "p99_seconds": timing.quantile(0.99),
            "mean_seconds": timing.mean,
            "total_seconds": timing.total,
        }
        for timing in good.values()
    }
    _add_targets(part, good)


def _add_targets(part: Part, good: dict[str, Timing]) -> None:
    ours = good[OURS]
    for name, timing in good.items():
        if name.startswith(LANGCHAIN):
            typical, whole = timing.quantile(0.5) / ours.quantile(0.5), timing.mean / ours.mean
            measured = f"{times(typical)} at the median, {times(whole)} over the session"
            what = "200 times faster than langchain-core's trim_messages with an exact counter"
            part.targets.append(Target(what, measured, min(typical, whole) >= 200))
    windows = {
        name: timing
        for name, timing in good.items()
        if timing.kind == "count" and "minutebook" not in name and name != FLOOR
    }
    if windows:
        slower = {name: ours.mean_view / timing.mean_view for name, timing in windows.items()}
        what = "the budget's view alone takes at most 3 times that of a window that only counts messages"
        measured = ", ".join(f"{times(ratio)} of {name}" for name, ratio in slower.items())
        part.targets.append(Target(what, measured, max(slower.values()) <= 3))


def _measure_growth(part: Part, *, quick: bool) -> None:
    progress("calls: growth")
    rounds = 2 if quick else 3
    totals: dict[int, float] = {}
    sessions = {size: coding_session(size) for size in SIZES}
    for _ in range(rounds):
        for size, messages in sessions.items():
            # Repeats the short session, so that both are measured for the same time.
            attempts = [_time_session(messages) for _ in range(SIZES[-1] // size)]
            totals[size] = min(totals.get(size, float("inf")), *attempts)
    single = _time_single_messages(sessions[SIZES[-1]])
    table = Table(
        f"Growth: a view after every message of a generated session, budget {BUDGET:,} tokens",
        ["messages", "whole session", "per message"],
        [[f"{size:,}", time_of(total), time_of(total / size)] for size, total in totals.items()],
        [
            f"One more message after {LONG:,}: median {time_of(median(single))}, slowest of {len(single)} {time_of(max(single))}"
        ],
    )
    part.tables.append(table)
    ratio = totals[SIZES[1]] / totals[SIZES[0]]
    part.targets.append(Target("ten times the messages cost at most 12 times as much", f"{ratio:.1f}x", ratio <= 12))
    part.targets.append(
        Target(f"one more message after {LONG:,} takes less than 2 ms", time_of(median(single)), median(single) < 2e-3)
    )
    part.figures["growth"] = {
        "total_seconds": {str(size): total for size, total in totals.items()},
        "one_more_median_seconds": median(single),
        "one_more_slowest_seconds": max(single),
    }


def _time_session(messages: list[Message]) -> float:
    clear_count_cache()
    manager: Any = TokenBudgetManager(BUDGET)
    transcript = Transcript(broken="mark")
    started = perf_counter()
    for message in messages:
        transcript.append(message)
        manager.curate(transcript)
    return perf_counter() - started


def _time_single_messages(messages: list[Message]) -> list[float]:
    clear_count_cache()
    manager: Any = TokenBudgetManager(BUDGET)
    transcript = Transcript(messages[:LONG], broken="mark")
    manager.curate(transcript)
    seconds = []
    for message in messages[LONG : LONG + 200]:
        started = perf_counter()
        transcript.append(message)
        manager.curate(transcript)
        seconds.append(perf_counter() - started)
    return seconds
