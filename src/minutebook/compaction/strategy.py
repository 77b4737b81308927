"""The protocol of compaction strategies, and the state of a conversation from which they decide.

`CompactionInput` holds the record, its folds and the model's context window. The functions below it find the ranges of
the record that may be folded.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from itertools import pairwise
from typing import Any, Final, Protocol, runtime_checkable

from minutebook.compaction.summarizer import Summarizer, is_summary
from minutebook.errors import FoldConflict, InvalidResult, InvalidSetting, require_type
from minutebook.history.compose import name_from_class
from minutebook.history.incremental import last_exchange
from minutebook.record.fold import Fold, active_folds, record_with_folds
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.tokens.models import ModelInfo

DEFAULT_THRESHOLD: Final = 0.8
"""Share of the context window above which compaction is due."""
_PARAMETERS: Final = {"should_trigger": ("history",), "apply": ("history", "summarizer")}
"""The parameters of each method of a strategy, which are passed by position."""


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """The state of a conversation before a model call."""

    record: Transcript
    """The messages, without those that a rewind hides."""
    folds: tuple[Fold, ...]
    """All folds of the record, in the order in which they were added."""
    model: ModelInfo
    overhead_tokens: int = 0
    """Tokens of the request besides messages: tools, and a system prompt that is not in the record."""
    reply_tokens: int | None = None
    """Tokens reserved for the answer. None: the limit is the model's `max_input_tokens`."""

    @property
    def shown(self) -> Transcript:
        """The record with its folds applied."""
        return record_with_folds(self.record, self.folds).transcript

    @property
    def tokens(self) -> int:
        """Tokens of the next request, before any history manager."""
        return self.shown.tokens + self.overhead_tokens

    @property
    def turns(self) -> int:
        """Number of turns whose user message no fold hides."""
        starts = self.record.turn_starts
        hidden = (bisect_left(starts, fold.stop) - bisect_left(starts, fold.start) for fold in self.active_folds)
        return len(starts) - sum(hidden)

    @property
    def limit(self) -> int:
        """Maximum tokens of the next request."""
        if self.reply_tokens is None:
            return self.model.max_input_tokens
        return self.model.room(reply_tokens=self.reply_tokens)

    def older_than(self, turns: int) -> range:
        """The messages between the leading system messages and the last `turns` turns that no fold hides."""
        start = self.leading.stop
        ranges = [range(fold.start, fold.stop) for fold in self.active_folds]
        starts = [index for index in self.record.turn_starts if not any(index in indexes for indexes in ranges)]
        return range(start, max(start, starts[-turns])) if 0 < turns <= len(starts) else range(start, start)

    def with_folds(self, added: Iterable[Fold]) -> "CompactionInput":
        """The state after these folds are added."""
        return replace(self, folds=(*self.folds, *added))

    @property
    def active_folds(self) -> list[Fold]:
        """The folds that no later fold has replaced, in the order of the record."""
        return active_folds(self.record, self.folds)

    @property
    def leading(self) -> range:
        """The leading system messages."""
        return range(self.record.system_prompt_count)

    @property
    def folded_until(self) -> int:
        """The index after the leading system messages and the last active fold."""
        return max(self.leading.stop, *(fold.stop for fold in self.active_folds), 0)

    @property
    def newest_messages(self) -> range:
        """The last exchange. If a fold hides its first message, as after a rewind, also all messages of that fold."""
        newest = last_exchange(self.record)
        hiding = (fold for fold in self.active_folds if fold.start <= newest.start < fold.stop)
        return next((range(fold.start, newest.stop) for fold in hiding), newest)

    @property
    def summary(self) -> Fold | None:
        """The first active fold that shows a summary; None if there is none."""
        return next(filter(is_summary_fold, self.active_folds), None)


def is_summary_fold(fold: Fold) -> bool:
    """Whether the fold shows a summary of the messages that it hides, not only a marker."""
    return any(map(is_summary, fold.shown))


def essential_indexes(history: CompactionInput) -> set[int]:
    """Indexes of the messages that are in every view.

    These are the leading system messages, the pins, the newest user message, and the last exchange.
    """
    record = history.record
    essential = set(history.leading) | set(last_exchange(record))
    essential |= {index for pin in record.pins for index in record.exchange_of(pin)}
    newest_request = record.newest_request
    return essential if newest_request is None else essential | set(record.exchange_of(newest_request))


def required_indexes(history: CompactionInput) -> set[int]:
    """Indexes of the messages that strategies do not fold: the essential ones and the first user message.

    Only truncation folds the first user message too, if folding the others is not enough.
    """
    first_request = history.record.first_request
    first_exchange = set() if first_request is None else set(history.record.exchange_of(first_request))
    return essential_indexes(history) | first_exchange


def pinned_messages(record: Transcript, indexes: range) -> tuple[Message, ...]:
    """The messages of the pinned exchanges in a range, which a fold over the range must show."""
    leading = record.system_prompt_count
    exchanges = (record.exchange_of(pin) for pin in record.pins if pin in indexes and pin >= leading)
    return tuple(record[index] for index in sorted({index for exchange in exchanges for index in exchange}))


def tail_start(history: CompactionInput, max_tokens: int) -> int:
    """The start of the longest tail of whole exchanges within `max_tokens` that are after all folds.

    The tail always has the newest messages.
    """
    record, no_earlier_than, start = history.record, history.folded_until, history.newest_messages.start
    tokens_left = max_tokens - sum(map(record.tokens_of, range(start, len(record))))
    while start > no_earlier_than:
        exchange = record.exchange_of(start - 1)
        tokens_left -= sum(map(record.tokens_of, exchange))
        if tokens_left < 0 or exchange.start < no_earlier_than:
            break
        start = exchange.start
    return start


def last_turns_start(record: Transcript, turns: int, max_tokens: int, *, no_earlier_than: int = 0) -> int | None:
    """The start of the last `turns` turns, or None if these have more than `max_tokens`."""
    turn_starts = record.turn_starts
    starts = turn_starts[max(bisect_left(turn_starts, no_earlier_than), len(turn_starts) - turns) :]
    return starts[0] if starts and has_at_most(record, starts[0], len(record), max_tokens) else None


def has_at_most(record: Transcript, start: int, stop: int, max_tokens: int) -> bool:
    """Whether the messages from `start` to `stop` have at most `max_tokens`. Counting stops when they have more."""
    tokens_left = max_tokens
    for index in range(start, stop):
        tokens_left -= record.tokens_of(index)
        if tokens_left < 0:
            return False
    return tokens_left >= 0


def foldable_ranges(history: CompactionInput, required: set[int], stop: int) -> list[range]:
    """The ranges before `stop` that may be folded: all messages except required ones that no fold hides yet."""
    active, start = history.active_folds, history.leading.stop
    separators = sorted(
        index
        for index in required
        if start <= index < stop and not any(fold.start <= index < fold.stop for fold in active)
    )
    ranges = [range(before + 1, after) for before, after in pairwise([start - 1, *separators, max(start, stop)])]
    return [indexes for indexes in ranges if indexes]


def indexes_outside(indexes: range, others: Sequence[range]) -> Iterator[int]:
    """The indexes of a range that are in none of the other ranges. The others must be in ascending order."""
    index = indexes.start
    for other in others:
        yield from range(index, min(other.start, indexes.stop))
        index = max(index, other.stop)
    yield from range(index, indexes.stop)


@runtime_checkable
class HistoryStrategy(Protocol):
    """Decides when messages are folded, and creates the folds. It has no side effects: the caller stores the folds.

    Use it as the base class of your own strategy, which then needs only `apply`.
    """

    @property
    def name(self) -> str:
        """The strategy's name in notices and reasons. Default: its class in snake case."""
        return name_from_class(self)

    def should_trigger(self, history: CompactionInput) -> bool:
        """Whether messages must be folded before the next model call.

        Default: above `threshold`, an optional attribute, else 80 % of the context window.
        """
        return exceeds_threshold(history, getattr(self, "threshold", DEFAULT_THRESHOLD))

    @abstractmethod
    def apply(
        self, history: CompactionInput, summarizer: Summarizer
    ) -> AsyncIterator[Fold] | Awaitable[Iterable[Fold]]:
        """The folds to add. Write it as `async def`, and return a list of folds or yield each fold.

        If it raises, no fold is added.
        """
        ...


def require_strategy(strategy: Any) -> HistoryStrategy:
    """Return the strategy if it has the methods of a `HistoryStrategy`, with their parameters.

    Raises:
        InvalidSetting: it lacks one of them, or one has other parameters, or it is a class.
    """
    if isinstance(strategy, type):
        raise InvalidSetting("strategy", strategy, f"an object, such as {strategy.__name__}()")
    if not isinstance(strategy, HistoryStrategy):
        raise InvalidSetting("strategy", strategy, "a name, or an object of a subclass of HistoryStrategy")
    for method, parameters in _PARAMETERS.items():
        try:
            signature(getattr(strategy, method)).bind(*parameters)
        except TypeError:
            expected = f"{type(strategy).__name__}.{method} with the parameters (self, {', '.join(parameters)})"
            raise InvalidSetting("strategy", strategy, expected) from None
    return strategy


async def folds_of(strategy: HistoryStrategy, history: CompactionInput, summarizer: Summarizer) -> list[Fold]:
    """The folds that a strategy adds.

    Raises:
        InvalidResult: `apply` returns or yields something else than folds.
    """
    result: Any = strategy.apply(history, summarizer)
    method = f"{type(strategy).__name__}.apply"
    if isinstance(result, AsyncIterable):
        folds = [fold async for fold in result]
    elif isinstance(result, Awaitable):
        result = await result
        if isinstance(result, (str, Fold)) or not isinstance(result, Iterable):
            raise InvalidResult(method, repr(result), "return a list of folds, or yield each fold")
        folds = list(result)
    else:
        fix = "write `async def apply`, and return a list of folds or yield each fold"
        raise InvalidResult(method, repr(result), fix)
    for item in folds:
        if not isinstance(item, Fold):
            raise InvalidResult(method, f"{item!r} in place of a fold", "make folds with Fold.over(...)")
    return folds


def require_folds(
    strategy: HistoryStrategy, history: CompactionInput, folds: Sequence[Fold], conversation: str | None
) -> None:
    """Check that the folds of a strategy can be added, and that the view keeps what every view has.

    Messages that an earlier fold hides may stay hidden.

    Raises:
        FoldConflict: a fold splits an exchange, extends beyond the record, overlaps another fold partially, or hides a
            leading system message, a pinned message or the newest user message.
    """

    def conflict(fold_id: str, problem: str) -> FoldConflict:
        advice = f"change {type(strategy).__name__}.apply: fold other messages, or show these unchanged in the fold"
        return FoldConflict(conversation or "", fold_id, problem, advice)

    try:
        history.with_folds(folds).active_folds  # noqa: B018 - the ranges are checked
    except InvalidSetting as error:
        fold_id = next((fold.id for fold in folds if repr(fold.id) in error.name), "")
        raise conflict(fold_id, f"covers {error.value}; expected {error.expected}") from None
    record, hidden = history.record, record_with_folds(history.record, history.folds).hidden
    kept = _kept_messages(history) if folds else {}
    for index, description in kept.items():
        earlier_fold, message = hidden.get(index), record[index]
        if earlier_fold is not None and message not in earlier_fold.shown:
            continue
        for fold in folds:
            if fold.start <= index < fold.stop and message not in fold.shown:
                raise conflict(fold.id, f"hides message {index}, {description}")


def _kept_messages(history: CompactionInput) -> dict[int, str]:
    """The indexes of the messages that no fold of a strategy may hide, each with what the message is."""
    record = history.record
    newest_request = record.newest_request
    kept = {} if newest_request is None else {newest_request: "the newest user message"}
    kept |= {index: "which is pinned" for pin in record.pins for index in record.exchange_of(pin)}
    kept |= dict.fromkeys(history.leading, "a leading system message")
    return dict(sorted(kept.items()))


class WindowStrategy:
    """Base class of the strategies that are due when the context window is filled above a threshold."""

    __slots__ = ()
    threshold: float
    """Share of the window above which compaction is due."""
    target: float
    """Share of the window that is used after the compaction."""

    def __post_init__(self) -> None:
        require_thresholds(self.threshold, self.target)
        keep_turns = getattr(self, "keep_turns", None)
        if keep_turns is not None and (type(keep_turns) is not int or keep_turns < 1):
            raise InvalidSetting("keep_turns", keep_turns, "1 or more, or None for as many as fit")

    def should_trigger(self, history: CompactionInput) -> bool:
        return exceeds_threshold(history, self.threshold)


def exceeds_threshold(history: CompactionInput, threshold: float = DEFAULT_THRESHOLD) -> bool:
    """Whether the next request would use more than this share of the context window."""
    return history.tokens > int(history.limit * threshold)


def require_thresholds(threshold: float, target: float) -> None:
    """Check the two shares of the context window.

    Raises:
        InvalidSetting: one is not a share, or the target is not below the threshold.
    """
    require_type("threshold", threshold, (int, float), "a share of the window above 0 and up to 1, such as 0.8")
    require_type("target", target, (int, float), "a share of the window above 0 and below the threshold")
    if not 0 < threshold <= 1:
        raise InvalidSetting("threshold", threshold, "a share of the window above 0 and up to 1, such as 0.8")
    if not 0 < target < threshold:
        raise InvalidSetting("target", target, f"a share of the window above 0 and below the threshold, {threshold}")
