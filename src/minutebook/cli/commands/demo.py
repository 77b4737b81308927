"""`minutebook demo`: compare three history managers on a simulated coding session."""

import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, emit, flag, json_option

BUDGET: Final = 16_000
WINDOW: Final = 40
DOLLARS_PER_MILLION: Final = 3.0
"""Price of a million input tokens. Cache reads cost a tenth of it, cache writes 1.25 times."""
ROWS: Final = (
    ("largest call, tokens", "{peak_tokens:,}"),
    ("calls over {budget:,} tokens", "{over_budget} of {calls}"),
    ("calls that break a provider's rules", "{invalid}"),
    ("calls with the first user message", "{first_request_kept} of {calls}"),
    ("calls with the newest user message", "{newest_request_kept} of {calls}"),
    ("input tokens", "{input_tokens:,}"),
    ("  read from the prompt cache", "{cached_tokens:,}"),
    ("cost with prompt caching", "${dollars:,.2f}"),
)
"""Title of each row of the table, and the format of its values."""


@click.command("demo", cls=Command, short_help="Compare three history managers on a simulated coding session.")
@click.option(
    "--seed", type=int, metavar="N", default=0, show_default=True, help="Random seed of the session. Example: --seed 7"
)
@count_option("--turns", default=16, help_text="Number of user requests. Example: --turns 50")
@click.option(
    "--max-tokens", type=click.IntRange(min=2000), metavar="N", default=BUDGET, show_default=True,
    help="Token budget of the budget manager; with --serve, the provider's context window. Example: --max-tokens 32000",
)  # fmt: skip
@flag(
    "--serve",
    help_text="Run the session through a real service with the official OpenAI client. Example: minutebook demo --serve",
)
@flag(
    "--session",
    "only_session",
    help_text="Print the session as JSON. Example: minutebook demo --session | minutebook tokens -",
)
@json_option("Print the figures as JSON. Example: minutebook demo --json")
def command(seed: int, turns: int, max_tokens: int, serve: bool, only_session: bool) -> None:
    """Replay a coding agent's session and compare what is sent: everything, a window, or a token budget.

    The session is simulated and no model is called. Three managers build the view of every model call; the table shows
    their tokens and cost.

    With --serve the session runs through the service on a SQLite file, with the official openai client in front of it and
    a scripted provider with a context window of --max-tokens behind it. All data is removed afterwards.

    Example: minutebook demo --session | minutebook view - --max-tokens 8000
    """
    from minutebook.testing import coding_session

    session = coding_session(seed, turns)
    if only_session:
        click.echo(json.dumps({"id": f"demo-{seed}", "messages": session}, indent=2))
    elif serve:
        try:
            from minutebook.cli.commands.demo_service import run_session
        except ModuleNotFoundError as error:
            from minutebook.errors import MissingExtra

            raise MissingExtra(error.name or "fastapi", "service") from error
        run_session(session, turns, max_tokens)
    else:
        _compare(session, turns, max_tokens)


def _compare(session: list[dict[str, Any]], turns: int, budget: int) -> None:
    from minutebook import PassthroughManager, SlidingWindowManager, TokenBudgetManager, Transcript

    managers = {
        "everything": PassthroughManager(),
        f"last {WINDOW} messages": SlidingWindowManager(window_size=WINDOW),
        f"{budget:,} tokens": TokenBudgetManager(max_tokens=budget),
    }
    results = [{"manager": name, **replay(session, manager, budget)} for name, manager in managers.items()]
    tokens = Transcript(session).tokens
    record = {"messages": len(session), "tokens": tokens, "turns": turns}
    emit({"record": record, "budget": budget, "managers": results}, lambda: _show(results, record, budget))


def replay(session: list[dict[str, Any]], manager: Any, budget: int) -> dict[str, Any]:
    """Figures of the views that a manager builds before each message of the assistant."""
    from minutebook import CannotFit, Transcript
    from minutebook.history.cache_cost import CacheLedger
    from minutebook.record.validation import is_valid

    record, ledger, figures = Transcript(), CacheLedger(), Counter[str]()
    for message in session:
        if message["role"] == "assistant":
            figures["calls"] += 1
            try:
                view = manager.curate(record)
            except CannotFit:
                figures["refused"] += 1
            else:
                unchanged = {
                    index
                    for index, sent in zip(view.origins, view, strict=True)
                    if index is not None and record[index] is sent
                }
                sizes = [
                    record.tokens_of(index) if index in unchanged else record.counter.message(sent)
                    for index, sent in zip(view.origins, view, strict=True)
                ]
                figures["peak_tokens"] = max(figures["peak_tokens"], sum(sizes))
                figures["over_budget"] += sum(sizes) > budget
                figures["invalid"] += not is_valid(view)
                figures["first_request_kept"] += record.first_request in unchanged
                figures["newest_request_kept"] += record.newest_request in unchanged
                ledger.send(view, sizes)
        record.append(message)
    names = ("calls", "peak_tokens", "over_budget", "invalid", "refused", "first_request_kept", "newest_request_kept")
    return {
        **{name: figures[name] for name in names},
        "input_tokens": ledger.tokens,
        "cached_tokens": ledger.cached,
        "dollars": round(ledger.cost * DOLLARS_PER_MILLION / 1_000_000, 4),
    }


def _show(results: list[dict[str, Any]], record: dict[str, int], budget: int) -> None:
    from rich.text import Text

    from minutebook.cli.screen import console, headed_table

    out = console()
    out.print(Text("minutebook stores every message and sends the model only what fits.", "bold"))
    out.print(
        f"\nA session of a coding agent: {record['turns']} user messages, {record['messages']:,} messages in all, "
        f"{record['tokens']:,} tokens, {results[0]['calls']} model calls.\n"
        "Each column is one way to choose the messages of a call. (Simulated: no model was called.)\n"
    )
    table = headed_table()
    table.add_column("over all model calls", no_wrap=True)
    for result in results:
        table.add_column(result["manager"], justify="right", style="bold green" if result is results[-1] else None)
    for title, template in ROWS:
        table.add_row(title.format(budget=budget), *(template.format_map(result) for result in results))
    out.print(table)
    out.print(
        f"${DOLLARS_PER_MILLION:.2f} per million input tokens; a cache read costs a tenth of that, a write 1.25 times.\n"
        "The window moves with every message, so little is read from the cache. The budget cuts rarely.\n"
    )
    program = _program()
    out.print(Text("Next steps", "bold"))
    for arguments, purpose in (
        ("demo --session > session.json", "write the session to a file"),
        ("view session.json --max-tokens 8000", "what is sent, and why the rest is not"),
        ("tokens session.json --model claude-sonnet-4-5", "its tokens"),
        ("check session.json --provider all", "what a provider would reject"),
    ):
        out.print(Text(f"  {program} {arguments:<46}", "cyan"), Text(f"# {purpose}", "dim"), soft_wrap=True)


def _program() -> str:
    """`minutebook`, or the path of the running program if that is called minutebook and none is on the PATH."""
    path = Path(sys.argv[0])
    return "minutebook" if shutil.which("minutebook") or path.name != "minutebook" else os.path.relpath(path)
