"""The cuts of a history manager as folds, so that messages that the manager left out stay out after a compaction."""

from collections.abc import Iterable, Iterator, Sequence
from operator import is_

from minutebook.compaction.strategy import CompactionInput, essential_indexes, indexes_outside
from minutebook.errors import CannotFit
from minutebook.history.compose import curated_view
from minutebook.history.curation import Curated
from minutebook.history.protocol import NO_CONTEXT, HistoryManager, SessionProtocol
from minutebook.record.fold import Fold, record_with_folds


def view_with_cuts(
    history: CompactionInput, manager: HistoryManager, session: SessionProtocol | None
) -> Curated | None:
    """The manager's view of the conversation; None if the manager cuts nothing.

    Also None if the manager raises `CannotFit`: the compaction may make the conversation fit.
    """
    folded = history.shown
    try:
        view = curated_view(manager, folded, session, NO_CONTEXT)
    except CannotFit:
        return None
    uncut = folded.coherent()
    if len(view) == len(uncut) and all(map(is_, view, uncut)):
        return None
    return view


def cut_folds(history: CompactionInput, view: Curated, added: Sequence[Fold] = ()) -> list[Fold]:
    """Folds after which the conversation has only the messages of the view and those that the folds `added` show."""
    history_with_added = history.with_folds(added)
    remaining = set(history_with_added.active_folds)
    # The view has the messages of exactly these fold objects, also if equal folds were read from a store since then.
    earlier_folds = [fold for fold in record_with_folds(history.record, history.folds).folds if fold in remaining]
    return [*_cut_exchanges(history_with_added, view), *_cut_messages_of_folds(earlier_folds, view)]


def _cut_exchanges(history: CompactionInput, view: Curated) -> Iterator[Fold]:
    """Folds over the exchanges that the view changes or leaves out.

    Neighbouring exchanges that are left out for the same reason get one fold.
    """
    record, notes = history.record, view.notes()
    sent = dict(zip(view.origins, view, strict=True))
    source = record.coherent()
    unchanged = {source.position_of(index): message for index, message in enumerate(source)}
    essential = essential_indexes(history)
    dropped: list[Fold] = []
    ranges = [range(fold.start, fold.stop) for fold in history.active_folds]
    for index in indexes_outside(range(history.leading.stop, len(record)), ranges):
        exchange = record.exchange_of(index)
        if exchange.start != index:
            continue
        shown = tuple(sent[position] for position in exchange if position in sent)
        reasons = [note.reason for position in exchange if (note := notes.get(position)) is not None]
        reason = reasons[0] if reasons else "left out by the history manager"
        if not shown and essential.isdisjoint(exchange):
            start = exchange.start
            if dropped and dropped[-1].stop == start and dropped[-1].reason == reason:
                start = dropped.pop().start
            dropped.append(Fold(f"cut-{start}-{exchange.stop}", start, exchange.stop, (), reason))
        elif shown and any(sent.get(position) is not unchanged.get(position) for position in exchange):
            yield Fold(f"cut-{exchange.start}-{exchange.stop}", exchange.start, exchange.stop, shown, reason)
    yield from dropped


def _cut_messages_of_folds(folds: Iterable[Fold], view: Curated) -> Iterator[Fold]:
    """Replacements for folds that show messages which the view leaves out. They show only the other messages."""
    ids_in_view = {id(message) for message in view}
    for fold in folds:
        shown = tuple(message for message in fold.shown if id(message) in ids_in_view)
        if len(shown) < len(fold.shown):
            yield Fold(f"cut-{fold.start}-{fold.stop}", fold.start, fold.stop, shown, fold.reason)
