"""`minutebook compact`: show the old part of a conversation as a summary."""

import json
from typing import TYPE_CHECKING

import click

from minutebook.cli.exits import FAILED, Command
from minutebook.cli.options import json_option, store_options

if TYPE_CHECKING:
    from minutebook.cli.folding import Report


@click.command("compact", cls=Command, short_help="Show the old part of a conversation as a summary.")
@click.argument("conversation", metavar="ID")
@click.option(
    "--strategy",
    metavar="NAME",
    help="summarize, truncate, turns or hybrid: fold when the window gets full, as an agent does before a call. "
    "Example: --strategy hybrid --model gpt-4o",
)
@click.option(
    "--model", metavar="MODEL", help="Whose tokens are counted, and whose window it is. Example: --model gpt-4o"
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="How much the window holds, for --strategy. Example: --strategy truncate --max-tokens 32000",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Change nothing; say what would be folded. Example: minutebook compact order-17 --dry-run",
)
@store_options
@json_option("Print one JSON document: the folds and what they save. Example: minutebook compact order-17 --json")
@click.pass_context
def command(
    ctx: click.Context,
    conversation: str,
    strategy: str | None,
    model: str | None,
    max_tokens: int | None,
    dry_run: bool,
    url: str | None,
    tenant: str,
    as_json: bool,
) -> None:
    """Fold the old part of the conversation ID: the record stays, views show less of it, and undo brings it back.

    Without --strategy, all but the last 3 turns are summed up, whether that is due or not. With it, a strategy decides
    by how full the window is. Summaries are extracts of what was said, made without a model.

    Example: minutebook compact order-17 --dry-run
    """
    from minutebook.cli.database import opened_database
    from minutebook.cli.folding import by_strategy, by_turns, rehearsal

    if strategy is None and max_tokens is not None:
        raise click.UsageError("--max-tokens needs a --strategy, which folds when the window gets full.")
    if strategy is not None and model is None and max_tokens is None:
        raise click.UsageError("--strategy needs --model or --max-tokens: how much the window holds.")
    with opened_database(url, tenant) as database:
        store = database.run(rehearsal(database.store, conversation)) if dry_run else database.store
        if strategy is None:
            report = database.run(by_turns(store, conversation, model))
        else:
            report = database.run(by_strategy(store, conversation, strategy, model, max_tokens))
    if as_json:
        click.echo(json.dumps({**report.document(), "dry_run": dry_run}, indent=2))
    else:
        _show(report, dry_run=dry_run)
    if report.failed:
        ctx.exit(FAILED)


def _show(report: "Report", *, dry_run: bool) -> None:
    from minutebook.cli.screen import percent

    if not report.folds:
        said = "could not be compacted" if report.failed else "nothing to fold"
        click.echo(f"{report.conversation!r}: {said}: {report.reason}", err=report.failed)
        return
    for fold in report.folds:
        done = "would be folded" if dry_run else f"are folded as {fold.id}"
        click.echo(f"messages {fold.start}-{fold.stop - 1} {done}: {fold.reason}")
    if report.reason:
        click.echo(report.reason)
    before, after = report.tokens_before, report.tokens_after
    click.echo(f"tokens  {before:,} → {after:,} ({percent(after, before)}), counted with {report.counter}")
    click.echo("summaries are extracts, made without a model", err=True)
    if not dry_run:
        for fold in reversed(report.folds):
            click.echo(f"undo it with: minutebook undo {report.conversation} {fold.id}", err=True)
