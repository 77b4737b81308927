"""The recommended manager: a view within a token budget that is cut rarely, the oldest and cheapest messages first.

The messages are processed from left to right. When the view would exceed `max_tokens`, it is cut to the share `target`
in one step. So cuts are rare, new messages never move an earlier cut, and between two cuts each view is the previous one
with messages appended, as prompt caches require.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from minutebook.errors import CannotFit, InvalidSetting
from minutebook.history.curation import Curated, NoteChain, NoteStatus, ViewNote
from minutebook.history.incremental import IncrementalManager, IncrementalView, PreservedMessages, last_exchange
from minutebook.history.names import NameIndex, names_in
from minutebook.history.tool_results import cleared_result, with_middle_cut
from minutebook.history.window import require_count
from minutebook.record.message import Message, call_ids, is_result, is_user, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter, counter_for

_DROP_FACTOR = 0.8
"""Factor of the target for a cut that drops messages. Such a cut invalidates the prompt cache from the first user message
on, so it should be rare. Measured on recorded agent sessions, the lower target costs less at the same recall."""
_MIN_CLIPPED_CHARACTERS = 200
"""Minimum length of a clipped result. A result that would be shorter is cleared instead."""


@dataclass(slots=True, frozen=True)
class TokenBudgetManager(IncrementalManager):
    """Keep the view within a token budget.

    Over budget, old tool results are cleared first, then the oldest whole turns are dropped, then the oldest exchanges of
    the current turn, until the view has at most `target`. Leading system messages, pins, the newest user message and the
    exchange that the model is about to answer always stay. If the view is still too large, the results of that exchange
    are clipped, and the first user message is dropped. If that is not enough, `curate` raises `CannotFit`.

    Raises:
        InvalidSetting: a setting is out of range.
    """

    max_tokens: int
    """Maximum tokens of a view."""
    target: float = 0.5
    """Share of `max_tokens` that remains after a cut. A lower target cuts deeper and less often."""
    keep_results: int = 1
    """Number of newest tool results that a cut does not clear."""
    reserve: int = 0
    """Tokens of the budget reserved for other parts: tool schemas, the reply."""
    preserve_first_request: bool = True
    """Keep the first user message while it fits: it is often the task."""
    names: float = 0.0
    """Share of `max_tokens` for a list of the names in messages that a cut leaves out. 0 for no list; 0.06 is typical."""
    counter: TokenCounter | None = None
    """Token counter. Default: that of the transcript, or an exact counter for a plain list."""

    def __post_init__(self) -> None:
        require_count("max_tokens", self.max_tokens)
        require_count("keep_results", self.keep_results)
        require_count("reserve", self.reserve)
        if not 0 < self.target <= 1:
            raise InvalidSetting("target", self.target, "a share above 0, at most 1")
        if not 0 <= self.names < 1:
            raise InvalidSetting("names", self.names, "a share from 0 to below 1")
        if self.limit <= 0:
            raise InvalidSetting("max_tokens", self.max_tokens, f"more than the reserve of {self.reserve}")

    @property
    def limit(self) -> int:
        """Maximum tokens of the messages."""
        return self.max_tokens - self.reserve

    @property
    def goal(self) -> int:
        """Maximum tokens of the messages after a cut."""
        return int(self.limit * self.target)

    @property
    def adds_messages(self) -> bool:
        return self.names > 0

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:  # noqa: ARG002
        return BudgetView(source, preserved, self)

    def fits(self, messages: Sequence[Message]) -> bool:
        if isinstance(messages, Transcript) and (self.counter is None or self.counter == messages.counter):
            return messages.tokens <= self.limit
        counter = self.counter or counter_for(None)
        return sum(map(counter.message, messages)) <= self.limit

    def default_counter(self) -> TokenCounter | None:
        return self.counter


class NameList(NamedTuple):
    """The message with the names of messages that are left out."""

    message: Message
    tokens: int
    before: int
    """The index in the source of the message that follows it."""


class BudgetView(IncrementalView):
    """A view within a budget, with the tokens of each message.

    A cut depends only on the messages processed so far, never on the rest of the source, so that messages appended later
    do not change it.
    """

    __slots__ = (
        "_counter",
        "_examined_results",
        "_has_source_counter",
        "_limit",
        "_manager",
        "_message_tokens",
        "_name_list",
        "_tokens",
        "_tokens_of",
    )

    def __init__(self, source: Transcript, preserved: PreservedMessages, manager: TokenBudgetManager) -> None:
        super().__init__(source, preserved)
        self._manager = manager
        self._limit = manager.limit
        self._counter = manager.counter or source.counter
        self._has_source_counter = self._counter == source.counter
        self._tokens_of: Callable[[int], int] = (
            source.tokens_of if self._has_source_counter else lambda index: self._counter.message(source[index])
        )
        self._message_tokens: list[int] = []
        self._tokens = 0
        self._name_list: NameList | None = None
        """The list of names since the last cut. Its tokens are part of `_tokens`."""
        self._examined_results = 0
        """Number of the oldest results that were already examined: each was cleared if that made it smaller."""

    def advance(self) -> None:
        limit = self._limit
        for index, message in enumerate(self.source.since(self.seen), self.seen):
            tokens = self._tokens_of(index)
            self.messages.append(message)
            self.indexes.append(index)
            self._message_tokens.append(tokens)
            self._tokens += tokens
            self.seen = index + 1
            if self._tokens > limit and self._awaits_answer(index):
                self._cut()

    def _awaits_answer(self, index: int) -> bool:
        """Whether the model is called after this message: it is the user's, or the last result of its exchange.

        A cut at an earlier message would have to be repeated when the rest of the exchange has arrived.
        """
        message = self.source[index]
        if not is_result(message):
            return is_user(message)
        start = self.source.exchange_of(index).start
        return index - start == len(call_ids(self.source[start]))

    def final(self) -> "BudgetView":
        if self._tokens <= self._limit:
            return self
        if not self._awaits_answer(self.seen - 1):
            return self._temporary_cut()
        self._require_fit()
        return self

    def _require_fit(self) -> None:
        if self._tokens > self._limit:
            manager = self._manager
            droppable = self._droppable_request()
            dropped_tokens = 0 if droppable is None else self._message_tokens[self.view_index(droppable)]
            needed = self._tokens + manager.reserve - dropped_tokens
            raise CannotFit(manager.max_tokens, needed, self._irreducible(droppable))

    def _droppable_request(self) -> int | None:
        """Index of the first user message, if it is in the view and a smaller view could leave it out."""
        for first_request in self._requests()[1:]:
            view_index = self.view_index(first_request)
            is_shown = view_index < len(self.indexes) and self.indexes[view_index] == first_request
            is_essential = first_request in self._requests()[:1] or first_request in self.preserved.pinned(self.source)
            if is_shown and not is_essential and first_request not in self._last_messages():
                return first_request
        return None

    def _temporary_cut(self) -> "BudgetView":
        """A cut copy of this view, for a call of the model in the middle of an exchange. This view is not changed."""
        copy = BudgetView(self.source, self.preserved, self._manager)
        copy.messages, copy.indexes, copy._message_tokens = (
            self.messages.copy(),
            self.indexes.copy(),
            self._message_tokens.copy(),
        )
        copy._examined_results, copy._tokens = self._examined_results, self._tokens
        copy.seen, copy.note_chain, copy._name_list = self.seen, self.note_chain, self._name_list
        copy._cut()
        copy._require_fit()
        return copy

    def to_curated(self) -> Curated:
        view = super().to_curated()
        view.tokens = self._tokens if self._has_source_counter else None
        if self._name_list is not None:
            view_index = self.view_index(self._name_list.before)
            view.insert(view_index, self._name_list.message)
            view.origins = [*view.origins[:view_index], None, *view.origins[view_index:]]
        return view

    def _cut(self) -> None:
        newest_exchange = last_exchange(self.source, self.seen)
        fixed = self._fixed_indexes()
        self.generation += 1
        messages_before = self.messages.copy() if self._manager.names else []
        if self._name_list is not None:
            self._tokens -= self._name_list.tokens
            self._name_list = None
        self._clear_results(fixed, newest_exchange)
        if self._tokens > self._manager.goal:
            goal = int(self._manager.goal * _DROP_FACTOR)
            self._drop_turns({*fixed, *newest_exchange}, goal)
            self._drop_exchanges({*fixed, *newest_exchange}, goal)
        if self._tokens > self._limit:
            self._fit(fixed, newest_exchange)
        if self._manager.names:
            self._add_name_list(messages_before)
            self.note_chain = NoteChain({}, self.note_chain)  # the cut may have changed nothing but the list

    def _add_name_list(self, messages_before: Sequence[Message]) -> None:
        """List the names of the messages that are left out, before the first message that the cut has changed.

        The prompt cache is lost from there on anyway.
        """
        index_of_names = self.source.cached_value(("names",), partial(NameIndex, self.source))
        shown: set[str] = set()
        for message, index in zip(self.messages, self.indexes, strict=True):
            shown |= index_of_names.names_of(index) if message is self.source[index] else names_in(message)
        max_tokens = min(int(self._manager.names * self._limit), self._limit - self._tokens)
        name_list = index_of_names.list_message(shown, self.seen, max_tokens, self._counter)
        if name_list is None:
            return
        first_change = next(
            (at for at, pair in enumerate(zip(self.messages, messages_before, strict=False)) if pair[0] is not pair[1]),
            len(self.messages) - 1,
        )
        before = self.source.exchange_of(self.indexes[first_change]).start
        self._name_list = NameList(name_list, self._counter.message(name_list), before)
        self._tokens += self._name_list.tokens

    def _fit(self, fixed: set[int], newest_exchange: range) -> None:
        """Clip the newest results and drop the first user message, until the view fits.

        The first user message is dropped before the results are clipped if the older messages use more than half of the
        limit, else only if clipping is not enough.
        """
        newest_tokens = sum(self._message_tokens[self.view_index(newest_exchange.start) :])
        older_tokens = self._tokens - newest_tokens
        if older_tokens > self._limit // 2:
            self._drop_first_request(older_tokens)
        if self._tokens > self._limit:
            self._clip(fixed, newest_exchange)
        if self._tokens > self._limit:
            self._drop_first_request(self._tokens)

    def _drop_first_request(self, tokens: int) -> None:
        """Drop the first user message, unless `tokens` would exceed the limit even without it."""
        for first_request in self._requests()[1:]:
            view_index = self.view_index(first_request)
            is_shown = self.indexes[view_index] == first_request
            is_essential = first_request in self._requests()[:1] or first_request in self.preserved.pinned(self.source)
            if is_shown and not is_essential and tokens - self._message_tokens[view_index] <= self._limit:
                self._drop([first_request], self._note_of(NoteStatus.DROPPED, "the first request"))

    def _fixed_indexes(self) -> set[int]:
        """Indexes of the messages that stay unchanged, except that `_fit` may drop the first user message."""
        source, preserved, end = self.source, self.preserved, self.seen
        fixed = {index for index in preserved.pinned(source) if index < end}
        fixed.update(range(min(preserved.leading_count(source), end)))
        fixed.update(self._last_messages())
        fixed.update(self._requests())
        return fixed

    def _last_messages(self) -> range:
        """The last messages that the caller requires (`preserve_last_n`); empty if there are none."""
        end, count = self.seen, self.preserved.last_count
        return range(self.source.exchange_of(max(0, end - count)).start if count else end, end)

    def _requests(self) -> list[int]:
        """Index of the newest user message so far, then of the first one if the manager preserves it."""
        turn_starts = self.source.turn_starts
        turn_count = bisect_left(turn_starts, self.seen)
        if not turn_count:
            return []
        newest = turn_starts[turn_count - 1]
        return [newest, turn_starts[0]] if self._manager.preserve_first_request else [newest]

    def _clear_results(self, fixed: set[int], newest_exchange: range) -> None:
        """Clear all old results. The first one invalidates the prompt cache after it, so clearing the others is free."""
        results = self.source.result_indexes
        stop = max(self._examined_results, bisect_left(results, self.seen) - self._manager.keep_results)
        newest_start = min(newest_exchange.start, self._last_messages().start)
        notes = {}
        for index in results[self._examined_results : stop]:
            if index >= newest_start:
                stop = bisect_left(results, index)  # too new; the next cut examines it again
                break
            view_index = self.view_index(index)
            if index in fixed or view_index == len(self.indexes) or self.indexes[view_index] != index:
                continue
            rewrite = cleared_result(self.source, index)
            if rewrite and (tokens := self._counter.message(rewrite[0])) < self._message_tokens[view_index]:
                self._replace(view_index, rewrite[0], tokens)
                notes[index] = self._note_of(NoteStatus.CLEARED, "an old tool result")
        self._examined_results = stop
        self.note(notes)

    def _drop_turns(self, required: set[int], goal: int) -> None:
        """Drop the oldest turns until the view reaches the goal. The newest turn stays."""
        view_tokens, end = self._tokens, 0
        for view_index, index in enumerate(self.indexes):
            if is_user(self.messages[view_index]):
                end = view_index
                if view_tokens <= goal:
                    break
            view_tokens -= self._message_tokens[view_index] if index not in required else 0
        self._drop(
            [index for index in self.indexes[:end] if index not in required],
            self._note_of(NoteStatus.DROPPED, "one of the oldest turns"),
        )

    def _drop_exchanges(self, required: set[int], goal: int) -> None:
        """Drop the oldest exchanges of the current turn until the view reaches the goal."""
        dropped: list[int] = []
        view_tokens, end = self._tokens, 0
        for view_index, index in enumerate(self.indexes):
            if index in required:
                continue
            if index >= end and view_tokens <= goal:
                break
            end = self.source.exchange_of(index).stop
            view_tokens -= self._message_tokens[view_index]
            dropped.append(index)
        self._drop(dropped, self._note_of(NoteStatus.DROPPED, "an early exchange of the current turn"))

    def _clip(self, fixed: set[int], newest_exchange: range) -> None:
        """Clip the results of the exchange that the model is about to answer, each to an equal share of the tokens left."""
        view_indexes = [
            view_index
            for view_index in range(self.view_index(newest_exchange.start), len(self.indexes))
            if is_result(self.messages[view_index]) and self.indexes[view_index] not in fixed
        ]
        result_tokens = [self._message_tokens[view_index] for view_index in view_indexes]
        other_tokens = self._tokens - sum(result_tokens)
        share = _share(result_tokens, self._limit - other_tokens)
        notes = {}
        for max_tokens in (share, 0):  # the markers of cleared results can exceed their share: then all are cleared
            for view_index in view_indexes if self._tokens > self._limit else ():
                index = self.indexes[view_index]
                if self._message_tokens[view_index] > max_tokens and (clipped := self._clipped(index, max_tokens)):
                    tokens = self._counter.message(clipped)
                    if tokens < self._message_tokens[view_index]:
                        self._replace(view_index, clipped, tokens)
                        notes[index] = self._note_of(NoteStatus.TRUNCATED, "larger than the tokens left")
        self.note(notes)

    def _clipped(self, index: int, max_tokens: int) -> Message | None:
        """The result with its middle cut out to fit `max_tokens`, or cleared; None if it cannot be made smaller."""
        message = self.source[index]
        length = len(text_of(message)) * max_tokens // max(1, self._tokens_of(index))
        while length > _MIN_CLIPPED_CHARACTERS:
            clipped = with_middle_cut(message, length)
            if self._counter.message(clipped) <= max_tokens:
                return clipped
            length = length * 4 // 5
        rewrite = cleared_result(self.source, index)
        return rewrite[0] if rewrite else None

    def _replace(self, view_index: int, message: Message, tokens: int) -> None:
        self._tokens += tokens - self._message_tokens[view_index]
        self.messages[view_index], self._message_tokens[view_index] = message, tokens

    def _drop(self, dropped: list[int], note: ViewNote) -> None:
        dropped_indexes = set(dropped)
        remaining = [view_index for view_index, index in enumerate(self.indexes) if index not in dropped_indexes]
        self.messages = [self.messages[view_index] for view_index in remaining]
        self.indexes = [self.indexes[view_index] for view_index in remaining]
        self._message_tokens = [self._message_tokens[view_index] for view_index in remaining]
        self._tokens = sum(self._message_tokens)
        self.note(dict.fromkeys(dropped, note))

    def _note_of(self, status: NoteStatus, description: str) -> ViewNote:
        return ViewNote(status, f"over {self._manager.max_tokens:,} tokens: {description}")

    def _irreducible(self, droppable: int | None) -> list[tuple[str, int, int]]:
        """The messages that must stay, for `CannotFit`: a description, the position in the record, the tokens."""
        requests, leading_count = self._requests(), self.preserved.leading_count(self.source)
        pinned = self.preserved.pinned(self.source)
        parts = []
        for index, tokens in zip(self.indexes, self._message_tokens, strict=True):
            if index == droppable:
                continue
            if index < leading_count:
                name = "a system message"
            elif index in requests[:1]:
                name = "the newest request"
            elif index in pinned:
                name = "a pinned exchange"
            else:
                name = "the exchange to be answered"
            parts.append((name, self.source.position_of(index), tokens))
        return [(name, position, tokens) for name, position, tokens in parts if position is not None]


def _share(result_tokens: list[int], tokens_left: int) -> int:
    """The largest maximum of tokens per result with which all results together fit in the tokens left."""
    results_left = len(result_tokens)
    for tokens in sorted(result_tokens):
        if tokens * results_left > tokens_left:
            return max(0, tokens_left) // results_left
        tokens_left -= tokens
        results_left -= 1
    return max(result_tokens, default=0)
