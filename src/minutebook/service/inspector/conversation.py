"""The data of one conversation, as the pages read it: record, requests, fates of messages, folds."""

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from minutebook.history.curation import NoteStatus
from minutebook.planning.plan import Plan
from minutebook.planning.task_history import TaskHistory
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_user, text_of
from minutebook.record.transcript import Transcript
from minutebook.service.inspector.requests import NOT_SENT, FateRun, InspectedRequest, Pricing, RequestSeries, SentPart
from minutebook.tokens.models import ModelTable

Fate = Literal["kept", "new", "cleared", "folded", "dropped", "repaired", "later"]
"""How the pages show a message in a request. `cleared` is every form of shortened, `later` was not in the record yet."""
FATES: Final[dict[NoteStatus, Fate]] = {
    NoteStatus.SENT: "kept",
    NoteStatus.TRUNCATED: "cleared",
    NoteStatus.CLEARED: "cleared",
    NoteStatus.STRIPPED: "cleared",
    NoteStatus.CHANGED: "cleared",
    NoteStatus.DROPPED: "dropped",
    NoteStatus.FOLDED: "folded",
    NoteStatus.REPAIRED: "repaired",
    NoteStatus.ADDED: "new",
}


@dataclass(frozen=True, slots=True)
class InspectedFold:
    """A fold, and what the store knows of it."""

    fold: Fold
    created_at: datetime | None = None
    undone_at: datetime | None = None
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The plan of an agent, and which messages belong to its steps."""

    plan: Plan | None
    histories: tuple[TaskHistory, ...]
    """One per task of the agent, the newest last."""


class FateSpan(NamedTuple):
    """Neighbouring messages of the record with one fate in a request."""

    start: int
    stop: int
    fate: Fate
    status: NoteStatus
    reason: str
    is_change: bool
    """Whether the request before sent these messages in another form."""


@dataclass(frozen=True, slots=True)
class FateCounts:
    """The number of messages with each fate in a request, and how many of them are changes since the one before."""

    totals: Counter[Fate]
    changes: Counter[Fate]
    added: int
    """Messages that are sent and are not in the record."""


@dataclass(kw_only=True, eq=False)
class InspectedConversation:
    """One conversation. While it is replayed, `requests` grows and `is_complete` is False."""

    id: str
    title: str
    messages: Sequence[Message]
    record: Transcript
    """The messages whose tokens are counted so far."""
    series: RequestSeries
    model: str | None = None
    models: ModelTable = field(default_factory=dict)
    """The user's own table of models."""
    policy: str = ""
    """What built the views, such as "TokenBudgetManager 12,000"."""
    managers: tuple[str, ...] = ()
    """The managers of a replay, as texts; empty for the token budget."""
    budget: int | None = None
    is_replay: bool = True
    """Whether the views were built by a replay. Otherwise they are the recorded ones."""
    source: str = ""
    """Its file, if there are several, or its id in a database."""
    folds: Sequence[InspectedFold] = ()
    times: Sequence[datetime | None] = ()
    """When each message was created, if that is known."""
    version: int = 0
    """Grows when the conversation does."""
    plan: StoredPlan | None = None
    """The plan of the agent that runs in the conversation."""
    origin: tuple[str, int] | None = None
    """Of a branch: the id of the conversation that it was copied from, and the number of messages that both share."""
    replay_lock: threading.Lock = field(default_factory=threading.Lock)
    """Acquired by the first replay and never released, so that the conversation is replayed once."""
    finished: threading.Event = field(default_factory=threading.Event)
    failure: Exception | None = None
    """The error that ended the replay."""

    @property
    def is_complete(self) -> bool:
        return self.finished.is_set()

    @property
    def requests(self) -> list[InspectedRequest]:
        return self.series.requests

    @property
    def pricing(self) -> Pricing:
        return self.series.pricing

    @cached_property
    def turn_starts(self) -> list[int]:
        """Positions of the user messages."""
        return [position for position, message in enumerate(self.messages) if is_user(message)]

    def turn_of(self, position: int) -> int:
        """The number of the turn, from 1; 0 before the first one."""
        return bisect_right(self.turn_starts, position)

    def tokens_of(self, position: int) -> int:
        if position < len(self.record):
            return self.record.tokens_of(position)
        return self.record.counter.message(self.messages[position])

    def request(self, number: int | None) -> InspectedRequest | None:
        """The request with this number, the nearest one if there is none, or the newest for None and 0."""
        if not self.requests:
            return None
        count = len(self.requests)
        return self.requests[(min(number or count, count)) - 1]

    def previous(self, request: InspectedRequest) -> InspectedRequest | None:
        """The last request before this one that was not refused."""
        for number in range(request.number - 1, 0, -1):
            if self.requests[number - 1].base is not None:
                return self.requests[number - 1]
        return None

    def fate_spans(self, request: InspectedRequest) -> Sequence[FateSpan]:
        """The fates of all messages of the record at a request, in order."""
        cached = self._cached_spans
        if cached is None or cached[0] is not request:
            cached = self._cached_spans = request, list(self._all_spans(request))
        return cached[1]

    def fate_spans_in(self, request: InspectedRequest, start: int, stop: int) -> Iterator[FateSpan]:
        """The spans that have messages from `start` to `stop`."""
        spans = self.fate_spans(request)
        for span in spans[max(0, bisect_right(spans, start, key=lambda item: item.start) - 1) :]:
            if span.start >= stop:
                return
            if span.stop > start:
                yield span
        if stop > request.length:
            yield FateSpan(request.length, stop, "later", NoteStatus.DROPPED, "", False)

    def _all_spans(self, request: InspectedRequest) -> Iterator[FateSpan]:
        length, before = request.length, self.previous(request)
        if request.base is None:
            yield FateSpan(0, length, "dropped", NoteStatus.DROPPED, request.refusal or "", True)
            return
        seen = 0 if before is None else min(before.length, length)
        edges = {0, length, seen}
        for base in (request.base, before and before.base):
            edges.update(base.edges(0, length) if base else ())
        pending: FateSpan | None = None
        for left, right in pairwise(sorted(edges)):
            span = self._span(request, before, left, right, seen)
            if pending is not None and pending[2:] == span[2:]:
                pending = pending._replace(stop=span.stop)
                continue
            if pending is not None:
                yield pending
            pending = span
        if pending is not None:
            yield pending

    def _span(
        self, request: InspectedRequest, before: InspectedRequest | None, start: int, stop: int, seen: int
    ) -> FateSpan:
        run, earlier = run_at(request, start), None if before is None else run_at(before, start)
        is_new = start >= seen
        if run is None:
            fate: Fate = "new" if is_new else "kept"
            return FateSpan(start, stop, fate, NoteStatus.SENT, "", not is_new and earlier is not None)
        is_change = is_new or not run.is_like(earlier)
        return FateSpan(start, stop, FATES[run.status], run.status, run.reason, is_change)

    def counts(self, request: InspectedRequest) -> FateCounts:
        """How many messages have each fate in a request."""
        totals, changes = Counter[Fate](), Counter[Fate]()
        for span in self.fate_spans(request):
            totals[span.fate] += span.stop - span.start
            if span.is_change:
                changes[span.fate] += span.stop - span.start
        added = 0 if request.base is None else len(request.base.added)
        return FateCounts(totals, changes, added)

    def since(self, request: InspectedRequest, position: int) -> int:
        """The number of the first request of the run, up to this one, in which the message had the same fate."""
        run, number = run_at(request, position), request.number
        bases = self.series.bases
        index = bisect_right(bases, request.number, key=lambda item: item[1]) - 1
        for base, first in bases[index::-1]:
            other = base.run_at(position)
            if other is not run and (run is None or not run.is_like(other)):
                break
            number = first
        first_with_message = bisect_right(self.requests, position, key=lambda item: item.length) + 1
        return max(number, first_with_message)

    def added(self, request: InspectedRequest, start: int, stop: int) -> list[SentPart]:
        """The messages that are not in the record and are sent before the positions from `start` to `stop`."""
        return [] if request.base is None else [part for part in request.base.added if start <= part.start < stop]

    def sent_part(self, request: InspectedRequest, position: int) -> SentPart | None:
        """The form in which a message is sent, if that is not its own."""
        return None if request.base is None else request.base.changed.get(position)

    _cached_spans: tuple[InspectedRequest, list[FateSpan]] | None = field(default=None, repr=False)
    lines: tuple[int, object] | None = field(default=None, repr=False)
    """The number of messages and their `LineIndex`, kept by `cards`."""

    def sent_tokens(self, request: InspectedRequest, position: int) -> int:
        """Tokens of a message in the request; 0 if it is not sent."""
        if request.base is None or position >= request.length:
            return 0
        run = run_at(request, position)
        if run is None:
            return self.tokens_of(position)
        part = self.sent_part(request, position)
        return 0 if run.status in NOT_SENT or part is None else part.tokens

    def sent_count(self, request: InspectedRequest) -> int:
        """The number of messages that a request sends."""
        if request.base is None:
            return 0
        return sum(max(1, part.stop - part.start) if part.message is None else 1 for part in request.base.parts_at(request.length))  # fmt: skip


def run_at(request: InspectedRequest, position: int) -> FateRun | None:
    """The run of changed or left-out messages that contains a position; None if the message is sent unchanged."""
    return None if request.base is None else request.base.run_at(position)


def title_of(messages: Sequence[Message], title: str | None = None) -> str:
    """The title, or the beginning of the first user message."""
    if title and title.strip():
        return " ".join(title.split())[:120]
    first = next((text_of(message) for message in messages if is_user(message) and text_of(message).strip()), "")
    words = " ".join(first[:400].split())
    return words if len(words) <= 80 else f"{words[:79]}…"
