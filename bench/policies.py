"""Replays recorded conversations with every manager, at its defaults, and with the peers' policies."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from bench.corpus import conversations, folder
from bench.peers_env import HOME, Peers
from bench.replay import Policy, Recording, ReplayResult, recordings, replay
from bench.report import Part, Table, Target, progress
from minutebook import (
    ComposedManager,
    HistoryManager,
    Message,
    PassthroughManager,
    SlidingWindowManager,
    TokenBudgetManager,
    ToolResultClearer,
    ToolResultTruncator,
    Transcript,
    TurnWindowManager,
)
from minutebook.history import ToolStripper
from minutebook.lab import plot

AGENTS = ("coding_agents", "claude_code", "codex_responses")
BUDGET = 32_000
SERVICE_BUDGET = 4_000
FULL = "full"
BUDGETED = "budget"
EXACT_WINDOW = "window 40"

MANAGERS: dict[str, Callable[[int], HistoryManager]] = {
    FULL: lambda _: PassthroughManager(),
    BUDGETED: TokenBudgetManager,
    EXACT_WINDOW: lambda _: SlidingWindowManager(40),
    "window 40, slack 40": lambda _: SlidingWindowManager(40, slack=40),
    "turns 10": lambda _: TurnWindowManager(10),
    "truncate 2000": lambda _: ToolResultTruncator(),
    "clear": lambda _: ToolResultClearer(),
    "strip": lambda _: ToolStripper(),
    "truncate 2000 + window 40, slack 40": lambda _: ComposedManager(
        (ToolResultTruncator(), SlidingWindowManager(40, slack=40))
    ),
    "truncate 2000 + budget": lambda budget: ComposedManager((ToolResultTruncator(), TokenBudgetManager(budget))),
}
"""All managers except `ActiveToolsManager`, whose views depend on the session's tools."""

COLUMNS = (
    "policy",
    "views",
    "invalid",
    "over",
    "newest",
    "first",
    "system",
    "tokens",
    "peak",
    "cached",
    "busts",
    "cost",
    "recall",
    "refused",
)


def ours(make: Callable[[int], HistoryManager]) -> Policy:
    """The policy of a manager, on a transcript that grows with the recording."""

    def policy(messages: list[Message], budget: int, state: dict[str, Any]) -> Sequence[Message]:
        if not state:
            state.update(transcript=Transcript(broken="mark"), manager=make(budget))
        transcript, manager = state["transcript"], state["manager"]
        transcript.extend(messages[len(transcript) :])
        view: Sequence[Message] = manager.curate(transcript)
        return view

    return policy


def measure(peers: Peers, *, quick: bool) -> Part:
    part = Part()
    if folder() is None:
        part.tables.append(Table("Replay: no corpus found; set MINUTEBOOK_CORPUS to its folder", COLUMNS))
        return part
    max_conversations, min_messages = (4, 80) if quick else (24, 80)
    with ThreadPoolExecutor(1) as pool:  # nothing is timed here, so the peers may run concurrently
        theirs = pool.submit(_replay_peers, peers, max_conversations, min_messages)
        recorded = recordings(
            (c for name in AGENTS for c in conversations(name)),
            max_conversations=max_conversations,
            min_messages=min_messages,
        )
        results = _replay_ours(recorded, BUDGET)
        _add_agent_sessions(part, recorded, results, theirs)
    _add_customer_service(part, max_conversations=40 if quick else 1_000)
    return part


def _replay_ours(recorded: list[Recording], budget: int) -> dict[str, ReplayResult]:
    results = {}
    for name, make in MANAGERS.items():
        progress(f"replay: {name}")
        results[name] = replay(recorded, ours(make), budget)
    return results


def _replay_peers(peers: Peers, max_conversations: int, min_messages: int) -> dict[str, ReplayResult | str]:
    if peers.python is None:
        return {"peers": peers.missing_reason}
    try:
        outcomes = json.loads(peers.run("replay", str(BUDGET), str(max_conversations), str(min_messages), *AGENTS))
    except Exception as error:
        return {"peers": f"failed: {error}"}
    return {
        name: outcome if isinstance(outcome, str) else ReplayResult(**outcome) for name, outcome in outcomes.items()
    }


def _add_agent_sessions(
    part: Part,
    recorded: list[Recording],
    results: dict[str, ReplayResult],
    theirs: "Future[dict[str, ReplayResult | str]]",
) -> None:
    count = sum(len(recording.messages) for recording in recorded)
    table = Table(
        f"Replay: {len(recorded)} agent sessions of {', '.join(AGENTS)}, {count:,} messages, budget {BUDGET:,}", COLUMNS
    )
    full_cost = results[FULL].cost
    table.rows = [cells_of(name, result, full_cost) for name, result in results.items()]
    peers = {name: outcome for name, outcome in theirs.result().items() if isinstance(outcome, ReplayResult)}
    failed = {name: outcome for name, outcome in theirs.result().items() if isinstance(outcome, str)}
    table.rows += [cells_of(name, result, full_cost) for name, result in peers.items()]
    table.rows += [[name, error[:120]] for name, error in failed.items()]
    table.notes = [
        "newest, first, system: views with that message verbatim. cost: 0.1 x cached + 1.25 x rest, relative to full.",
        "recall: share of the identifiers in the recorded answer and the earlier record that are in the view.",
        "Only policies with 'budget' limit tokens; the others may exceed it.",
    ]
    part.tables.append(table)
    part.figures["agents"] = {name: vars(result) for name, result in {**results, **peers}.items()}
    _add_guarantee_targets(part, results, "agents")
    _add_cost_target(part, results, "agents")
    picture = plot.save(
        HOME / "replay.svg",
        {name: (result.cost / full_cost, result.share("recalled")) for name, result in results.items()},
        {name: (result.cost / full_cost, result.share("recalled")) for name, result in peers.items()},
    )
    table.notes.append(f"Plot: {picture.relative_to(HOME.parent)}")


def _add_customer_service(part: Part, max_conversations: int) -> None:
    recorded = recordings(conversations("customer_service"), max_conversations=max_conversations, min_messages=0)
    count = sum(len(recording.messages) for recording in recorded)
    results = _replay_ours(recorded, SERVICE_BUDGET)
    full_cost = results[FULL].cost
    table = Table(
        f"Replay: {len(recorded)} conversations of customer_service, {count:,} messages, budget {SERVICE_BUDGET:,}",
        COLUMNS,
        [cells_of(name, result, full_cost) for name, result in results.items()],
        ["refused: CannotFit was raised; these views are not counted in the other columns."],
    )
    part.tables.append(table)
    part.figures["customer_service"] = {name: vars(result) for name, result in results.items()}
    _add_guarantee_targets(part, results, "customer_service")
    _add_cost_target(part, results, "customer_service")


def cells_of(name: str, result: ReplayResult, full_cost: float) -> list[str]:
    return [
        name,
        f"{result.views:,}",
        f"{result.share('invalid'):.1%}",
        f"{result.share('over'):.1%}",
        f"{result.share('request'):.1%}",
        f"{result.share('goal'):.1%}",
        f"{result.share('system'):.1%}",
        f"{result.tokens / 1e6:.2f}M",
        f"{result.peak:,}",
        f"{result.share('cached'):.1%}",
        f"{result.busts:,}",
        f"{result.cost / full_cost:.2f}x",
        f"{result.share('recalled'):.1%}",
        f"{result.refused:,}",
    ]


def _add_guarantee_targets(part: Part, results: dict[str, ReplayResult], where: str) -> None:
    """Add the targets for the guarantees of all managers, and of the budget."""
    for guarantee, violations in (
        ("no invalid view", {name: result.invalid for name, result in results.items()}),
        ("the newest request in every view", {name: result.views - result.request for name, result in results.items()}),
        (
            "the system message in every view",
            {name: result.systems - result.system for name, result in results.items()},
        ),
        ("no view over the budget", {name: result.over for name, result in results.items() if BUDGETED in name}),
    ):
        violators = ", ".join(f"{name}: {count}" for name, count in violations.items() if count)
        part.targets.append(
            Target(f"{where}: {guarantee}", violators or f"0 of {len(violations)} managers", not violators)
        )


def _add_cost_target(part: Part, results: dict[str, ReplayResult], where: str) -> None:
    full_cost = results[FULL].cost
    expensive = {name: result.cost / full_cost for name, result in results.items() if result.cost > full_cost}
    names = ", ".join(f"{name} {cost:.2f}x" for name, cost in expensive.items()) or "none"
    what = "no manager except the exact window costs more than the full history"
    part.targets.append(Target(f"{where}: {what}", f"above 1.00x: {names}", set(expensive) <= {EXACT_WINDOW}))
