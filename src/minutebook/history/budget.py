"""The recommended manager: a view within a token budget, cut rarely, oldest and cheapest first.

Where to cut is a left-to-right fold over the messages: each one is taken on in turn, and when the view would grow past
`max_tokens` it is cut down to `target` of it at once. So cuts are rare, adding messages never moves an earlier cut, and
between two cuts every view is the last one with something appended, which is what prompt caches pay for.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from minutebook.errors import CannotFit, InvalidSetting
from minutebook.history.curation import Curated, NoteStatus, ViewNote
from minutebook.history.incremental import IncrementalManager, IncrementalView, KeepSet, last_exchange
from minutebook.history.tool_results import cleared_result, clipped
from minutebook.history.window import require_count
from minutebook.record.message import Message, call_ids, is_result, is_user, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter, counter_for

_MARKER = "[cleared: {characters} characters]"
_DEEPER = 0.8
"""A cut that drops messages goes this much further than one that clears results. It loses the cache from the first
request on, so it should come seldom: measured on recorded agent sessions, costs fall and recall stays."""
_SHORTEST = 200
"""A result is clipped to no fewer characters than this; below, the marker says as much."""


@dataclass(slots=True, frozen=True)
class TokenBudgetManager(IncrementalManager):
    """Keep the view within a token budget.

    Over budget, old tool results are cleared first, then the oldest whole turns go, then the oldest exchanges of the
    running turn, until the view is down to `target`. Leading system messages, pins, the first and the newest user
    request and the exchange that the model is about to answer always stay; if that exchange alone is too large, its
    results are clipped. What then still does not fit is `CannotFit`.

    Raises:
        InvalidSetting: a setting cannot be meant.
    """

    max_tokens: int
    """The most tokens a view may have."""
    target: float = 0.5
    """What a cut leaves, as a share of `max_tokens`. Lower cuts deeper and less often."""
    keep_results: int = 1
    """How many of the newest tool results a cut does not clear."""
    reserve: int = 0
    """Tokens of the budget that are not for messages: tool schemas, the reply."""
    preserve_first_request: bool = True
    """Keep the first user message: it is often the task."""
    counter: TokenCounter | None = None
    """What counts; by default what the transcript counts with, or an exact counter for a plain list."""

    def __post_init__(self) -> None:
        require_count("max_tokens", self.max_tokens)
        require_count("keep_results", self.keep_results)
        require_count("reserve", self.reserve)
        if not 0 < self.target <= 1:
            raise InvalidSetting("target", self.target, "a share above 0, at most 1")
        if self.limit <= 0:
            raise InvalidSetting("max_tokens", self.max_tokens, f"more than the reserve of {self.reserve}")

    @property
    def limit(self) -> int:
        """The most tokens the messages may have."""
        return self.max_tokens - self.reserve

    @property
    def goal(self) -> int:
        """What a cut cuts down to."""
        return int(self.limit * self.target)

    def draft(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:  # noqa: ARG002
        return BudgetDraft(source, keep, self)

    def fits(self, messages: Sequence[Message]) -> bool:
        if isinstance(messages, Transcript) and (self.counter is None or self.counter == messages.counter):
            return messages.tokens <= self.limit
        counter = self.counter or counter_for(None)
        return sum(map(counter.message, messages)) <= self.limit

    def counts_with(self) -> TokenCounter | None:
        return self.counter


class BudgetDraft(IncrementalView):
    """The state of the fold: the view, what each of its messages costs, and what all of it costs.

    A cut looks only at the messages taken on so far, never at the rest of the source: the fold must not know the future.
    """

    __slots__ = ("_cleared", "_costs", "_count", "_counter", "_is_counted", "_limit", "_manager", "_size")

    def __init__(self, source: Transcript, keep: KeepSet, manager: TokenBudgetManager) -> None:
        super().__init__(source, keep)
        self._manager = manager
        self._limit = manager.limit
        self._counter = manager.counter or source.counter
        self._is_counted = self._counter == source.counter
        self._count: Callable[[int], int] = (
            source.tokens_of if self._is_counted else lambda place: self._counter.message(source[place])
        )
        self._costs: list[int] = []
        self._size = 0
        self._cleared = 0
        """How many results of the source are old, and so cleared wherever that makes them smaller."""

    def advance(self) -> None:
        limit = self._limit
        for place, message in enumerate(self.source.since(self.seen), self.seen):
            cost = self._count(place)
            self.messages.append(message)
            self.places.append(place)
            self._costs.append(cost)
            self._size += cost
            self.seen = place + 1
            if self._size > limit and self._awaits_answer(place):
                self._cut()

    def _awaits_answer(self, place: int) -> bool:
        """Whether the model is asked after this message: it is the user's, or the last result of its exchange.

        Cutting at any earlier message would mean cutting again when the rest of the exchange has arrived.
        """
        message = self.source[place]
        if not is_result(message):
            return is_user(message)
        start = self.source.exchange_of(place).start
        return place - start == len(call_ids(self.source[start]))

    def shown(self) -> "BudgetDraft":
        if self._size <= self._limit:
            return self
        if not self._awaits_answer(self.seen - 1):
            return self._cut_for_now()
        self._refuse_overflow()
        return self

    def _refuse_overflow(self) -> None:
        if self._size > self._limit:
            manager = self._manager
            raise CannotFit(manager.max_tokens, self._size + manager.reserve, self._irreducible())

    def _cut_for_now(self) -> "BudgetDraft":
        """This draft cut at a place where the model is not normally asked; the cut is not kept."""
        copy = BudgetDraft(self.source, self.keep, self._manager)
        copy.messages, copy.places, copy._costs = self.messages.copy(), self.places.copy(), self._costs.copy()
        copy._cleared, copy._size = self._cleared, self._size
        copy.seen, copy.trail = self.seen, self.trail
        copy._cut()
        copy._refuse_overflow()
        return copy

    def curated(self) -> Curated:
        view = super().curated()
        view.tokens = self._size if self._is_counted else None
        return view

    def _cut(self) -> None:
        live = last_exchange(self.source, self.seen)
        fixed = self._fixed()
        self.generation += 1
        self._clear_results(fixed, live)
        if self._size > self._manager.goal:
            goal = int(self._manager.goal * _DEEPER)
            self._drop_turns({*fixed, *live}, goal)
            self._drop_exchanges({*fixed, *live}, goal)
        if self._size > self._manager.limit:
            self._clip(fixed, live)

    def _fixed(self) -> set[int]:
        """What stays as it is, whatever the budget."""
        source, keep, end = self.source, self.keep, self.seen
        fixed = {place for place in keep.pinned(source) if place < end}
        fixed.update(range(min(keep.lead(source), end)))
        fixed.update(self._last_messages())
        fixed.update(self._requests())
        return fixed

    def _last_messages(self) -> range:
        """The messages that stay because the caller wants the last ones."""
        end, last = self.seen, self.keep.last
        return range(self.source.exchange_of(max(0, end - last)).start if last else end, end)

    def _requests(self) -> list[int]:
        """The newest user message so far and, if it is to stay, the first."""
        turns = self.source.turn_starts
        count = bisect_left(turns, self.seen)
        if not count:
            return []
        return [turns[count - 1], turns[0]] if self._manager.preserve_first_request else [turns[count - 1]]

    def _clear_results(self, fixed: set[int], live: range) -> None:
        """Every old result at once: the cache is lost at the first one, so the others cost nothing more."""
        results = self.source.result_indexes
        stop = max(self._cleared, bisect_left(results, self.seen) - self._manager.keep_results)
        newest = min(live.start, self._last_messages().start)
        notes = {}
        for place in results[self._cleared : stop]:
            if place >= newest:
                stop = bisect_left(results, place)  # too new for now; the next cut looks at it again
                break
            position = self.position(place)
            if place in fixed or position == len(self.places) or self.places[position] != place:
                continue
            verdict = cleared_result(self.source, place, marker=_MARKER)
            if verdict and (cost := self._counter.message(verdict[0])) < self._costs[position]:
                self._replace(position, verdict[0], cost)
                notes[place] = self._why(NoteStatus.CLEARED, "an old tool result")
        self._cleared = stop
        self.note(notes)

    def _drop_turns(self, staying: set[int], goal: int) -> None:
        """As many of the oldest turns as it takes; all but the newest if that is not enough."""
        left, end = self._size, 0
        for position, place in enumerate(self.places):
            if is_user(self.messages[position]):
                end = position
                if left <= goal:
                    break
            left -= self._costs[position] if place not in staying else 0
        self._drop(
            [place for place in self.places[:end] if place not in staying],
            self._why(NoteStatus.DROPPED, "one of the oldest turns"),
        )

    def _drop_exchanges(self, staying: set[int], goal: int) -> None:
        """As many of the oldest exchanges as it takes, of the turn that is running."""
        going: list[int] = []
        left, end = self._size, 0
        for position, place in enumerate(self.places):
            if place in staying:
                continue
            if place >= end and left <= goal:
                break
            end = self.source.exchange_of(place).stop
            left -= self._costs[position]
            going.append(place)
        self._drop(going, self._why(NoteStatus.DROPPED, "an early exchange of the running turn"))

    def _clip(self, fixed: set[int], live: range) -> None:
        """The results of the exchange that the model is about to answer, each to an equal share of the room."""
        positions = [
            position
            for position in range(self.position(live.start), len(self.places))
            if is_result(self.messages[position]) and self.places[position] not in fixed
        ]
        costs = [self._costs[position] for position in positions]
        share = _share(costs, self._manager.limit - (self._size - sum(costs)))
        notes = {}
        for position in positions:
            if self._costs[position] > share:
                place = self.places[position]
                short = self._clipped(place, share)
                if short is None:
                    continue
                self._replace(position, short, self._counter.message(short))
                notes[place] = self._why(NoteStatus.TRUNCATED, "larger than the room that is left")
        self.note(notes)

    def _clipped(self, place: int, share: int) -> Message | None:
        message = self.source[place]
        length = len(text_of(message)) * share // max(1, self._count(place))
        while length > _SHORTEST:
            short = clipped(message, length)
            if self._counter.message(short) <= share:
                return short
            length = length * 4 // 5
        verdict = cleared_result(self.source, place, marker=_MARKER)
        return verdict[0] if verdict else None

    def _replace(self, position: int, message: Message, cost: int) -> None:
        self._size += cost - self._costs[position]
        self.messages[position], self._costs[position] = message, cost

    def _drop(self, going: list[int], note: ViewNote) -> None:
        gone = set(going)
        stay = [position for position, place in enumerate(self.places) if place not in gone]
        self.messages = [self.messages[position] for position in stay]
        self.places = [self.places[position] for position in stay]
        self._costs = [self._costs[position] for position in stay]
        self._size = sum(self._costs)
        self.note(dict.fromkeys(going, note))

    def _why(self, status: NoteStatus, what: str) -> ViewNote:
        return ViewNote(status, f"over {self._manager.max_tokens:,} tokens: {what}")

    def _irreducible(self) -> list[tuple[str, int, int]]:
        requests, lead = self._requests(), self.keep.lead(self.source)
        pinned = self.keep.pinned(self.source)
        parts = []
        for place, cost in zip(self.places, self._costs, strict=True):
            if place < lead:
                name = "a system message"
            elif place in requests[:1]:
                name = "the newest request"
            elif place in requests:
                name = "the first request"
            elif place in pinned:
                name = "a pinned exchange"
            else:
                name = "the exchange to be answered"
            parts.append((name, self.source.position_of(place), cost))
        return [(name, root, cost) for name, root, cost in parts if root is not None]


def _share(costs: list[int], room: int) -> int:
    """The largest share such that results of these costs, each cut to it, have room together."""
    left = len(costs)
    for cost in sorted(costs):
        if cost * left > room:
            return max(0, room) // left
        room -= cost
        left -= 1
    return max(costs, default=0)
