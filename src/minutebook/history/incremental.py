"""Views that are updated as their transcript grows.

A manager's view of a transcript is cached with it and only processes the messages that were appended since the last call.
So curating before every model call costs as much as the view has messages. A view that got the messages one by one equals
a view that got all of them at once.

`KeepSet` is the set of messages that a manager must not change in one call.
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
class KeepSet:
    """The messages of a transcript that the caller requires. It is part of the cache keys of views."""

    system: bool
    last: int
    pins: frozenset[int]

    @classmethod
    def of(cls, context: CurationContext, source: Transcript) -> "KeepSet":
        """The messages required by the context and by the pins of the transcript."""
        pins = source.pins
        if context is NO_CONTEXT and not pins:
            return DEFAULT_KEEP_SET
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
        """The start of the last messages that always stay; the end of the transcript if none do."""
        end = len(source)
        if not self.last or not end:
            return end
        return source.exchange_of(max(0, end - self.last)).start


DEFAULT_KEEP_SET = KeepSet(system=True, last=0, pins=frozenset())
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

    __slots__ = ("generation", "indexes", "keep", "messages", "note_chain", "seen", "source")

    def __init__(self, source: Transcript, keep: KeepSet) -> None:
        self.source = source
        self.keep = keep
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
        roots = self.source.roots
        origins = self.indexes.copy() if roots is None else [roots[index] for index in self.indexes]
        return Curated(self.messages, origins, (self.note_chain,))

    def view_index(self, index: int) -> int:
        """The index in the view of a message of the source, or where it would be inserted."""
        return bisect_left(self.indexes, index)

    def note(self, notes: dict[int, ViewNote]) -> None:
        """Add the reasons why messages, by their index in the source, were changed or left out."""
        rooted = {root: note for index, note in notes.items() if (root := self.source.position_of(index)) is not None}
        if rooted:
            self.note_chain = NoteChain(rooted, self.note_chain)


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
        """The cached view of a coherent transcript, brought up to date."""
        keep = KeepSet.of(context, source)
        basis = self.basis(session)
        view = source.remember((self, basis, keep), lambda: self.new_view(source, keep, basis))
        if view.seen != len(source):
            view.advance()
        return view

    @abstractmethod
    def new_view(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:
        """A new view of the transcript, without messages yet."""

    def basis(self, session: SessionProtocol | None) -> Hashable:  # noqa: ARG002 - most views depend on the messages only
        """What the view depends on besides the messages."""
        return None


class IncrementalWindow(IncrementalView):
    """A view of all messages from an index on, and of the required messages before it."""

    __slots__ = ("_extra", "_head", "_reason", "_start", "_starts_at")

    def __init__(
        self,
        source: Transcript,
        keep: KeepSet,
        starts_at: Callable[[Transcript], int],
        extra: Callable[[Transcript, int], set[int]],
        reason: str,
    ) -> None:
        super().__init__(source, keep)
        self._starts_at = starts_at
        self._extra = extra
        self._reason = reason
        self._start = 0
        self._head: list[int] = []
        """Indexes of the required messages before the window."""

    def advance(self) -> None:
        source, keep = self.source, self.keep
        start = min(self._starts_at(source), keep.tail_start(source))
        if start <= source.leading_system_count:
            start, head = 0, []
        else:
            kept = {*range(keep.leading_count(source)), *keep.pinned(source), *self._extra(source, start)}
            head = sorted(index for index in kept if index < start)
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
    """A view in which each message is rewritten or left out once, when it has become old."""

    __slots__ = ("_boundary", "_done", "_rewrite")

    def __init__(
        self, source: Transcript, keep: KeepSet, boundary: Callable[[Transcript], int], rewrite: Rewrite
    ) -> None:
        super().__init__(source, keep)
        self._boundary = boundary
        self._rewrite = rewrite
        self._done = 0
        """Number of messages of the source that were rewritten."""

    def advance(self) -> None:
        source = self.source
        end = max(self._done, min(self._boundary(source), self.keep.tail_start(source)))
        old = min(end, self.seen)
        if old > self._done:
            low, high = self.view_index(self._done), self.view_index(old)
            messages, indexes, changed = self._rewrite_range(self._done, old)
            if changed:
                self.messages[low:high], self.indexes[low:high] = messages, indexes
                self.generation += 1
        unchanged_start = max(end, self.seen)
        messages, indexes, _ = self._rewrite_range(self.seen, unchanged_start)
        self.messages += messages + source.since(unchanged_start)
        self.indexes += [*indexes, *range(unchanged_start, len(source))]
        self._done, self.seen = end, len(source)

    def _rewrite_range(self, start: int, stop: int) -> tuple[list[Message], list[int], bool]:
        """Rewrite the messages from `start` to `stop`; return them, their indexes, and whether anything changed."""
        messages: list[Message] = []
        indexes: list[int] = []
        notes: dict[int, ViewNote] = {}
        pinned = self.keep.pinned(self.source)
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
