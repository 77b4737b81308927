"""`minutebook undo`: show folded messages as they are again."""

from collections.abc import Sequence

import click

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import emit, json_option, on_database
from minutebook.errors import FoldNotFound
from minutebook.store.types import StoredFold


@click.command("undo", cls=Command, short_help="Take a fold away.")
@click.argument("conversation", metavar="ID")
@click.argument("fold")
@on_database()
@json_option("Print one JSON document: the fold that was undone. Example: minutebook undo order-17 4f1c --json")
def command(database: Database, conversation: str, fold: str) -> None:
    """Undo FOLD of the conversation ID: what it covers is shown again as it was before, byte for byte.

    FOLD is the id that compact printed and show shows, or the beginning of it.

    Example: minutebook undo order-17 4f1c
    """
    known = database.run(database.store.folds(conversation))
    undone = database.run(database.store.undo_fold(conversation, _meant(conversation, fold, known))).fold
    emit(
        {"conversation": conversation, "id": undone.id, "start": undone.start, "stop": undone.stop},
        f"messages {undone.start}-{undone.stop - 1} of {conversation!r} are shown as before fold {undone.id}",
    )


def _meant(conversation: str, wanted: str, known: Sequence[StoredFold]) -> str:
    """The fold of that id, or the one whose id begins so."""
    names = [stored.fold.id for stored in known]
    near = [name for name in names if name.startswith(wanted)]
    if wanted in names:
        return wanted
    if len(near) == 1:
        return near[0]
    error = FoldNotFound(conversation, wanted)
    standing = [stored.fold.id for stored in known if stored.undone_at is None]
    error.add_note(f"its folds are {', '.join(standing)}" if standing else "it has no fold that is not undone")
    raise error
