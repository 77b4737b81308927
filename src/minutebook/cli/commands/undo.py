"""`minutebook undo`: undo a compaction."""

from collections.abc import Sequence

import click

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, emit, json_option
from minutebook.errors import FoldNotFound
from minutebook.store.types import StoredFold


@click.command("undo", cls=Command, short_help="Undo a compaction.")
@click.argument("conversation", metavar="ID")
@click.argument("fold")
@database_options()
@json_option("Print the fold that was undone as JSON. Example: minutebook undo order-17 4f1c --json")
def command(database: Database, conversation: str, fold: str) -> None:
    """Undo a compaction of conversation ID: models get the original messages again, byte for byte.

    FOLD is the id that compact and show print, or a unique prefix of it.

    Example: minutebook undo order-17 4f1c
    """
    folds = database.run(database.store.folds(conversation))
    undone = database.run(database.store.undo_fold(conversation, _fold_id(conversation, fold, folds))).fold
    emit(
        {"conversation": conversation, "id": undone.id, "start": undone.start, "stop": undone.stop},
        f"messages {undone.start}-{undone.stop - 1} of {conversation!r} are no longer folded (fold {undone.id} was undone)",
    )


def _fold_id(conversation: str, prefix: str, folds: Sequence[StoredFold]) -> str:
    """The id that equals the prefix, or the only one that starts with it."""
    ids = [stored.fold.id for stored in folds]
    matches = [fold_id for fold_id in ids if fold_id.startswith(prefix)]
    if prefix in ids:
        return prefix
    if len(matches) == 1:
        return matches[0]
    error = FoldNotFound(conversation, prefix)
    active = [stored.fold.id for stored in folds if stored.undone_at is None]
    error.add_note(f"active folds: {', '.join(active)}" if active else "the conversation has no active folds")
    raise error
