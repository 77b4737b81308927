"""Views that are updated as their transcript grows.

A manager's view of a transcript is cached with it and only processes the messages that were appended since the last call.
So the time for a view depends on the number of its messages, not on the length of the record. A view that got the
messages one by one equals a view that got all of them at once.

`PreservedMessages` says which messages a manager must neither change nor leave out in one call.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from minutebook.history.curation import Curated, NoteChain, NoteStatus, ViewNote
from minutebook.history.protocol import NO_CONTEXT, CurationContext, SessionProtocol
from minutebook.record.message import Message, is_system
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter


@dataclass(frozen=True, slots=True)
class PreservedMessages:
    """The messages of a transcript that the caller requires, as a part of a view's cache key."""

    has_system: bool
    """Whether the leading system messages are required."""
    last_count: int
    """Number of messages at the end that are required."""
    pins: frozenset[int]
    """Indexes of pinned messages. Their exchanges are required."""

    @classmethod
    def of(cls, context: CurationContext, source: Transcript) -> "PreservedMessages":
        """The messages required by the context and by the pins of the transcript."""
        pins = source.pins
        if context is NO_CONTEXT and not pins:
            return DEFAULT_PRESERVED
        if context.pins:
            pins |= frozenset(index for index in range(len(source)) if source.position_of(index) in context.pins)
        return cls(context.preserve_system, context.preserve_last_n or 0, pins)

    def leading_count(self, source: Transcript) -> int:
        """The number of messages at the start that always stay."""
        return source.system_prompt_count if self.has_system else 0

    def pinned(self, source: Transcript) -> set[int]:
        """Indexes of the messages in the pinned exchanges."""
        if not self.pins:
            return set()
        return {index for pin in self.pins for index in source.exchange_of(pin)}

    def tail_start(self, source: Transcript) -> int:
        """Index from which on all messages always stay; the length of the transcript if no last messages are required."""
        end = len(source)
        if not self.last_count or not end:
            return end
        return source.exchange_of(max(0, end - self.last_count)).start


DEFAULT_PRESERVED = PreservedMessages(has_system=True, last_count=0, pins=frozenset())
"""The value for a call without a context and pins. It is one object, so that cache keys are equal by identity."""


def last_exchange(source: Transcript, end: int | None = None) -> range:
    """The exchange that the model is about to answer, with any system messages that follow it.

    Messages from `end` on are ignored. The range is empty if there are only system messages.
    """
    end = len(source) if end is None else end
    last_index = end - 1
    while last_index >= 0 and is_system(source[last_index]):
        last_index -= 1
    return range(source.exchange_of(last_index).start, end) if last_index >= 0 else range(end, end)


Rewrite: TypeAlias = Callable[[Transcript, int], tuple[Message | None, ViewNote] | None]
"""Returns None if the message at the index stays unchanged, else its replacement (None to drop it) and a note."""


class IncrementalView(ABC):
    """One manager's view of one transcript. `advance` updates it after messages were appended to the transcript."""

    __slots__ = ("generation", "indexes", "messages", "note_chain", "preserved", "seen", "source")

    def __init__(self, source: Transcript, preserved: PreservedMessages) -> None:
        self.source = source
        self.preserved = preserved
        self.messages: list[Message] = []
        self.indexes: list[int] = []
        """Index in the source of each message of the view."""
        self.seen = 0
        """Number of messages of the source that were processed."""
        self.generation = 0
        """Incremented when the view changes other than at its end."""
        self.note_chain: NoteChain | None = None

    @abstractmethod
    def advance(self) -> None:
        """Process the messages that were appended to the source."""

    def final(self) -> "IncrementalView":
        """The view to send: this one, or a copy if it has to be changed for this call only."""
        return self

    def rows(self) -> tuple[Sequence[Message], Sequence[int | None]]:
        """The messages to send and the index in the source of each; None for a message that is not in the source."""
        return self.messages, self.indexes

    def to_curated(self) -> Curated:
        """A new list of the messages with their origins."""
        record_positions = self.source.record_positions
        messages, indexes = self.rows()
        origins = (
            list(indexes)
            if record_positions is None
            else [None if index is None else record_positions[index] for index in indexes]
        )
        return Curated(messages, origins, (self.note_chain,))

    def view_index(self, index: int) -> int:
        """The index in the view of a message of the source, or where it would be inserted."""
        return bisect_left(self.indexes, index)

    def note(self, notes: dict[int, ViewNote]) -> None:
        """Add the reasons why messages, by their index in the source, were changed or left out."""
        notes_by_position = {
            position: note for index, note in notes.items() if (position := self.source.position_of(index)) is not None
        }
        if notes:  # also if only added messages were changed, because a new link marks a cut
            self.note_chain = NoteChain(notes_by_position, self.note_chain)


class ContextualManager(ABC):
    """Base class of managers that support a `CurationContext` and `fits`, and use the index of a transcript.

    Any object with `curate` is a manager; the built-in ones inherit this class.
    """

    __slots__ = ()

    @abstractmethod
    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        """The view of these messages: a new list with the origins of its messages."""

    @abstractmethod
    def fits(self, messages: Sequence[Message]) -> bool:
        """Whether the messages are within this manager's limits, so that the view equals them."""

    def default_counter(self) -> TokenCounter | None:
        """The token counter for messages that are a plain list."""
        return None


class IncrementalManager(ContextualManager):
    """Base class of managers whose views are cached with the transcript and updated as it grows."""

    __slots__ = ()

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        context = context or NO_CONTEXT
        session = session if session is not None else context.session
        record = Transcript.of(messages, counter=self.default_counter())
        with record.lock:
            return self.current_view(record.coherent(), session, context).final().to_curated()

    def current_view(
        self, source: Transcript, session: SessionProtocol | None, context: CurationContext
    ) -> IncrementalView:
        """The cached view of a transcript that needs no repair, brought up to date."""
        preserved = PreservedMessages.of(context, source)
        view_input = self.view_input(session)
        view = source.cached_value((self, view_input, preserved), lambda: self.new_view(source, preserved, view_input))
        if view.seen != len(source):
            view.advance()
        return view

    @abstractmethod
    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:
        """A new view of the transcript, without messages yet."""

    def view_input(self, session: SessionProtocol | None) -> Hashable:  # noqa: ARG002 - most views depend on the messages only
        """What the view depends on besides the messages, as a part of its cache key."""
        return None


class IncrementalWindow(IncrementalView):
    """A view of all messages from a start index on, and of the required messages before it.

    `find_start` returns the start index. `find_required` returns the indexes of messages that the manager requires, in
    addition to `preserved`.
    """

    __slots__ = ("_find_required", "_find_start", "_reason", "_required", "_start")

    def __init__(
        self,
        source: Transcript,
        preserved: PreservedMessages,
        find_start: Callable[[Transcript], int],
        find_required: Callable[[Transcript, int], set[int]],
        reason: str,
    ) -> None:
        super().__init__(source, preserved)
        self._find_start = find_start
        self._find_required = find_required
        self._reason = reason
        self._start = 0
        self._required: list[int] = []
        """Indexes of the required messages before the start."""

    def advance(self) -> None:
        source, preserved = self.source, self.preserved
        start = min(self._find_start(source), preserved.tail_start(source))
        required: list[int] = []
        if start <= source.leading_system_count:
            start = 0
        else:
            indexes = {
                *range(source.leading_system_count if preserved.has_system else 0),  # includes a summary after them
                *preserved.pinned(source),
                *self._find_required(source, start),
            }
            required = sorted(index for index in indexes if index < start)
        if (start, required) == (self._start, self._required):
            self.messages += source.since(self.seen)
            self.indexes += range(self.seen, len(source))
        else:
            self._move(start, required)
        self.seen = len(source)

    def _move(self, start: int, required: list[int]) -> None:
        """Rebuild the view with another start or other required messages, and note the messages that it loses."""
        source = self.source
        shown_before_start = {*self._required, *range(self._start, start)}
        dropped = sorted(index for index in shown_before_start - set(required) if index < start)
        self.note({index: ViewNote(NoteStatus.DROPPED, self._reason) for index in dropped})
        self.messages = [source[index] for index in required] + source.since(start)
        self.indexes = required + list(range(start, len(source)))
        self._start, self._required = start, required
        self.generation += 1


class IncrementalRewrite(IncrementalView):
    """A view in which each message is rewritten or left out once, when it has become old.

    Messages before the index that `find_boundary` returns are old.
    """

    __slots__ = ("_find_boundary", "_old_count", "_rewrite")

    def __init__(
        self,
        source: Transcript,
        preserved: PreservedMessages,
        find_boundary: Callable[[Transcript], int],
        rewrite: Rewrite,
    ) -> None:
        super().__init__(source, preserved)
        self._find_boundary = find_boundary
        self._rewrite = rewrite
        self._old_count = 0
        """Number of messages of the source that are old, and were rewritten if necessary."""

    def advance(self) -> None:
        source = self.source
        old_count = max(self._old_count, min(self._find_boundary(source), self.preserved.tail_start(source)))
        self._rewrite_seen(min(old_count, self.seen))
        unchanged_start = max(old_count, self.seen)
        messages, indexes, _ = self._rewrite_range(self.seen, unchanged_start)
        self.messages += messages + source.since(unchanged_start)
        self.indexes += [*indexes, *range(unchanged_start, len(source))]
        self._old_count, self.seen = old_count, len(source)

    def _rewrite_seen(self, stop: int) -> None:
        """Rewrite the messages before `stop` that are in the view already and have become old."""
        if stop <= self._old_count:
            return
        view_range = slice(self.view_index(self._old_count), self.view_index(stop))
        messages, indexes, has_changes = self._rewrite_range(self._old_count, stop)
        if has_changes:
            self.messages[view_range], self.indexes[view_range] = messages, indexes
            self.generation += 1

    def _rewrite_range(self, start: int, stop: int) -> tuple[list[Message], list[int], bool]:
        """Rewrite the messages from `start` to `stop`. Returns the result, its indexes, and whether anything changed."""
        messages: list[Message] = []
        indexes: list[int] = []
        notes: dict[int, ViewNote] = {}
        pinned = self.preserved.pinned(self.source)
        for index in range(start, stop):
            message: Message | None = self.source[index]
            rewrite = None if index in pinned else self._rewrite(self.source, index)
            if rewrite is not None:
                message, notes[index] = rewrite
            if message is not None:
                messages.append(message)
                indexes.append(index)
        self.note(notes)
        return messages, indexes, bool(notes)
