"""`minutebook undo`: undo a compaction."""

from collections.abc import Sequence

import click

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, dry_run_option, emit, json_option
from minutebook.errors import FoldNotFound
from minutebook.store.types import StoredFold


@click.command("undo", cls=Command, short_help="Undo a compaction.")
@click.argument("conversation", metavar="ID")
@click.argument("fold")
@dry_run_option
@database_options()
@json_option("Print the fold that was undone as JSON. Example: minutebook undo order-17 4f1c --json")
def command(database: Database, conversation: str, fold: str, dry_run: bool) -> None:
    """Undo a compaction of conversation ID: models get the original messages again, byte for byte.

    FOLD is the id that compact and show print, or a unique prefix of it.

    Example: minutebook undo order-17 4f1c
    """
    folds = database.run(database.store.folds(conversation))
    stored = _stored_fold(conversation, fold, folds)
    if not dry_run:
        stored = database.run(database.store.undo_fold(conversation, stored.fold.id))
    undone = stored.fold
    messages = f"messages {undone.start}-{undone.stop - 1} of {conversation!r}"
    effect = (
        f"would no longer be folded (fold {undone.id})"
        if dry_run
        else f"are no longer folded (fold {undone.id} was undone)"
    )
    emit(
        {
            "conversation": conversation,
            "id": undone.id,
            "start": undone.start,
            "stop": undone.stop,
            "dry_run": dry_run,
        },
        f"{messages} {effect}",
    )


def _stored_fold(conversation: str, prefix: str, folds: Sequence[StoredFold]) -> StoredFold:
    """The fold whose id equals the prefix, or the only one whose id starts with it."""
    matches = [stored for stored in folds if stored.fold.id.startswith(prefix)]
    exact = [stored for stored in matches if stored.fold.id == prefix]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    error = FoldNotFound(conversation, prefix)
    active = [stored.fold.id for stored in folds if stored.undone_at is None]
    error.add_note(f"active folds: {', '.join(active)}" if active else "the conversation has no active folds")
    raise error
