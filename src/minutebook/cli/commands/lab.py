"""`minutebook lab`: replay recorded sessions under history policies, and compare cost and recall."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import count_option, emit, json_option, model_option
from minutebook.cli.screen import console, headed_table
from minutebook.errors import MissingSetting
from minutebook.lab.page import html_page
from minutebook.lab.policies import PolicySpec, file_policies
from minutebook.lab.prompt_cache import billing_of
from minutebook.lab.replay import FULL
from minutebook.lab.report import Report, evaluate
from minutebook.lab.sessions import RecordedSession, load_sessions

DEFAULT_POLICIES = ("token_budget", "token_budget:target=0.3", "sliding_window:40", "tool_result_clearer")
DEFAULT_BUDGET = 32_000


@click.command("lab", cls=Command, short_help="Replay recorded sessions: what would each policy have cost and kept?")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--policy", "policies", metavar="POLICY|FILE.py", multiple=True, type=click.Path(),
    help="A history manager by name, or a Python file with POLICIES, a dict from names to functions that take the budget "
    f"and return a manager. Default: {', '.join(DEFAULT_POLICIES)}. Example: --policy token_budget:target=0.3",
)  # fmt: skip
@count_option(
    "--max-tokens", default=DEFAULT_BUDGET, help_text="Budget of a view in tokens. Example: --max-tokens 64000"
)
@count_option("--min-messages", default=1, help_text="Leave shorter sessions out. Example: --min-messages 60")
@count_option("--jobs", help_text="Number of processes. Default: one per core. Example: --jobs 1")
@model_option
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write the report as an HTML page with a plot. Example: --html report.html",
)  # fmt: skip
@json_option("Print all figures with their intervals as JSON. Example: minutebook lab ~/.claude/projects --json")
def command(
    paths: Sequence[str],
    policies: Sequence[str],
    max_tokens: int,
    min_messages: int,
    jobs: int | None,
    model: str | None,
    html: Path | None,
) -> None:
    """Replay the sessions of files and folders under several policies, without a model.

    At each point where the model was called, each policy builds its view. The cost is relative to sending the full history
    with the prompt cache; --model uses that model's prices. Names and quotes are the names and lines that the recorded
    answer used and the view still had.

    Example: minutebook lab ~/.claude/projects --max-tokens 32000
    """
    specs = _policies(policies or DEFAULT_POLICIES)
    sessions = load_sessions(paths, min_messages=min_messages, model=model)
    with console(stderr=True).status("replaying") as status:
        count = 0

        def advance(session: RecordedSession) -> None:
            nonlocal count
            count += 1
            status.update(f"replayed {count:,} sessions, last {session.id[:60]}")

        report = evaluate(
            specs, sessions, budget=max_tokens, billing=billing_of(model) if model else None, jobs=jobs, advance=advance
        )
    if not report.sessions:
        raise MissingSetting("sessions", f"no session has {min_messages:,} messages; use a smaller --min-messages")
    if html is not None:
        html.write_text(html_page(report), encoding="utf-8")
    emit(report.to_json(), partial(_show, report, html))


def _policies(texts: Sequence[str]) -> dict[str, PolicySpec]:
    policies: dict[str, PolicySpec] = {}
    for text in texts:
        policies |= file_policies(text) if ".py" in text else {text: text}
    return policies


def _show(report: Report, html: Path | None) -> None:
    out = console()
    out.print(f"{report.sessions:,} sessions, {report.messages:,} messages, budget {report.budget:,} tokens")
    table = headed_table()
    for title in ("policy", "cost", "re-reads", "names", "quotes", "dearer", "over", "refused", "ms"):
        table.add_column(title, justify="left" if title == "policy" else "right", no_wrap=True)
    pareto = report.pareto()
    for result in report.results:
        dearer = f"{len(result.dearer):,} (to {result.worst_ratio:.2f})" if result.dearer else "0"
        table.add_row(
            f"{result.name} *" if result.name in pareto else result.name,
            f"{result.measure('cost'):.2f}",
            f"{result.measure('cost with re-reads'):.2f}",
            f"{result.measure('names'):.1%}",
            f"{result.measure('quotes'):.1%}",
            dearer,
            f"{result.total('over'):,}",
            f"{result.total('refused'):,}",
            f"{result.milliseconds:.1f}",
        )
    out.print(table)
    out.print(_notes(report), style="dim")
    if html is not None:
        out.print(f"wrote {html}")


def _notes(report: Report) -> str:
    notes = [
        "cost: relative to the full history with the prompt cache. re-reads: and reading missed lines again.",
        "names, quotes: what the recorded answers used that was still in view. dearer: sessions above 1.00.",
        "* no other policy is cheaper and keeps as many names and quotes.",
    ]
    names = [result.name for result in report.results if result.name != FULL]
    if len(names) > 1:
        low, high = report.difference(names[0], names[1], "cost")
        verdict = "show no difference in cost" if low <= 0 <= high else f"differ in cost by {low:+.2f} to {high:+.2f}"
        notes.append(f"{names[0]} and {names[1]} {verdict} on these sessions.")
    return "\n".join(notes)
