"""The replay of recorded conversations under every manager we ship, at its defaults, and under the peers'."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from bench import plot
from bench.corpus import conversations, folder
from bench.peers_env import HOME, Peers
from bench.replay import Policy, Recording, Tally, recordings, replay
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
"""Every manager whose view depends on the messages alone; `ActiveToolsManager` goes by what the session offers."""

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
    """A manager on a transcript that grows with the recording."""

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
        part.tables.append(Table("Replay: there is no corpus here (MINUTEBOOK_CORPUS names its folder)", COLUMNS))
        return part
    most, least = (4, 80) if quick else (24, 80)
    with ThreadPoolExecutor(1) as pool:  # nothing is timed here, so the peers may run beside us
        theirs = pool.submit(_their_tallies, peers, most, least)
        recorded = recordings((c for name in AGENTS for c in conversations(name)), most=most, least=least)
        tallies = _our_tallies(recorded, BUDGET)
        _agents(part, recorded, tallies, theirs)
    _service(part, most=40 if quick else 1_000)
    return part


def _our_tallies(recorded: list[Recording], budget: int) -> dict[str, Tally]:
    tallies = {}
    for name, make in MANAGERS.items():
        progress(f"replay: {name}")
        tallies[name] = replay(recorded, ours(make), budget)
    return tallies


def _their_tallies(peers: Peers, most: int, least: int) -> dict[str, Tally | str]:
    if peers.python is None:
        return {"peers": peers.why}
    try:
        answers = json.loads(peers.run("replay", str(BUDGET), str(most), str(least), *AGENTS))
    except Exception as error:
        return {"peers": f"failed: {error}"}
    return {name: found if isinstance(found, str) else Tally(**found) for name, found in answers.items()}


def _agents(
    part: Part, recorded: list[Recording], tallies: dict[str, Tally], theirs: "Future[dict[str, Tally | str]]"
) -> None:
    count = sum(len(recording.messages) for recording in recorded)
    table = Table(
        f"Replay: {len(recorded)} agent sessions of {', '.join(AGENTS)}, {count:,} messages, budget {BUDGET:,}", COLUMNS
    )
    whole = tallies[FULL].cost
    table.rows = [_row(name, tally, whole) for name, tally in tallies.items()]
    peers = {name: found for name, found in theirs.result().items() if isinstance(found, Tally)}
    failed = {name: found for name, found in theirs.result().items() if isinstance(found, str)}
    table.rows += [_row(name, tally, whole) for name, tally in peers.items()]
    table.rows += [[name, why[:120]] for name, why in failed.items()]
    table.notes = [
        "newest, first, system: the request or message is in the view verbatim. cost: 0.1 x cached + 1.25 x rest, beside full.",
        "recall: of the identifiers that the recorded answer uses and the record held, how many the view still holds.",
        "Only the rows with 'budget' look at tokens; of ours the others may be over it. ActiveToolsManager: not by size.",
    ]
    part.tables.append(table)
    part.figures["agents"] = {name: vars(tally) for name, tally in {**tallies, **peers}.items()}
    _promises(part, tallies, "agents")
    _costs(part, tallies, "agents")
    picture = plot.save(
        HOME / "replay.svg",
        {name: (tally.cost / whole, tally.share("held")) for name, tally in tallies.items()},
        {name: (tally.cost / whole, tally.share("held")) for name, tally in peers.items()},
    )
    table.notes.append(f"As a picture: {picture.relative_to(HOME.parent)}")


def _service(part: Part, most: int) -> None:
    recorded = recordings(conversations("customer_service"), most=most, least=0)
    count = sum(len(recording.messages) for recording in recorded)
    tallies = _our_tallies(recorded, SERVICE_BUDGET)
    whole = tallies[FULL].cost
    table = Table(
        f"Replay: {len(recorded)} conversations of customer_service, {count:,} messages, budget {SERVICE_BUDGET:,}",
        COLUMNS,
        [_row(name, tally, whole) for name, tally in tallies.items()],
        ["refused: CannotFit, with what is irreducible; these views are not in the other columns."],
    )
    part.tables.append(table)
    part.figures["customer_service"] = {name: vars(tally) for name, tally in tallies.items()}
    _promises(part, tallies, "customer_service")
    _costs(part, tallies, "customer_service")


def _row(name: str, tally: Tally, whole: float) -> list[str]:
    return [
        name,
        f"{tally.views:,}",
        f"{tally.share('invalid'):.1%}",
        f"{tally.share('over'):.1%}",
        f"{tally.share('request'):.1%}",
        f"{tally.share('goal'):.1%}",
        f"{tally.share('system'):.1%}",
        f"{tally.tokens / 1e6:.2f}M",
        f"{tally.peak:,}",
        f"{tally.share('cached'):.1%}",
        f"{tally.busts:,}",
        f"{tally.cost / whole:.2f}x",
        f"{tally.share('held'):.1%}",
        f"{tally.refused:,}",
    ]


def _promises(part: Part, tallies: dict[str, Tally], where: str) -> None:
    """What every manager of ours promises, and the budget besides."""
    for what, broken in (
        ("no invalid view", {name: tally.invalid for name, tally in tallies.items()}),
        ("the newest request in every view", {name: tally.views - tally.request for name, tally in tallies.items()}),
        ("the system message in every view", {name: tally.systems - tally.system for name, tally in tallies.items()}),
        ("no view over the budget", {name: tally.over for name, tally in tallies.items() if BUDGETED in name}),
    ):
        guilty = ", ".join(f"{name}: {count}" for name, count in broken.items() if count)
        part.targets.append(Target(f"{where}: {what}", guilty or f"0 over {len(broken)} managers", not guilty))


def _costs(part: Part, tallies: dict[str, Tally], where: str) -> None:
    whole = tallies[FULL].cost
    dear = {name: tally.cost / whole for name, tally in tallies.items() if tally.cost > whole}
    named = ", ".join(f"{name} {cost:.2f}x" for name, cost in dear.items()) or "none"
    what = "no manager costs more than sending everything, but for the exact window, which says so"
    part.targets.append(Target(f"{where}: {what}", f"above 1.00x: {named}", set(dear) <= {EXACT_WINDOW}))
