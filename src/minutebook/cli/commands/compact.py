"""`minutebook compact`: show the old part of a stored conversation as a summary, by turns or by a strategy."""

import warnings
from dataclasses import replace
from typing import Any

import click

from minutebook import counter_for, model_info
from minutebook.cli.database import opened_database
from minutebook.cli.exits import FAILED, Command
from minutebook.cli.options import count_option, emit, flag, json_option, store_options
from minutebook.cli.screen import percent
from minutebook.compaction.manager import CompactionManager, CompactionResult
from minutebook.conversation.compactor import FoldStorage, TurnCompactor
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import InvalidSetting
from minutebook.store.base import ConversationStore
from minutebook.store.memory import MemoryStore
from minutebook.tokens import TokenCounter
from minutebook.tokens.models import ModelInfo, UnknownModel


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
@count_option(
    "--max-tokens",
    help_text="How much the window holds, for --strategy. Example: --strategy truncate --max-tokens 32000",
)
@flag("--dry-run", help_text="Change nothing; say what would be folded. Example: minutebook compact order-17 --dry-run")
@store_options
@json_option("Print one JSON document: the folds and what they save. Example: minutebook compact order-17 --json")
def command(
    conversation: str,
    strategy: str | None,
    model: str | None,
    max_tokens: int | None,
    dry_run: bool,
    url: str | None,
    tenant: str,
) -> int:
    """Fold the old part of the conversation ID: the record stays, views show less of it, and undo brings it back.

    Without --strategy, all but the last 3 turns are summed up, whether that is due or not. With it, a strategy decides
    by how full the window is. Summaries are extracts of what was said, made without a model.

    Example: minutebook compact order-17 --dry-run
    """
    if strategy is None and max_tokens is not None:
        raise click.UsageError("--max-tokens needs a --strategy, which folds when the window gets full.")
    if strategy is not None and model is None and max_tokens is None:
        raise click.UsageError("--strategy needs --model or --max-tokens: how much the window holds.")
    with opened_database(url, tenant) as database:
        store = database.run(rehearsal(database.store, conversation)) if dry_run else database.store
        counter = counter_for(model)
        if strategy is None:
            result = database.run(TurnCompactor(store, counter=counter).compact(conversation))
        else:
            result = database.run(by_strategy(store, conversation, strategy, _window(model, max_tokens), counter))
    about = {"conversation": conversation, "strategy": strategy, "summarizer": "extractive", "counter": counter.name}
    emit(
        {**about, **_document(result), "dry_run": dry_run},
        lambda: _show(conversation, result, counter.name, dry_run=dry_run),
    )
    return FAILED if _is_failed(result) else 0


def _show(conversation: str, result: CompactionResult, counter: str, *, dry_run: bool) -> None:
    if not result:
        said = "could not be compacted" if _is_failed(result) else "nothing to fold"
        click.echo(f"{conversation!r}: {said}: {result.reason}", err=_is_failed(result))
        return
    for fold in result.added:
        done = "would be folded" if dry_run else f"are folded as {fold.id}"
        click.echo(f"messages {fold.start}-{fold.stop - 1} {done}: {fold.reason}")
    if reason := _reason(result):
        click.echo(reason)
    before, after = result.tokens_before or 0, result.tokens_after or 0
    click.echo(f"tokens  {before:,} → {after:,} ({percent(after, before)}), counted with {counter}")
    click.echo("summaries are extracts, made without a model", err=True)
    if not dry_run:
        for fold in reversed(result.added):
            click.echo(f"undo it with: minutebook undo {conversation} {fold.id}", err=True)


def _document(result: CompactionResult) -> dict[str, Any]:
    return {
        "folds": [
            {"id": fold.id, "start": fold.start, "stop": fold.stop, "reason": fold.reason} for fold in result.added
        ],
        "tokens_before": result.tokens_before or 0,
        "tokens_after": result.tokens_after or 0,
        "reason": _reason(result),
        "failed": _is_failed(result),
    }


def _reason(result: CompactionResult) -> str:
    """Why nothing was folded, or why more than the strategy asked for; each fold has its own reason."""
    if result:
        fallback = result.event.fallback if result.event is not None else None
        return f"the middle was truncated: {fallback}" if fallback else ""
    return result.reason


def _is_failed(result: CompactionResult) -> bool:
    return not result and result.error is not None


async def rehearsal(store: ConversationStore, conversation: str) -> ConversationStore:
    """A copy of one conversation in memory, with which anything may be tried."""
    copy = MemoryStore(tenant=store.tenant)
    await copy.import_(store.export(conversation))
    return copy


async def by_strategy(
    store: ConversationStore, conversation: str, name: str, window: ModelInfo, counter: TokenCounter
) -> CompactionResult:
    """Fold what the strategy says before the next call of a model with such a window.

    Raises:
        UnknownName: there is none of that name.
        CannotFit: what must be sent is larger than the window.
    """
    loaded = await store.load(conversation)
    keep = FoldStorage(store, conversation, loaded.folds).keep
    manager = CompactionManager(name, window, folds=loaded.folds, keep=keep)
    record = ViewSource(loaded, (), counter=counter, whole=True).record
    before = manager.situation(record)
    result = await manager.check_and_apply(record)
    if result or result.error is not None:
        return result
    share = f"{before.tokens:,} of {before.limit:,} tokens are in the window"
    reason = f"not due: {share}" if result.outcome == "not due" else f"{share}, and nothing makes it shorter"
    return replace(result, reason=reason, tokens_before=before.tokens, tokens_after=before.tokens)


def _window(model: str | None, max_tokens: int | None) -> ModelInfo:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownModel)  # an error here: a guessed window would fold what need not be
        info = model_info(model or "any", max_input_tokens=max_tokens)
    if not info.is_known:
        raise InvalidSetting("--model", model, "a model that is known, or --max-tokens as well")
    return info
