"""`minutebook demo`: a whole agent session, sent three ways: a view before every model call, and what became of each."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from rich import box
from rich.table import Table
from rich.text import Text

from minutebook import CannotFit, Message, Transcript
from minutebook.cli.commands.view import Cut, cuts_of
from minutebook.cli.exits import Command
from minutebook.cli.options import json_option
from minutebook.cli.screen import STATUS_LOOK, console, percent
from minutebook.history.cache_cost import CacheLedger
from minutebook.history.curated import Curated
from minutebook.history.explanation import explain
from minutebook.history.incremental import ContextualManager
from minutebook.record.validation import is_valid

BUDGET: Final = 16_000
WINDOW: Final = 40
DOLLARS_PER_MILLION: Final = 3.0
"""What a million plain input tokens cost. Cache reads are a tenth of it, cache writes one and a quarter."""
FIGURES: Final = (
    "calls", "peak_tokens", "over_budget", "invalid", "refused", "first_request_kept", "newest_request_kept",
)  # fmt: skip


@click.command("demo", cls=Command, short_help="A coding agent's session, sent three ways.")
@click.option("--seed", type=int, metavar="N", default=0, show_default=True, help="Which session. Example: --seed 7")
@click.option(
    "--turns", type=click.IntRange(min=1), metavar="N", default=16, show_default=True,
    help="How many requests the user makes. Example: --turns 50",
)  # fmt: skip
@click.option(
    "--max-tokens", type=click.IntRange(min=2000), metavar="N", default=BUDGET, show_default=True,
    help="The budget of the third way, and what counts as over budget. Example: --max-tokens 32000",
)  # fmt: skip
@click.option(
    "--serve",
    is_flag=True,
    help="The whole story: a session through the service, with the official client. Example: minutebook demo --serve",
)
@click.option(
    "--session",
    "only_session",
    is_flag=True,
    help="Print the session itself as JSON, for the other commands. Example: minutebook demo --session | minutebook tokens -",
)
@json_option("Print the figures as one JSON document. Example: minutebook demo --json")
def command(seed: int, turns: int, max_tokens: int, serve: bool, only_session: bool, as_json: bool) -> None:
    """Replay a coding agent's session and compare what is sent: everything, a window, or a token budget.

    The session is simulated from the seed, and no model is asked. Before every call that the agent made, each of three
    managers builds the view that the model would have been sent; the table says what that would have cost.

    With --serve the session is lived through: the service is started on SQLite, the official client talks to it, and a
    provider with a window of --max-tokens answers. Afterwards everything is stopped.

    Example: minutebook demo --session | minutebook view - --max-tokens 8000
    """
    if serve:
        _show_story(seed, turns, max_tokens, as_json=as_json)
        return
    from minutebook.testing import coding_session

    session = coding_session(seed, turns)
    if only_session:
        click.echo(json.dumps({"id": f"demo-{seed}", "messages": session}, indent=2))
        return
    results = _replay(session, max_tokens)
    if as_json:
        record = {"messages": len(session), "tokens": results[0].transcript.tokens, "turns": turns, "seed": seed}
        managers = [result.to_json() for result in results]
        click.echo(json.dumps({"record": record, "budget": max_tokens, "managers": managers}, indent=2))
    else:
        _show(results, turns, max_tokens)


def _show_story(seed: int, turns: int, window: int, *, as_json: bool) -> None:
    from minutebook.cli.progress import counting

    try:
        from minutebook.cli.commands.demo_service import show_story, told
    except ModuleNotFoundError as error:
        from minutebook.errors import MissingExtra

        raise MissingExtra(error.name or "fastapi", "service") from error
    with counting("turns", turns, silent=True, least=1) as count:
        story = told(seed, turns, window, count)
    if as_json:
        click.echo(json.dumps(story.to_json(), indent=2))
    else:
        show_story(story)


def _replay(session: list[dict[str, Any]], budget: int) -> list["Replay"]:
    from minutebook import PassthroughManager, SlidingWindowManager, TokenBudgetManager

    replays = [
        Replay("everything", PassthroughManager(), budget),
        Replay(f"last {WINDOW} messages", SlidingWindowManager(window_size=WINDOW), budget),
        Replay(f"{budget:,} tokens", TokenBudgetManager(max_tokens=budget), budget),
    ]
    for replay in replays:
        replay.run(session)
    return replays


@dataclass
class Replay:
    """What one manager makes of a session."""

    name: str
    manager: ContextualManager
    budget: int
    figures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FIGURES, 0))
    ledger: CacheLedger = field(default_factory=CacheLedger)
    transcript: Transcript = field(default_factory=Transcript)
    last: Curated | None = None
    last_tokens: int = 0
    cuts: list[Cut] = field(default_factory=list)
    """What is not sent as it is in the last view, and why; the most saved first."""

    def run(self, session: Sequence[Message]) -> None:
        """Ask the manager for a view before each message of the assistant, as the transcript grows."""
        known: dict[int, tuple[Message, int]] = {}
        seen = 0
        for place, message in enumerate(session):
            if message["role"] == "assistant":
                self.transcript.extend(session[seen:place])
                seen = place
                self._curate(known)
        explanation = explain(self.transcript, self.last or ())
        self.last_tokens, self.cuts = explanation.view_tokens, cuts_of(explanation.lines)
        # The last answer belongs to the record, and the last view was made before it.
        self.transcript.extend(session[seen:])

    def _curate(self, known: dict[int, tuple[Message, int]]) -> None:
        transcript = self.transcript
        figures = self.figures
        figures["calls"] += 1
        try:
            view = self.manager.curate(transcript)
        except CannotFit:
            figures["refused"] += 1
            return
        for message in view:
            if id(message) not in known:
                known[id(message)] = message, transcript.counter.message(message)
        sizes = [known[id(message)][1] for message in view]
        origins = zip(view.origins, view, strict=True)
        kept = {place for place, message in origins if place is not None and transcript[place] is message}
        figures["peak_tokens"] = max(figures["peak_tokens"], sum(sizes))
        figures["over_budget"] += sum(sizes) > self.budget
        figures["invalid"] += not is_valid(view)
        figures["first_request_kept"] += transcript.first_request in kept
        figures["newest_request_kept"] += transcript.newest_request in kept
        self.ledger.send(view, sizes)
        self.last = view

    @property
    def dollars(self) -> float:
        return self.ledger.cost * DOLLARS_PER_MILLION / 1_000_000

    def to_json(self) -> dict[str, Any]:
        cuts = [{**cut._asdict(), "fate": cut.fate.value} for cut in self.cuts]
        return {
            "manager": self.name,
            **self.figures,
            "input_tokens": self.ledger.tokens,
            "cached_tokens": self.ledger.cached,
            "cache_busts": self.ledger.busts,
            "cost_in_plain_tokens": round(self.ledger.cost),
            "dollars": round(self.dollars, 4),
            "last_view": {"messages": len(self.last or ()), "tokens": self.last_tokens, "cuts": cuts},
        }


def _show(replays: Sequence[Replay], turns: int, budget: int) -> None:
    """Print what the managers made of the session, and what to try next."""
    out = console()
    record = replays[0].transcript
    out.print(Text("The record keeps everything. The view is what the model reads.", "bold"))
    out.print(
        f"\nA coding agent worked through {turns} requests: {len(record):,} messages, {record.tokens:,} tokens.\n"
        f"Before each of its {replays[0].figures['calls']} model calls, three managers were asked what to send.\n"
        "(The session is simulated; no model was called.)\n"
    )
    out.print(_figures(replays, budget))
    out.print(Text("\nWhat was cut from the last view, and why", "bold"))
    out.print(_cuts(replays[1:]))
    program = _program()
    out.print(Text("What to try next", "bold"))
    for line in (
        f"{program} demo --session > session.json",
        f"{program} view session.json --max-tokens 8000",
        f"{program} tokens session.json --model claude-sonnet-4-5",
        f"{program} check session.json --provider all",
    ):
        out.print(Text(f"  {line}", "cyan"), soft_wrap=True)


def _figures(replays: Sequence[Replay], budget: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("over all model calls", no_wrap=True)
    for each in replays:
        table.add_column(each.name, justify="right", style="bold green" if each is replays[-1] else None)
    whole = replays[0].ledger.cost
    rows: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("largest view, tokens", lambda one: f"{one['peak_tokens']:,}"),
        (f"views over {budget:,} tokens", lambda one: f"{one['over_budget']} of {one['calls']}"),
        ("calls that cannot fit", lambda one: f"{one['refused']}"),
        ("views a provider would refuse", lambda one: f"{one['invalid']}"),
        ("views with the first request", lambda one: percent(one["first_request_kept"], one["calls"])),
        ("views with the newest request", lambda one: percent(one["newest_request_kept"], one["calls"])),
        ("input tokens", lambda one: f"{one['input_tokens']:,}"),
        ("  read from the cache", lambda one: percent(one["cached_tokens"], one["input_tokens"])),
        ("calls that lost the cache", lambda one: f"{one['cache_busts']}"),
        ("cost with prompt caching", lambda one: f"${one['dollars']:,.2f}"),
        ("  relative to everything", lambda one: percent(one["cost_in_plain_tokens"], whole)),
    ]
    told = [replay.to_json() for replay in replays]
    for title, figure in rows:
        table.add_row(title, *map(figure, told))
    price = DOLLARS_PER_MILLION
    table.caption = f"${price:.2f} a million input tokens, ${price * 0.1:.2f} read from the cache, ${price * 1.25:.2f} written to it"
    table.caption_justify = "left"
    return table


def _cuts(replays: Sequence[Replay]) -> Table | str:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("last view of", "fate", "why"):
        table.add_column(title)
    for title in ("messages", "tokens saved"):
        table.add_column(title, justify="right")
    for replay in replays:
        for fate, reason, count, tokens in replay.cuts:
            table.add_row(replay.name, Text(fate.value, STATUS_LOOK[fate]), reason, f"{count:,}", f"{tokens:,}")
        table.add_section()
    return table if table.row_count else "Nothing had to be cut.\n"


def _program() -> str:
    """How to call this program from here: its name if the shell finds it, else its path."""
    path = Path(sys.argv[0])
    return "minutebook" if shutil.which("minutebook") or path.name != "minutebook" else os.path.relpath(path)
