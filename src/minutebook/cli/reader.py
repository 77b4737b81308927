"""A conversation as people read it: who said what, one message after the other, with its folds."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from minutebook.cli.headers import moment
from minutebook.cli.screen import ROLE_LOOK, console, preview, printable, role_family
from minutebook.record.fold import Fold
from minutebook.record.message import Message, call_ids, is_result, role_of, text_of
from minutebook.store.types import Loaded

FOLD_LOOK = "blue"


@dataclass(frozen=True, slots=True)
class Row:
    """A message at its place, or what is said about a fold where it begins."""

    mark: str
    place: str
    who: Text
    said: Text


def show(loaded: Loaded, *, folded: bool) -> None:
    """Print the header and what was loaded."""
    one, out = loaded.conversation, console()
    about = f"{one.turns:,} turns, {one.length:,} messages, {one.status.value}, updated {moment(one.updated_at)}"
    out.print(Text(f"{printable(one.id)} with {printable(one.recipient)}: {about}", "bold"))
    if one.origin is not None:
        out.print(f"forked from {printable(one.origin.conversation)} at {one.origin.position:,}")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(style=FOLD_LOOK, width=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in _folded_rows(loaded) if folded else _rows(loaded):
        grid.add_row(row.mark, row.place, row.who, row.said)
    out.print(grid)


def _rows(loaded: Loaded) -> Iterator[Row]:
    """Every message of the record; those that a fold covers are marked."""
    folds = iter(loaded.folds)
    fold = next(folds, None)
    told: Fold | None = None
    for position, message in zip(loaded.positions, loaded.messages, strict=True):
        while fold is not None and fold.stop <= position:
            fold = next(folds, None)
        inside = fold is not None and fold.start <= position
        if fold is not None and inside and fold is not told:
            yield _about(fold)
            told = fold
        yield _row("│" if inside else "", f"{position}", message)


def _folded_rows(loaded: Loaded) -> Iterator[Row]:
    """The messages as a view begins with them: what a fold shows stands in the place of what it covers."""
    shown: Iterable[tuple[int | None, Message]] = loaded.shown()
    coming = (fold for fold in loaded.folds for _ in fold.shown)
    told: Fold | None = None
    for position, message in shown:
        if position is not None:
            yield _row("", f"{position}", message)
            continue
        fold = next(coming)
        if fold is not told:
            yield _about(fold)
            told = fold
        yield _row("│", "", message)


def _about(fold: Fold) -> Row:
    text = f"{fold.start}-{fold.stop - 1} folded as {printable(fold.id)}: {printable(fold.reason)}"
    return Row("┌", "", Text("fold", FOLD_LOOK), Text(text, FOLD_LOOK))


def _row(mark: str, place: str, message: Message) -> Row:
    family = role_family(role_of(message))
    return Row(mark, place, Text(role_of(message), ROLE_LOOK[family][0]), Text(_said(message)))


def _said(message: Message) -> str:
    """The text, and in one line what else there is: a result may be a whole file, and a call its content."""
    if is_result(message):
        return preview(message)
    text = printable(text_of(message).strip(), besides="\n\t")
    calls = preview({**message, "content": None}) if call_ids(message) else ""
    return "\n".join(filter(None, [text, calls and f"→ {calls}"]))
