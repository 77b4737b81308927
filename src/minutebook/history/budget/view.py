"""The view of `TokenBudgetManager`: the messages since the last cut, and how a cut is made."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

from minutebook.errors import CannotFit
from minutebook.history.budget.tool_output import clipped_output, clipped_to_fit, is_output, max_tokens_per_result
from minutebook.history.cache_cost import READ, WRITE, CostAccount
from minutebook.history.curation import Curated, NoteChain, NoteStatus, ViewNote
from minutebook.history.incremental import IncrementalView, PreservedMessages, last_exchange
from minutebook.history.names import MessageNames, NameRanking
from minutebook.history.scores import Scorer, scores_of
from minutebook.history.tool_results import NUMBERED_MARKER, cleared_result
from minutebook.record.message import Message, call_ids, is_result, is_user
from minutebook.record.transcript import Transcript

if TYPE_CHECKING:
    from minutebook.history.budget.manager import TokenBudgetManager

_SEARCHED_PER_TOKEN: Final = 12
"""Characters that are searched for names per token of a new message, so that a cut does not have to search all."""
_DROP_FACTOR: Final = 0.8
"""Factor of the target for a cut that drops messages. Such a cut invalidates the prompt cache from the first user message
on, so it should be rare. Measured on recorded agent sessions, the lower target costs less at the same recall."""
_MIN_TARGET: Final = 0.08
"""Share of the limit that a view may always have after a cut, whatever the views so far have cost."""
MIN_OUTPUT_TOKENS: Final = 1_000
"""Output of a command or a search that has fewer tokens is not clipped."""


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
        "_account",
        "_counter",
        "_examined_results",
        "_has_source_counter",
        "_limit",
        "_manager",
        "_message_tokens",
        "_name_list",
        "_ranking",
        "_record_tokens",
        "_settings",
        "_threshold",
        "_tokens",
        "_tokens_of",
    )

    def __init__(self, source: Transcript, preserved: PreservedMessages, manager: "TokenBudgetManager") -> None:
        super().__init__(source, preserved)
        self._manager = manager
        self._settings = manager.settings
        self._limit = manager.limit
        self._threshold = manager.threshold
        """Tokens above which the view is cut."""
        self._counter = manager.counter or source.counter
        self._has_source_counter = self._counter == source.counter
        self._tokens_of: Callable[[int], int] = (
            source.tokens_of if self._has_source_counter else lambda index: self._counter.message(source[index])
        )
        self._message_tokens: list[int] = []
        self._tokens = 0
        self._record_tokens = 0
        """Tokens of all messages so far."""
        self._examined_results = 0
        """Number of results that earlier cuts have examined."""
        self._account = CostAccount()
        self._ranking: NameRanking | None = None
        self._name_list: NameList | None = None
        """The list of names since the last cut. Its tokens are part of `_tokens`."""

    def advance(self) -> None:
        account = self._account
        for index, message in enumerate(self.source.since(self.seen), self.seen):
            tokens = self._tokens_of(index)
            self.messages.append(message)
            self.indexes.append(index)
            self._message_tokens.append(tokens)
            self._tokens += tokens
            self._record_tokens += tokens
            self.seen = index + 1
            if self._settings.names and self._tokens > self._threshold * 3 // 4:
                self._message_names.read(self.seen, _SEARCHED_PER_TOKEN * tokens)
            if self._awaits_answer(index):
                if self.generation and self._settings.clip and is_result(message) and not self.preserved.last_count:
                    self._clip_new_results()
                account.add_call(self._record_tokens)
                cached_tokens = account.view_tokens
                if self._tokens > self._threshold:
                    cached_tokens = self._cut()
                    self._threshold = self._next_threshold()
                account.add_view(self._tokens, cached_tokens)

    def _clip_new_results(self) -> None:
        """Clip long output of commands and searches in the exchange that was just completed.

        Later answers hardly use it, so it is not worth a large share of the window. Before the first cut nothing is
        clipped, because a record that fits is sent unchanged.
        """
        max_tokens = max(MIN_OUTPUT_TOKENS, int(self._settings.clip * self._limit))
        pinned = self.preserved.pinned(self.source)
        notes = {}
        for index in reversed(range(self.source.exchange_of(self.seen - 1).start, self.seen)):
            view_index = self.view_index(index)
            tokens = self._message_tokens[view_index]
            if not is_result(self.source[index]) or tokens <= max_tokens or index in pinned:
                continue
            if is_output(self.source, index):
                clipped = clipped_output(self.source[index], max_tokens / tokens)
                if (clipped_tokens := self._counter.message(clipped)) < tokens:
                    self._replace(view_index, clipped, clipped_tokens)
                    notes[index] = self._note_of(NoteStatus.TRUNCATED, "long output of a command or a search")
        if notes:
            self.generation += 1
            self.note(notes)

    def _next_threshold(self) -> int:
        """The tokens above which the next cut is made.

        After a cut the view grows. An early cut rewrites the part after the first request, a late one reads a long view at
        every call: the sum is lowest at a growth of the square root below. `early` multiplies it.
        """
        maximum = self._manager.threshold
        if not self._settings.early:
            return min(self._limit, max(self._tokens, maximum))
        rewritten_tokens = max(0, self._tokens - self._prefix_tokens())
        growth = sqrt(2 * (WRITE - READ) / READ * rewritten_tokens * max(50, self._account.tokens_per_call))
        threshold = min(maximum, int(self._tokens + self._settings.early * growth))
        return min(self._limit, max(self._tokens, threshold))

    def _prefix_tokens(self) -> int:
        """Tokens up to the first user message. A cut does not change them, so they stay in the prompt cache."""
        starts = self.source.turn_starts
        return sum(map(self._tokens_of, range(starts[0] + 1 if starts and starts[0] < self.seen else 0)))

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
            droppable = self._droppable()
            dropped_tokens = sum(self._message_tokens[self.view_index(index)] for index in droppable)
            needed = self._tokens + manager.reserve - dropped_tokens
            raise CannotFit(manager.max_tokens, needed, self._irreducible(droppable))

    def _droppable(self) -> list[int]:
        """Indexes of the messages that `_fit` may leave out: the first user message, and summaries before it."""
        preserved, leading = self.preserved, self.source.leading_system_count
        required = {*self._requests()[:1], *preserved.pinned(self.source), *self._last_messages()}
        required.update(range(preserved.leading_count(self.source)))
        optional = [*self._requests()[1:], *reversed(range(leading))]
        return [index for index in optional if index not in required and self._is_shown(index)]

    def _is_shown(self, index: int) -> bool:
        view_index = self.view_index(index)
        return view_index < len(self.indexes) and self.indexes[view_index] == index

    def _temporary_cut(self) -> "BudgetView":
        """A cut copy of this view, for a call of the model in the middle of an exchange. This view is not changed."""
        view = BudgetView(self.source, self.preserved, self._manager)
        for name in (*IncrementalView.__slots__, *self.__slots__):
            setattr(view, name, getattr(self, name))
        view.messages, view.indexes, view._message_tokens = (
            self.messages.copy(),
            self.indexes.copy(),
            self._message_tokens.copy(),
        )
        view._account, view._ranking = copy(self._account), copy(self._ranking)
        view._cut()
        view._require_fit()
        return view

    def rows(self) -> tuple[Sequence[Message], Sequence[int | None]]:
        if self._name_list is None:
            return self.messages, self.indexes
        at = self.view_index(self._name_list.before)
        return (
            [*self.messages[:at], self._name_list.message, *self.messages[at:]],
            [*self.indexes[:at], None, *self.indexes[at:]],
        )

    def to_curated(self) -> Curated:
        view = super().to_curated()
        view.tokens = self._tokens if self._has_source_counter else None
        return view

    def _cut(self) -> int:
        """Cut the view. Returns the tokens of its unchanged beginning, which is read from the prompt cache."""
        newest_exchange = last_exchange(self.source, self.seen)
        fixed = self._fixed_indexes()
        self.generation += 1
        messages_before = self.messages.copy()
        list_before = self._name_list
        if list_before is not None:
            self._tokens -= list_before.tokens
            self._name_list = None
        goal = self._goal()
        scorer = self._manager.exchange_scorer
        if scorer is not None:
            self._cut_by_score(scorer, {*fixed, *newest_exchange}, goal)
        else:
            self._clear_results(fixed, newest_exchange, goal)
            if self._tokens > goal:
                goal = self._goal(_DROP_FACTOR)
                self._drop_turns({*fixed, *newest_exchange}, goal)
                self._drop_exchanges({*fixed, *newest_exchange}, goal)
        if self._tokens > self._limit:
            self._fit(fixed, newest_exchange)
        first_change = next(
            (at for at, pair in enumerate(zip(self.messages, messages_before, strict=False)) if pair[0] is not pair[1]),
            len(self.messages) - 1,
        )
        if self.indexes:
            self._add_name_list(self.source.exchange_of(self.indexes[first_change]).start)
        # A new link for each cut, also if only the list of names changed.
        self.note_chain = NoteChain({}, self.note_chain)
        starts = [name_list.before for name_list in (list_before, self._name_list) if name_list is not None]
        unchanged = min([first_change, *map(self.view_index, starts)])
        return sum(self._message_tokens[:unchanged])

    def _clear_results(self, fixed: set[int], newest_exchange: range, goal: int) -> None:
        """Clear all old results. The first one invalidates the prompt cache after it, so clearing the others is free."""
        results = self.source.result_indexes
        stop = max(self._examined_results, bisect_left(results, self.seen) - self._manager.keep_results)
        newest_start = min(newest_exchange.start, self._last_messages().start)
        notes: dict[int, ViewNote] = {}
        for index in results[self._examined_results : stop]:
            if index >= newest_start or (not self._settings.clear_all and self._tokens <= goal):
                stop = bisect_left(results, index)  # too new; the next cut examines it again
                break
            if index not in fixed and self._is_shown(index):
                notes |= self._clear(index, "an old tool result")
        self._examined_results = stop
        self.note(notes)

    def _clear(self, index: int, reason: str) -> dict[int, ViewNote]:
        """Replace a result by a marker, and return the note about it; nothing if that saves no tokens."""
        view_index = self.view_index(index)
        rewrite = cleared_result(self.source, index, marker=NUMBERED_MARKER)
        if rewrite is None or (tokens := self._counter.message(rewrite[0])) >= self._message_tokens[view_index]:
            return {}
        self._replace(view_index, rewrite[0], tokens)
        return {index: self._note_of(NoteStatus.CLEARED, reason)}

    def _cut_by_score(self, scorer: Scorer, required: set[int], goal: int) -> None:
        """Clear or drop the exchanges with the lowest scores until the view reaches the goal.

        An exchange that was cleared before is dropped. Exchanges before the first user message that is left are dropped
        too, because a conversation begins with the user.
        """
        exchanges = dict.fromkeys(self.source.exchange_of(index) for index in self.indexes if index not in required)
        scores = scores_of(scorer, self.source, list(exchanges), next(iter(self._requests()), None))
        results = self.source.result_indexes
        kept_results = set(results[max(0, bisect_left(results, self.seen) - self._manager.keep_results) :])
        notes: dict[int, ViewNote] = {}
        dropped: set[int] = set()
        dropped_tokens = 0
        for may_clear in (True, False):
            for exchange in sorted(scores, key=scores.__getitem__):
                if self._tokens - dropped_tokens <= goal:
                    break
                if exchange.start in dropped or (may_clear and not kept_results.isdisjoint(exchange)):
                    continue
                cleared: dict[int, ViewNote] = {}
                for index in exchange if may_clear else ():
                    if is_result(self.source[index]):
                        cleared |= self._clear(index, "a tool result with a low score")
                notes |= cleared
                if not cleared:
                    dropped.update(exchange)
                    dropped_tokens += sum(self._message_tokens[self.view_index(index)] for index in exchange)
        users = (index for index in self.indexes if index not in dropped and is_user(self.source[index]))
        first_user = next(users, 0)
        dropped.update(index for index in self.indexes if index < first_user and index not in required)
        self.note(notes)
        self._drop(sorted(dropped), self._note_of(NoteStatus.DROPPED, "an exchange with a low score"))

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

    def _goal(self, factor: float = 1.0) -> int:
        """Maximum tokens of the messages after the cut, without the list of names.

        A cut writes the whole view to the cache, so it may only be as large as the savings so far can pay for. Then the views do not
        cost more than the full history, even if the conversation ends here.
        """
        settings, account = self._settings, self._account
        names = int(settings.names * self._limit)
        goal = self._manager.goal * factor
        if settings.never_dearer:
            affordable = account.affordable_tokens(self._prefix_tokens()) - names
            goal = min(goal, max(int(_MIN_TARGET * self._limit), affordable))
        return int(goal)

    @property
    def _message_names(self) -> MessageNames:
        return self.source.cached_value(("names",), partial(MessageNames, self.source))

    def _add_name_list(self, before: int) -> None:
        """List the names of the messages that are left out, before the message at this index of the source.

        That is the first message that the cut has changed: the prompt cache is lost from there on anyway.
        """
        max_tokens = min(int(self._settings.names * self._limit), self._limit - self._tokens)
        if max_tokens <= 0:
            return
        if self._ranking is None:
            self._ranking = NameRanking(self._message_names)
        message_names = self._ranking.message_names
        shown: set[str] = set()
        for message, index in zip(self.messages, self.indexes, strict=True):
            shown.update(message_names.of(index) if message is self.source[index] else message_names.within(message))
        name_list = self._ranking.list_message(shown, self.seen, max_tokens, self._counter)
        if name_list is not None:
            self._name_list = NameList(name_list, self._counter.message(name_list), before)
            self._tokens += self._name_list.tokens

    def _fit(self, fixed: set[int], newest_exchange: range) -> None:
        """Clip the newest results and drop the first user message and the summaries, until the view fits.

        These are dropped before the results are clipped if the older messages use more than half of the limit, else only
        if clipping is not enough.
        """
        newest_tokens = sum(self._message_tokens[self.view_index(newest_exchange.start) :])
        older_tokens = self._tokens - newest_tokens
        if older_tokens > self._limit // 2:
            self._drop_optional(older_tokens, self._limit // 2)
        if self._tokens > self._limit:
            self._clip(fixed, newest_exchange)
        if self._tokens > self._limit:
            self._drop_optional(self._tokens, self._limit)

    def _drop_optional(self, tokens: int, goal: int) -> None:
        """Drop the first user message, then summaries, until `tokens` is at most the goal.

        Nothing is dropped if `tokens` would exceed the limit even then.
        """
        dropped: list[int] = []
        for index in self._droppable():
            if tokens > goal:
                tokens -= self._message_tokens[self.view_index(index)]
                dropped.append(index)
        if dropped and tokens <= self._limit:
            self._drop(dropped, self._note_of(NoteStatus.DROPPED, "the first request"))

    def _fixed_indexes(self) -> set[int]:
        """Indexes of the messages that stay unchanged, except that `_fit` may drop the first user message and summaries."""
        source, preserved, end = self.source, self.preserved, self.seen
        fixed = {index for index in preserved.pinned(source) if index < end}
        fixed.update(range(min(source.leading_system_count if preserved.has_system else 0, end)))
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

    def _clip(self, fixed: set[int], newest_exchange: range) -> None:
        """Clip the results of the exchange that the model is about to answer, each to an equal share of the tokens left."""
        view_indexes = [
            view_index
            for view_index in range(self.view_index(newest_exchange.start), len(self.indexes))
            if is_result(self.messages[view_index]) and self.indexes[view_index] not in fixed
        ]
        result_tokens = [self._message_tokens[view_index] for view_index in view_indexes]
        other_tokens = self._tokens - sum(result_tokens)
        share = max_tokens_per_result(result_tokens, self._limit - other_tokens)
        notes = {}
        for max_tokens in (share, 0):  # the markers of cleared results can exceed their share: then all are cleared
            for view_index in view_indexes if self._tokens > self._limit else ():
                index = self.indexes[view_index]
                if self._message_tokens[view_index] > max_tokens and (
                    clipped := clipped_to_fit(self.source, index, max_tokens, self._tokens_of(index), self._counter)
                ):
                    tokens = self._counter.message(clipped)
                    if tokens < self._message_tokens[view_index]:
                        self._replace(view_index, clipped, tokens)
                        notes[index] = self._note_of(NoteStatus.TRUNCATED, "larger than the tokens left")
        self.note(notes)

    def _replace(self, view_index: int, message: Message, tokens: int) -> None:
        self._tokens += tokens - self._message_tokens[view_index]
        self.messages[view_index], self._message_tokens[view_index] = message, tokens

    def _drop(self, dropped: Sequence[int], note: ViewNote) -> None:
        dropped_indexes = set(dropped)
        remaining = [view_index for view_index, index in enumerate(self.indexes) if index not in dropped_indexes]
        self.messages = [self.messages[view_index] for view_index in remaining]
        self.indexes = [self.indexes[view_index] for view_index in remaining]
        self._message_tokens = [self._message_tokens[view_index] for view_index in remaining]
        self._tokens = sum(self._message_tokens)
        self.note(dict.fromkeys(dropped, note))

    def _note_of(self, status: NoteStatus, description: str) -> ViewNote:
        return ViewNote(status, f"over {self._manager.max_tokens:,} tokens: {description}")

    def _irreducible(self, droppable: Sequence[int]) -> list[tuple[str, int | None, int]]:
        """The messages that must stay, for `CannotFit`: a description, the position in the record, the tokens."""
        requests, leading_count = self._requests(), self.preserved.leading_count(self.source)
        pinned = self.preserved.pinned(self.source)
        parts = []
        for index, tokens in zip(self.indexes, self._message_tokens, strict=True):
            if index in droppable:
                continue
            if index < leading_count:
                name = "a system message"
            elif index in requests[:1]:
                name = "the newest request"
            elif index in pinned:
                name = "a pinned exchange"
            else:
                name = "the exchange to be answered"
            position = self.source.position_of(index)
            if position is not None or index in pinned:
                parts.append((name, position, tokens))
        return parts
