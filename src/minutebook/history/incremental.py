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
    """The messages of a transcript that the caller requires. It is part of the cache keys of views."""

    system: bool
    """Whether the leading system messages are required."""
    last: int
    """Number of last messages that are required."""
    pins: frozenset[int]

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
        return source.leading_system_count if self.system else 0

    def pinned(self, source: Transcript) -> set[int]:
        """The messages of the exchanges that contain a pin."""
        if not self.pins:
            return set()
        return {index for pin in self.pins for index in source.exchange_of(pin)}

    def tail_start(self, source: Transcript) -> int:
        """Index of the first of the last messages that always stay; the length of the transcript if none do."""
        end = len(source)
        if not self.last or not end:
            return end
        return source.exchange_of(max(0, end - self.last)).start


DEFAULT_PRESERVED = PreservedMessages(system=True, last=0, pins=frozenset())
"""The default. One object, so that cache keys are compared by identity."""


def last_exchange(source: Transcript, end: int | None = None) -> range:
    """The exchange that the model is about to answer, with any system messages that follow it.

    Messages from `end` on are ignored. The range is empty if there are only system messages.
    """
    end = len(source) if end is None else end
    last = end - 1
    while last >= 0 and is_system(source[last]):
        last -= 1
    return range(source.exchange_of(last).start, end) if last >= 0 else range(end, end)


Rewrite: TypeAlias = Callable[[Transcript, int], tuple[Message | None, ViewNote] | None]
"""Returns the message that replaces an old one (None to drop it) and a note; None if it stays unchanged."""


class IncrementalView(ABC):
    """The view of one transcript by one manager, brought up to date by `advance`."""

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

    def to_curated(self) -> Curated:
        """A new list of the messages with their origins."""
        record_positions = self.source.record_positions
        origins = (
            self.indexes.copy() if record_positions is None else [record_positions[index] for index in self.indexes]
        )
        return Curated(self.messages, origins, (self.note_chain,))

    def view_index(self, index: int) -> int:
        """The index in the view of a message of the source, or where it would be inserted."""
        return bisect_left(self.indexes, index)

    def note(self, notes: dict[int, ViewNote]) -> None:
        """Add the reasons why messages, by their index in the source, were changed or left out."""
        notes_by_position = {
            position: note for index, note in notes.items() if (position := self.source.position_of(index)) is not None
        }
        if notes_by_position:
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

    @property
    def adds_messages(self) -> bool:
        """Whether views may have messages that are not in the record. They are added by `IncrementalView.to_curated`."""
        return False

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
        view = source.remember((self, view_input, preserved), lambda: self.new_view(source, preserved, view_input))
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
    """A view of all messages from an index on, and of the required messages before it.

    `find_start` returns that index, and `find_required` the indexes of messages that the manager requires besides those
    of `preserved`.
    """

    __slots__ = ("_find_required", "_find_start", "_head", "_reason", "_start")

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
        self._head: list[int] = []
        """Indexes of the required messages before the window."""

    def advance(self) -> None:
        source, preserved = self.source, self.preserved
        start = min(self._find_start(source), preserved.tail_start(source))
        if start <= source.leading_system_count:
            start, head = 0, []
        else:
            required = {
                *range(preserved.leading_count(source)),
                *preserved.pinned(source),
                *self._find_required(source, start),
            }
            head = sorted(index for index in required if index < start)
        if (start, head) == (self._start, self._head):
            self.messages += source.since(self.seen)
            self.indexes += range(self.seen, len(source))
        else:
            self._move(start, head)
        self.seen = len(source)

    def _move(self, start: int, head: list[int]) -> None:
        source = self.source
        before = {*self._head, *range(self._start, start)}
        self.note(
            {index: ViewNote(NoteStatus.DROPPED, self._reason) for index in sorted(before - set(head)) if index < start}
        )
        self.messages = [source[index] for index in head] + source.since(start)
        self.indexes = head + list(range(start, len(source)))
        self._start, self._head = start, head
        self.generation += 1


class IncrementalRewrite(IncrementalView):
    """A view in which each message is rewritten or left out once, when it has become old.

    Messages before the index that `boundary` returns are old.
    """

    __slots__ = ("_boundary", "_rewrite", "_rewritten_until")

    def __init__(
        self, source: Transcript, preserved: PreservedMessages, boundary: Callable[[Transcript], int], rewrite: Rewrite
    ) -> None:
        super().__init__(source, preserved)
        self._boundary = boundary
        self._rewrite = rewrite
        self._rewritten_until = 0
        """Number of messages of the source that have become old, and were rewritten if necessary."""

    def advance(self) -> None:
        source = self.source
        end = max(self._rewritten_until, min(self._boundary(source), self.preserved.tail_start(source)))
        old = min(end, self.seen)
        if old > self._rewritten_until:
            low, high = self.view_index(self._rewritten_until), self.view_index(old)
            messages, indexes, changed = self._rewrite_range(self._rewritten_until, old)
            if changed:
                self.messages[low:high], self.indexes[low:high] = messages, indexes
                self.generation += 1
        unchanged_start = max(end, self.seen)
        messages, indexes, _ = self._rewrite_range(self.seen, unchanged_start)
        self.messages += messages + source.since(unchanged_start)
        self.indexes += [*indexes, *range(unchanged_start, len(source))]
        self._rewritten_until, self.seen = end, len(source)

    def _rewrite_range(self, start: int, stop: int) -> tuple[list[Message], list[int], bool]:
        """Rewrite the messages from `start` to `stop`; return those that stay, their indexes, and whether any changed."""
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
