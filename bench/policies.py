"""Replays all recorded sessions of 60 messages or more with our managers and with the peers' policies, in the lab."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.corpus import folder
from bench.peers_env import HOME, Peers, find_or_install_headroom
from bench.report import Part, Table, Target, progress
from minutebook.lab import FULL, TYPICAL_BILLING, PolicyResult, RecordedSession, Report, SessionOutcome, evaluate, plot
from minutebook.lab import load_sessions as load_files
from minutebook.lab.policies import BUDGET_POLICIES, BUDGET_POLICY
from minutebook.tokens import ExactCounter

MIN_MESSAGES = 60
QUICK_SESSIONS = 3
IN_PEERS_ENVIRONMENT = ("langchain", "llama-index", "strands", "window")
MANAGERS = (
    *BUDGET_POLICIES,
    "sliding_window:40",
    "sliding_window:window_size=40,slack=40",
    "turn_window:10",
    "tool_result_truncator",
    "tool_result_clearer",
    "tool_stripper",
)
"""All managers except `active_tools`, whose views depend on the session's tools."""
COLUMNS = (
    *(
        "policy",
        "views",
        "invalid",
        "over",
        "refused",
        "lost",
        "cuts",
        "window",
        "cost",
        "re-reads",
        "names",
        "names 2",
    ),
    *("quotes", "requests", "constraints", "decisions", "dearer", "worst", "ms"),
)


@dataclass(frozen=True)
class SessionSet:
    """Sessions of the corpus with the budget that they are replayed with, and the targets of the policies."""

    files: tuple[str, ...]
    budget: int
    targets: dict[str, float] = field(default_factory=dict)
    """Measure of the default policy → its limit: a maximum for costs, a minimum for the others."""
    economy: dict[str, float] = field(default_factory=dict)
    """The same for the preset `economy`."""


SETS = {
    "coding": SessionSet(
        ("claude_code", "coding_agents"),
        32_000,
        {"cost": 0.38, "names": 0.99, "names, other pattern": 0.98},
        economy={"cost with re-reads": 0.39},
    ),
    "codex": SessionSet(("codex_responses",), 64_000, {"cost": 0.33, "names": 0.98, "quotes": 0.94}),
    "service": SessionSet(("customer_service",), 4_000, {"cost": 0.72, "names": 0.97}),
    "long chat": SessionSet(("long_chat",), 16_000, {"names": 0.99}, economy={"cost": 0.1}),
}


def sessions_of(name: str, *, quick: bool) -> Iterator[RecordedSession]:
    """The sessions of a set, or a few of them."""
    path = folder()
    assert path is not None
    files = [path / f"{file}.jsonl.gz" for file in SETS[name].files]
    for number, session in enumerate(load_files(files, min_messages=MIN_MESSAGES)):
        if quick and number == QUICK_SESSIONS:
            break
        session.counter = ExactCounter()  # o200k_base, as the peers count: a budget is the same for all
        yield session


def measure(peers: Peers, *, quick: bool) -> Part:
    part = Part()
    if folder() is None:
        part.tables.append(Table("Replay: no corpus found; set MINUTEBOOK_CORPUS to its folder", COLUMNS))
        return part
    headroom = find_or_install_headroom() if peers.python is not None else peers
    for name, session_set in SETS.items():
        progress(f"replay: {name}")
        report = evaluate(
            {policy: policy for policy in MANAGERS},
            sessions_of(name, quick=quick),
            budget=session_set.budget,
            billing=TYPICAL_BILLING,
        )
        theirs, failed = _peer_results(name, {peers: IN_PEERS_ENVIRONMENT, headroom: ("headroom",)}, quick=quick)
        _add_table(part, name, Report(report.budget, [*report.results, *theirs]), failed)
        _add_targets(part, name, report)
    return part


def _peer_results(
    name: str, environments: dict[Peers, tuple[str, ...]], *, quick: bool
) -> tuple[list[PolicyResult], dict[str, str]]:
    """The results of the peers, and the reasons for those that have none."""
    results, failed = [], {}
    for environment, peers in environments.items():
        for peer in peers:
            if environment.python is None:
                failed[peer] = environment.missing_reason
                continue
            progress(f"replay: {name}, {peer}")
            try:
                rows = json.loads(environment.run(name, "quick" if quick else "full", peer, module="bench.peer_replay"))
            except Exception as error:
                failed[peer] = f"failed: {error}"
                continue
            results += [
                PolicyResult(policy, [SessionOutcome.from_json(row) for row in rows[policy]]) for policy in rows
            ]
    return results, failed


def _add_table(part: Part, name: str, report: Report, failed: dict[str, str]) -> None:
    table = Table(
        f"Replay: {name}, {report.sessions} sessions of {', '.join(SETS[name].files)} with {MIN_MESSAGES} messages or more, "
        f"{report.messages:,} messages, budget {report.budget:,}",
        COLUMNS,
        [cells_of(result) for result in report.results],
        [
            "cost: 0.1 x cached + 1.25 x rest, relative to the full history at the same calls. re-reads: and missed lines are read again.",
            "names, quotes: of what the recorded answers use, the share in view. names 2: by another pattern. lost: views without the",
            "system message, the first or the newest request. dearer, worst: sessions that cost more than the full history.",
        ],
    )
    table.rows += [[peer, reason[:120]] for peer, reason in failed.items()]
    points = {result.name: (result.measure("cost"), result.measure("names")) for result in report.results}
    ours = {FULL, *MANAGERS}
    picture = plot.save(
        HOME / f"replay-{name.replace(' ', '-')}.svg",
        {policy: point for policy, point in points.items() if policy in ours},
        {policy: point for policy, point in points.items() if policy not in ours},
    )
    table.notes.append(f"Plot: {picture.relative_to(HOME.parent)}")
    part.tables.append(table)
    part.figures[name] = report.to_json()


def cells_of(result: PolicyResult) -> Sequence[str]:
    calls = max(1, result.total("views"))
    counts = (f"{result.total(name) / calls:.1%}" for name in ("invalid", "over"))
    measures = ("names", "names, other pattern", "quotes", "requests", "constraints", "decisions")
    return [
        result.name,
        f"{result.total('views'):,}",
        *counts,
        f"{result.total('refused'):,}",
        f"{result.total('essentials_lost') / calls:.1%}",
        f"{result.total('cuts'):,}",
        f"{result.measure('window'):.0%}",
        f"{result.measure('cost'):.3f}",
        f"{result.measure('cost with re-reads'):.3f}",
        *(f"{result.measure(name):.1%}" for name in measures),
        f"{len(result.dearer) / max(1, len(result.outcomes)):.0%}",
        f"{result.worst_ratio:.3f}",
        f"{result.milliseconds:.2f}",
    ]


def _add_targets(part: Part, name: str, report: Report) -> None:
    for result in report.results[1:]:
        bad = {field: result.total(field) for field in ("invalid", *(["over"] if "budget" in result.name else []))}
        wrong = ", ".join(f"{field} {count}" for field, count in bad.items() if count)
        part.targets.append(
            Target(f"{name}: no view of {result.name} is invalid or over its budget", wrong or "0", not wrong)
        )
    default = report.result(BUDGET_POLICY)
    part.targets += [_target(name, default, *limit) for limit in SETS[name].targets.items()]
    economy = report.result(f"{BUDGET_POLICY}:preset=economy")
    part.targets += [_target(f"{name}, economy", economy, *limit) for limit in SETS[name].economy.items()]
    lost: Any = default.total("essentials_lost")
    part.targets.append(Target(f"{name}: requests and system message in every view", f"{lost} without", not lost))
    worst = default.worst_ratio
    part.targets.append(
        Target(f"{name}: no session costs more than the full history", f"worst {worst:.3f}", worst <= 1.0005)
    )


def _target(name: str, result: PolicyResult, measure: str, limit: float) -> Target:
    value, (low, high) = result.measure(measure), result.interval(measure)
    is_cost = "cost" in measure
    return Target(
        f"{name}: {measure} {'at most' if is_cost else 'at least'} {limit}",
        f"{value:.3f}, 95 % interval {low:.3f} to {high:.3f}",
        value <= limit if is_cost else value >= limit,
    )
