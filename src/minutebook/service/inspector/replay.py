"""Builds the requests of a conversation that has no recorded ones, by replaying it under a history manager."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import is_

from minutebook.errors import CannotFit
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.budget.view import MIN_OUTPUT_TOKENS
from minutebook.history.curation import NoteStatus
from minutebook.history.explanation import changed_messages, folds_of_added
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import View, view_of
from minutebook.lab.sessions import call_indexes
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_result, is_user
from minutebook.record.transcript import Transcript
from minutebook.service.inspector.requests import FateRun, RequestSeries, SentPart, ViewBase


def request_lengths(messages: Sequence[Message]) -> Iterator[int]:
    """How many messages the record had at each call of the model. A call that has no answer yet is the last one."""
    yield from call_indexes(messages)
    if messages and (is_user(messages[-1]) or is_result(messages[-1])):
        yield len(messages)


class ViewReplay:
    """Adds a request to the series for every call of a recorded conversation."""

    def __init__(
        self,
        record: Transcript,
        series: RequestSeries,
        manager: HistoryManager,
        *,
        max_tokens: int | None = None,
        folds: Sequence[Fold] = (),
    ) -> None:
        self._record, self._series, self._manager, self._max_tokens = record, series, manager, max_tokens
        self._folds = folds
        self._last: View | None = None
        self._base: ViewBase | None = None
        self._fold_count = 0
        self._has_clipped_results = False
        self._checked_length = 0
        """Number of messages that are known not to be long results."""

    def request(self) -> None:
        """Add the request for the record as it is now."""
        record = self._record
        folds = [fold for fold in self._folds if fold.stop <= len(record)]
        if self._base is not None and self._fits_without_cut(self._base, len(folds)):
            self._series.add(len(record), self._base, folds=frozenset(fold.id for fold in folds))
            return
        try:
            view = view_of(record, self._manager, max_tokens=self._max_tokens, folds=folds)
        except CannotFit as error:
            self._series.add(len(record), None, refusal=str(error))
            self._base = None
            return
        if self._base is None or self._last is None or not _is_continued(self._last, view):
            self._base = view_base(view)
            self._has_clipped_results = any(run.status is NoteStatus.TRUNCATED for run in self._base.runs)
        self._last, self._fold_count, self._checked_length = view, len(folds), len(record)
        self._series.add(len(record), self._base, folds=frozenset(fold.id for fold in folds))

    def _fits_without_cut(self, base: ViewBase, fold_count: int) -> bool:
        """Whether the view is known to be the last one with all new messages appended.

        A `TokenBudgetManager` without an early trigger cuts only above its limit, and clips only long results, after the
        first cut. This saves the checks of a whole view at every request.
        """
        manager, record = self._manager, self._record
        if (
            type(manager) is not TokenBudgetManager
            or manager.settings.early
            or record.findings
            or fold_count != self._fold_count
            or self._has_clipped_results
        ):
            return False
        sums = self._series.token_sums
        new_tokens = (sums[index + 1] - sums[index] for index in range(self._checked_length, len(record)))
        if base.runs and manager.settings.clip and any(tokens >= MIN_OUTPUT_TOKENS for tokens in new_tokens):
            return False
        self._checked_length = len(record)
        return base.tokens + sums[len(record)] - sums[base.length] <= manager.threshold


def _is_continued(last: View, view: View) -> bool:
    """Whether the view is the last one with all new messages of the record appended."""
    before, now = last.curated, view.curated
    appended = now.origins[len(before) :]
    return (
        len(now) - len(before) == view.length - last.length
        and all(map(is_, before, now))
        and list(appended) == list(range(last.length, view.length))
        and all(map(is_, now[len(before) :], view.record.since(last.length)))
        and len(before.note_chains) == len(now.note_chains)
        and all(map(is_, before.note_chains, now.note_chains))
        and len(last.hidden) == len(view.hidden)
    )


def view_base(view: View) -> ViewBase:
    """The base of requests that start with this view."""
    record = view.record
    changed = changed_messages(record, view.curated, view.hidden)
    runs = []
    for (status, reason, _), group in groupby(
        enumerate(changed), key=lambda item: (*item[1][1:], item[1][0] - item[0])
    ):
        indexes = [index for _, (index, _, _) in group]
        runs.append(FateRun(indexes[0], indexes[-1] + 1, status, reason))
    return ViewBase(view.length, tuple(_parts(record, view)), tuple(runs), view.tokens)


def _parts(record: Transcript, view: View) -> Iterator[SentPart]:
    folds = folds_of_added(view.curated, dict.fromkeys(view.hidden.values()))
    start = stop = 0  # unchanged messages that are not yielded yet
    for index, (message, origin) in enumerate(zip(view.curated, view.curated.origins, strict=True)):
        is_unchanged = origin is not None and (record[origin] is message or record[origin] == message)
        if is_unchanged and origin == stop and start < stop:
            stop += 1
            continue
        if start < stop:
            yield SentPart(start, stop)
            start = stop
        if is_unchanged and origin is not None:
            start, stop = origin, origin + 1
        elif origin is not None:
            yield SentPart(origin, origin + 1, message, record.counter.message(message))
            start = stop = origin + 1
        else:
            position = folds[index].start if index in folds else stop
            yield SentPart(position, position, message, record.counter.message(message))
    if start < stop:
        yield SentPart(start, stop)
