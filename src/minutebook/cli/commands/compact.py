"""`minutebook compact`: compact a stored conversation, by turns or by a strategy."""

import warnings
from dataclasses import replace
from typing import Any

import click

from minutebook import counter_for, model_info
from minutebook.cli.database import open_database
from minutebook.cli.exits import FAILED, Command
from minutebook.cli.options import count_option, dry_run_option, emit, json_option, models_file_option, store_options
from minutebook.cli.screen import percent
from minutebook.compaction.manager import CompactionManager, CompactionResult
from minutebook.conversation.compactor import FoldStorage, TurnCompactor
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import InvalidSetting
from minutebook.store.base import ConversationStore
from minutebook.store.memory import MemoryStore
from minutebook.tokens import TokenCounter
from minutebook.tokens.models import ModelInfo, UnknownModel, load_models


@click.command("compact", cls=Command, short_help="Replace old messages with a summary in the view for models.")
@click.argument("conversation", metavar="ID")
@click.option(
    "--strategy",
    metavar="NAME",
    help="Strategy: summarize, truncate, turns or hybrid. It compacts only if the context window is nearly full. "
    "Example: --strategy hybrid --model gpt-4o",
)
@click.option(
    "--model", metavar="MODEL", help="Model that defines the tokenizer and the context window. Example: --model gpt-4o"
)
@models_file_option
@count_option(
    "--max-tokens",
    help_text="Context window in tokens. Requires --strategy. Example: --strategy truncate --max-tokens 32000",
)
@dry_run_option
@store_options
@json_option("Print the folds and the tokens they save as JSON. Example: minutebook compact order-17 --json")
def command(
    conversation: str,
    strategy: str | None,
    model: str | None,
    models_file: str | None,
    max_tokens: int | None,
    dry_run: bool,
    url: str | None,
    tenant: str,
) -> int:
    """Compact conversation ID: replace its old messages with a summary in the view that is sent to models.

    The record is unchanged, and `undo` reverts the compaction. Each compaction is stored as a fold: a range of messages
    and the summary that replaces it.

    Without --strategy, all but the last 3 turns are summarized, whatever their size. With --strategy, nothing is changed
    unless the context window is nearly full. Summaries are extracts of the messages; no model is called.

    Example: minutebook compact order-17 --dry-run
    """
    if strategy is None and max_tokens is not None:
        raise click.UsageError("--max-tokens requires --strategy.")
    if strategy is not None and model is None and max_tokens is None:
        raise click.UsageError("--strategy requires --model or --max-tokens, which define the context window.")
    with open_database(url, tenant) as database:
        store = database.run(copy_to_memory(database.store, conversation)) if dry_run else database.store
        counter = counter_for(model)
        if strategy is None:
            result = database.run(TurnCompactor(store, counter=counter).compact(conversation))
        else:
            result = database.run(
                compact_by_strategy(store, conversation, strategy, _model_info(model, max_tokens, models_file), counter)
            )
    description = {
        "conversation": conversation,
        "strategy": strategy,
        "summarizer": "extractive",
        "counter": counter.name,
    }
    emit(
        {**description, **_result_json(result), "dry_run": dry_run},
        lambda: _show(conversation, result, counter.name, dry_run=dry_run),
    )
    return FAILED if _has_failed(result) else 0


def _show(conversation: str, result: CompactionResult, counter: str, *, dry_run: bool) -> None:
    if not result:
        status = "could not be compacted" if _has_failed(result) else "nothing to compact"
        click.echo(f"{conversation!r}: {status}: {result.reason}", err=_has_failed(result))
        return
    for fold in result.added:
        action = "would be folded" if dry_run else f"folded as {fold.id}"
        click.echo(f"messages {fold.start}-{fold.stop - 1} {action}: {fold.reason}")
    if reason := _reason(result):
        click.echo(reason)
    before, after = result.tokens_before or 0, result.tokens_after or 0
    click.echo(f"tokens  {before:,} → {after:,} ({percent(after, before)}), counted with {counter}")
    click.echo("the summaries are extracts; no model was called", err=True)
    if not dry_run:
        for fold in reversed(result.added):
            click.echo(f"revert with: minutebook undo {conversation} {fold.id}", err=True)


def _result_json(result: CompactionResult) -> dict[str, Any]:
    return {
        "folds": [
            {"id": fold.id, "start": fold.start, "stop": fold.stop, "reason": fold.reason} for fold in result.added
        ],
        "tokens_before": result.tokens_before or 0,
        "tokens_after": result.tokens_after or 0,
        "reason": _reason(result),
        "failed": _has_failed(result),
    }


def _reason(result: CompactionResult) -> str:
    """Why nothing was compacted or, if the strategy failed or was not enough, what was done instead and why."""
    if not result:
        return result.reason
    if result.event is None or not (fallback_reason := result.event.fallback):
        return ""
    return f"{', then '.join(result.event.methods)}: {fallback_reason}"


def _has_failed(result: CompactionResult) -> bool:
    return not result and result.error is not None


async def copy_to_memory(store: ConversationStore, conversation: str) -> ConversationStore:
    """Copy one conversation into a new store in memory, for a dry run."""
    copy = MemoryStore(tenant=store.tenant)
    await copy.import_(store.export(conversation))
    return copy


async def compact_by_strategy(
    store: ConversationStore, conversation: str, strategy: str, model: ModelInfo, counter: TokenCounter
) -> CompactionResult:
    """Apply the strategy as an agent does before it calls a model with this context window.

    Raises:
        UnknownName: the strategy is unknown.
        CannotFit: the messages that must be sent exceed the context window.
    """
    loaded = await store.load(conversation)
    storage = FoldStorage(store, conversation, loaded.folds)
    manager = CompactionManager(
        strategy, model, folds=loaded.folds, save_fold=storage.save, load_rewinds=storage.rewinds
    )
    record = ViewSource(loaded, (), counter=counter, whole_record=True).record
    compaction_input = manager.compaction_input(record)
    result = await manager.check_and_apply(record)
    if result or result.error is not None:
        return result
    tokens = compaction_input.tokens
    usage = f"{tokens:,} of {compaction_input.limit:,} tokens are used"
    reason = f"not due: {usage}" if result.outcome == "not due" else f"{usage}, and no message can be left out"
    return replace(result, reason=reason, tokens_before=tokens, tokens_after=tokens)


def _model_info(model: str | None, max_tokens: int | None, models_file: str | None) -> ModelInfo:
    # An unknown model is an error here, not a warning: with a guessed window, too much could be compacted.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownModel)
        info = model_info(
            model or "any", max_input_tokens=max_tokens, own=load_models(models_file) if models_file else None
        )
    if not info.is_known:
        raise InvalidSetting("--model", model, "a known model; for an unknown one add --max-tokens or --models-file")
    return info
