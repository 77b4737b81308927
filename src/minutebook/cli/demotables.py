"""The demo's pictures: the figures of each manager, what was cut, and how the last view looks."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minutebook.cli.replay import DOLLARS_PER_MILLION, Replayed
from minutebook.cli.screen import STATUS_LOOK, by_role, console, percent, role_bars
from minutebook.cli.viewtable import rows_of, table_of

HEAD, TAIL = 9, 4
"""How many rows of the last view are shown at its beginning and its end."""


def show(results: Sequence[Replayed], turns: int, budget: int) -> None:
    """Print what the managers made of the session, and what to try next."""
    out = console()
    record = results[0].transcript
    out.print(Text("The record keeps everything. The view is what the model reads.", "bold"))
    out.print(
        f"\nA coding agent worked through {turns} requests: {len(record):,} messages, {record.tokens:,} tokens.\n"
        f"Before each of its {results[0].calls} model calls, three managers were asked what to send.\n"
        "(The session is simulated; no model was called.)\n"
    )
    out.print(_figures(results, budget))
    _show_cuts(out, results)
    roles = [str(message["role"]) for message in record]
    bars = {"record": by_role(zip(roles, record.token_counts(), strict=True))}
    for result in results[1:]:
        bars[result.name] = by_role((line.role, line.sent_tokens) for line in result.explanation.lines)
    out.print(Text("What fills the last view, by role", "bold"))
    out.print(role_bars(bars, out.width))
    _show_excerpt(out, results[-1])
    _show_next(out)


def _figures(results: Sequence[Replayed], budget: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("over all model calls", no_wrap=True)
    for result in results:
        table.add_column(result.name, justify="right", style="bold green" if result is results[-1] else None)
    everything = results[0].ledger
    rows: list[tuple[str, list[str]]] = [
        ("largest view, tokens", [f"{r.peak:,}" for r in results]),
        (f"views over {budget:,} tokens", [f"{r.over} of {r.calls}" for r in results]),
        ("views a provider would refuse", [f"{r.invalid}" for r in results]),
        ("views with the first request", [percent(r.first_kept, r.calls) for r in results]),
        ("views with the newest request", [percent(r.newest_kept, r.calls) for r in results]),
        ("input tokens", [f"{r.ledger.tokens:,}" for r in results]),
        ("  read from the cache", [percent(r.ledger.cached, r.ledger.tokens) for r in results]),
        ("calls that lost the cache", [f"{r.ledger.busts}" for r in results]),
        ("cost with prompt caching", [f"${r.dollars:,.2f}" for r in results]),
        ("  relative to everything", [percent(r.ledger.cost, everything.cost) for r in results]),
    ]
    if any(result.refused for result in results):
        rows.insert(2, ("calls that cannot fit", [f"{r.refused}" for r in results]))
    for title, figures in rows:
        table.add_row(title, *figures)
    price = DOLLARS_PER_MILLION
    table.caption = f"${price:.2f} a million input tokens, ${price * 0.1:.2f} read from the cache, ${price * 1.25:.2f} written to it"
    table.caption_justify = "left"
    return table


def _show_cuts(out: Console, results: Sequence[Replayed]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("last view of", "fate", "why"):
        table.add_column(title)
    for title in ("messages", "tokens saved"):
        table.add_column(title, justify="right")
    for result in results[1:]:
        for fate, reason, count, tokens in result.cuts():
            table.add_row(result.name, Text(fate.value, STATUS_LOOK[fate]), reason, f"{count:,}", f"{tokens:,}")
        table.add_section()
    if not table.row_count:
        out.print("\nNothing had to be cut.\n")
        return
    out.print(Text("\nWhat was cut, and why", "bold"))
    out.print(table)


def _show_excerpt(out: Console, result: Replayed) -> None:
    lines = result.explanation.lines
    rows = rows_of(result.transcript, lines, every=False)
    if len(rows) <= HEAD + TAIL:
        out.print(Text(f"\nThe last view within {result.name}", "bold"))
        out.print(table_of(rows, result.transcript))
        return
    out.print(Text(f"\nThe last view within {result.name}: its beginning …", "bold"))
    out.print(table_of(rows[:HEAD], result.transcript))
    out.print(Text("… and its end", "bold"))
    out.print(table_of(rows[-TAIL:], result.transcript))


def _show_next(out: Console) -> None:
    program = _program()
    out.print(Text("What to try next", "bold"))
    for line in (
        f"{program} demo --session > session.json",
        f"{program} view session.json --max-tokens 8000",
        f"{program} tokens session.json --model claude-sonnet-4-5",
        f"{program} check session.json --provider all",
    ):
        out.print(Text(f"  {line}", "cyan"), soft_wrap=True)


def _program() -> str:
    """How to call this program from here: its name if the shell finds it, else its path."""
    if shutil.which("minutebook"):
        return "minutebook"
    path = Path(sys.argv[0])
    if path.name != "minutebook":
        return "minutebook"
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
