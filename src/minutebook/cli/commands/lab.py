"""`minutebook lab`: replay recorded sessions under history policies, and compare cost and recall."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from minutebook.cli.exits import Command
from minutebook.cli.lab.inputs import (
    LabInput,
    lab_options,
    policies_from_options,
    policies_from_text,
    policy_options,
)
from minutebook.cli.lab.tables import show_difference, show_report, show_shadow, show_tuning
from minutebook.cli.options import count_option, emit, json_option, store_options
from minutebook.errors import InvalidSetting, MissingSetting
from minutebook.lab.outcome import Miss, SessionOutcome
from minutebook.lab.page import html_page
from minutebook.lab.report import Report, evaluate
from minutebook.lab.settings_search import GOALS, tune
from minutebook.lab.shadow import shadow_groups

_MAX_MISSES_PER_SESSION = 100_000
_ROUNDS = 3
"""How often `tune` reads the sessions."""


class LabGroup(click.Group):
    """A group whose default command is `run`: `minutebook lab PATH…` is `minutebook lab run PATH…`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("lab", cls=LabGroup, short_help="Replay recorded sessions: what would each policy have cost and kept?")
def command() -> None:
    """Replay recorded sessions under history policies, without a model: what would each have cost, and what would it have kept?

    `minutebook lab PATH…` is short for `minutebook lab run PATH…`. A path is a file or a folder in any format that
    `minutebook formats` lists, or a minutebook database: its file or its URL.

    Example: minutebook lab ~/.claude/projects
    """


@command.command("run", cls=Command, short_help="Compare policies on recorded sessions (the default).")
@lab_options
@policy_options
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write the report as an HTML page with a plot. Example: --html report.html",
)  # fmt: skip
@click.option(
    "--resume", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Store finished sessions in this file, and do not replay those that it already has. Example: --resume lab.jsonl",
)  # fmt: skip
@json_option("Print all figures with their intervals as JSON. Example: minutebook lab ~/.claude/projects --json")
def run(
    lab_input: LabInput, policies: Sequence[str], peers: Sequence[str], html: Path | None, resume: Path | None
) -> None:
    """Replay sessions under several policies and compare them.

    At each point where the model was called, each policy builds its view. The cost is relative to sending the full history
    with the prompt cache. A recorded answer uses names and lines of earlier messages: the columns "names" and "quotes" show
    which share of them was in the view.

    Example: minutebook lab ~/.claude/projects --max-tokens 32000
    """
    specs = policies_from_options(policies, peers, lab_input.budget)
    if html is not None:
        html.open("a").close()  # a file that cannot be written is an error before the replay, not after it
    with lab_input.progress():
        report = evaluate(
            specs,
            lab_input.sessions(),
            budget=lab_input.budget,
            billing=lab_input.billing,
            jobs=lab_input.jobs,
            progress_file=resume,
        )
    lab_input.require_sessions(report)
    lab_input.print_skipped()
    if html is not None:
        html.write_text(html_page(report), encoding="utf-8")
    emit(report.to_json(), partial(show_report, report, html))


@command.command("tune", cls=Command, short_help="Search settings for a goal.")
@lab_options
@click.option(
    "--goal", type=click.Choice(GOALS), default="cost", show_default=True,
    help="cost: the lowest cost with a recall at most one percentage point below the default's. rereads: the lowest cost including "
    "re-reads. recall: the most names and quotes at no more cost than the default. Example: --goal recall",
)  # fmt: skip
@json_option("Print the settings and all figures as JSON. Example: minutebook lab tune ~/.claude/projects --json")
def tune_settings(lab_input: LabInput, goal: str) -> None:
    """Search settings of token_budget on one half of the sessions, and report on the other half.

    The halves are chosen by the ids of the sessions, so a session is in the same half in every run.

    Example: minutebook lab tune ~/.claude/projects --goal cost
    """
    with lab_input.progress(_ROUNDS):
        tuning = tune(lab_input.sessions, goal, budget=lab_input.budget, billing=lab_input.billing, jobs=lab_input.jobs)
    lab_input.print_skipped()
    value = {
        "goal": goal,
        "policy": tuning.policy,
        "settings": tuning.settings,
        "tried": tuning.tried,
        "search": tuning.search.to_json(),
        "test": tuning.test.to_json(),
    }
    emit(value, partial(show_tuning, tuning))


@command.command("diff", cls=Command, short_help="Show where two policies differ.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@lab_options
@count_option("--sessions", default=5, help_text="Maximum number of sessions to show. Example: --sessions 20")
@count_option(
    "--lines", default=5, help_text="Maximum number of missed lines per session and policy. Example: --lines 50"
)
@json_option(
    "Print the sessions and all missed lines as JSON. Example: minutebook lab diff token_budget sliding_window:40 log.json --json"
)
def diff(lab_input: LabInput, first: str, second: str, sessions: int, lines: int) -> None:
    """Compare two policies session by session. The sessions in which they differ most come first.

    A and B are policies as in --policy of `minutebook lab run`. Differences are in cost and in the lines that an answer used
    and that only one of the two views had.

    Example: minutebook lab diff token_budget token_budget:target=0.3 ~/.claude/projects
    """
    specs = {**policies_from_text(first, lab_input.budget), **policies_from_text(second, lab_input.budget)}
    if len(specs) != 2:
        raise InvalidSetting("policies", f"{first} {second}", "two different policies, not a file with several")
    with lab_input.progress():
        report = evaluate(
            specs,
            lab_input.sessions(),
            budget=lab_input.budget,
            billing=lab_input.billing,
            jobs=lab_input.jobs,
            max_misses=_MAX_MISSES_PER_SESSION,
        )
    lab_input.require_sessions(report)
    lab_input.print_skipped()
    pairs = _different_sessions(report)
    rows = [
        (
            left.session,
            f"{left.ratio:.3f} and {right.ratio:.3f}",
            f"{left.cuts} and {right.cuts}",
            _without(left.misses, right.misses)[:lines],
            _without(right.misses, left.misses)[:lines],
        )
        for left, right in pairs[:sessions]
    ]
    emit([_pair_json(left, right) for left, right in pairs], partial(show_difference, report, rows))


def _different_sessions(report: Report) -> list[tuple[SessionOutcome, SessionOutcome]]:
    """The outcomes of both policies in the sessions in which they differ, the largest differences first."""
    first, second = report.results[1:]
    pairs = [
        (left, right)
        for left, right in zip(first.outcomes, second.outcomes, strict=True)
        if (left.cost, left.misses) != (right.cost, right.misses)
    ]

    def size(pair: tuple[SessionOutcome, SessionOutcome]) -> tuple[int, float]:
        left, right = pair
        missed = len(_without(left.misses, right.misses)) + len(_without(right.misses, left.misses))
        return missed, abs(left.ratio - right.ratio)

    return sorted(pairs, key=size, reverse=True)


def _without(misses: Sequence[Miss], others: Sequence[Miss]) -> list[Miss]:
    known = set(others)
    return [miss for miss in misses if miss not in known]


def _pair_json(left: SessionOutcome, right: SessionOutcome) -> dict[str, Any]:
    left_json, right_json = left.to_json(), right.to_json()
    del left_json["misses"], right_json["misses"]
    return {
        "session": left.session,
        "a": left_json,
        "b": right_json,
        "missed only by a": _misses_json(_without(left.misses, right.misses)),
        "missed only by b": _misses_json(_without(right.misses, left.misses)),
    }


def _misses_json(misses: Sequence[Miss]) -> list[dict[str, Any]]:
    return [{"call": miss.call, "source": miss.source, "text": miss.text} for miss in misses]


@command.command("shadow", cls=Command, short_help="Show what a service recorded in shadow mode.")
@click.argument("database", metavar="DB", type=click.Path(), required=False)
@store_options
@count_option("--jobs", help_text="Number of processes. Default: one per core. Example: --jobs 1")
@json_option("Print the figures by policy as JSON. Example: minutebook lab shadow chat.db --json")
def shadow(database: str | None, url: str | None, tenant: str, jobs: int | None) -> None:
    """Show what pruning would have saved and lost in the conversations that a service recorded in shadow mode.

    They are replayed with the settings that the requests were recorded with, as if the mode had been `on`. DB is the SQLite file or
    the URL of the service's database; --db and $MINUTEBOOK_DB name it, too.

    Example: minutebook lab shadow chat.db
    """
    from minutebook.cli.database import file_of, require_file, store_of
    from minutebook.lab.databases import open_conversations

    store = store_of(database or url, tenant)
    if (path := file_of(store)) is not None:
        require_file(path)
    with open_conversations(store) as stored:
        groups = shadow_groups(stored, jobs=jobs)
    if not groups:
        advice = "set conversation.retention.mode to shadow in llm_config.yaml"
        raise MissingSetting("a request recorded in shadow mode", advice)
    emit([group.to_json() for group in groups], partial(show_shadow, groups))
