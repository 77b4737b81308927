"""A view that grows with its transcript.

A manager's decision about the messages so far is kept as a draft. When messages arrive the draft takes them on and
decides again only if it must, so curating before every call costs what the view holds, and a draft fed one message at a
time equals one fed all of them at once.

What no manager may touch in one call: the caller's wishes, in terms of one transcript.
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
    """The caller's wishes as places in a transcript. Equal wishes are equal, so a transcript can remember by them."""

    system: bool
    last: int
    pins: frozenset[int]

    @classmethod
    def asked(cls, context: CurationContext, source: Transcript) -> "KeepSet":
        """What the context and the transcript's own pins ask for."""
        pins = source.pins
        if context is NO_CONTEXT and not pins:
            return AS_USUAL
        if context.pins:
            pins |= frozenset(place for place in range(len(source)) if source.position_of(place) in context.pins)
        return cls(context.preserve_system, context.preserve_last_n or 0, pins)

    def lead(self, source: Transcript) -> int:
        """How many messages at the front always stay."""
        return source.leading_system_count if self.system else 0

    def pinned(self, source: Transcript) -> set[int]:
        """The pinned messages with the whole exchanges they belong to."""
        if not self.pins:
            return set()
        return {place for pin in self.pins for place in source.exchange_of(pin)}

    def tail(self, source: Transcript) -> int:
        """Where the messages begin that stay because they are the last; the end where none do."""
        end = len(source)
        if not self.last or not end:
            return end
        return source.exchange_of(max(0, end - self.last)).start


AS_USUAL = KeepSet(system=True, last=0, pins=frozenset())
"""What a caller with no wishes asks for: one object, so that asking for it again costs nothing."""


def last_exchange(source: Transcript, end: int | None = None) -> range:
    """The exchange the model is about to answer, with any system messages that follow it.

    `end` is where the transcript is taken to end. Empty if there are only system messages.
    """
    end = len(source) if end is None else end
    last = end - 1
    while last >= 0 and is_system(source[last]):
        last -= 1
    return range(source.exchange_of(last).start, end) if last >= 0 else range(end, end)


Rewrite: TypeAlias = Callable[[Transcript, int], tuple[Message | None, ViewNote] | None]
"""What becomes of an old message: (another message or nothing, why), or None if it stays as it is."""


class IncrementalView(ABC):
    """The view of one transcript by one manager, brought up to date by `advance`."""

    __slots__ = ("generation", "keep", "messages", "places", "seen", "source", "trail")

    def __init__(self, source: Transcript, keep: KeepSet) -> None:
        self.source = source
        self.keep = keep
        self.messages: list[Message] = []
        self.places: list[int] = []
        """Where each message of the view stands in the source."""
        self.seen = 0
        """How much of the source is taken on."""
        self.generation = 0
        """Grows when the view changes other than at its end."""
        self.trail: NoteChain | None = None

    @abstractmethod
    def advance(self) -> None:
        """Take on what the source has gained."""

    def shown(self) -> "IncrementalView":
        """The draft whose messages are the view: this one, unless it is not fit to be seen as it is."""
        return self

    def curated(self) -> Curated:
        """The view as it stands, as a new list."""
        roots = self.source.roots
        origins = self.places.copy() if roots is None else [roots[place] for place in self.places]
        return Curated(self.messages, origins, (self.trail,))

    def position(self, place: int) -> int:
        """Where in the view a message of the source stands, or would stand."""
        return bisect_left(self.places, place)

    def note(self, notes: dict[int, ViewNote]) -> None:
        """Remember why messages, named by their place in the source, are no longer as they were."""
        rooted = {root: note for place, note in notes.items() if (root := self.source.position_of(place)) is not None}
        if rooted:
            self.trail = NoteChain(rooted, self.trail)


class ContextualManager(ABC):
    """A manager that honours a `CurationContext`, reads a transcript's index, and can be asked if messages fit.

    Any object with `curate` is a manager; this class is how ours are made.
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
        """The view of these messages: a new list, which also knows where its messages came from."""

    @abstractmethod
    def fits(self, messages: Sequence[Message]) -> bool:
        """Whether these messages are within this manager's limits, so that the view is the messages themselves."""

    def counts_with(self) -> TokenCounter | None:
        """What counts tokens when the messages come as a plain list."""
        return None


class IncrementalManager(ContextualManager):
    """A manager whose view is a draft, kept with the transcript it reads."""

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
        record = Transcript.of(messages, counter=self.counts_with())
        with record.lock:
            return self.current_draft(record.coherent(), session, context).shown().curated()

    def current_draft(
        self, source: Transcript, session: SessionProtocol | None, context: CurationContext
    ) -> IncrementalView:
        """The draft kept with a coherent transcript, up to date."""
        keep = KeepSet.asked(context, source)
        basis = self.basis(session)
        draft = source.remember((self, basis, keep), lambda: self.draft(source, keep, basis))
        if draft.seen != len(source):
            draft.advance()
        return draft

    @abstractmethod
    def draft(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:
        """A new draft of this manager's view."""

    def basis(self, session: SessionProtocol | None) -> Hashable:  # noqa: ARG002 - most managers look at messages alone
        """What the view depends on besides the messages."""
        return None


class IncrementalWindow(IncrementalView):
    """A view of everything from some place on, and of what must stay from before it."""

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

    def advance(self) -> None:
        source, keep = self.source, self.keep
        start = min(self._starts_at(source), keep.tail(source))
        if start <= source.leading_system_count:
            start, head = 0, []
        else:
            kept = {*range(keep.lead(source)), *keep.pinned(source), *self._extra(source, start)}
            head = sorted(place for place in kept if place < start)
        if (start, head) == (self._start, self._head):
            self.messages += source.since(self.seen)
            self.places += range(self.seen, len(source))
        else:
            self._move(start, head)
        self.seen = len(source)

    def _move(self, start: int, head: list[int]) -> None:
        source = self.source
        before = {*self._head, *range(self._start, start)}
        self.note(
            {place: ViewNote(NoteStatus.DROPPED, self._reason) for place in sorted(before - set(head)) if place < start}
        )
        self.messages = [source[place] for place in head] + source.since(start)
        self.places = head + list(range(start, len(source)))
        self._start, self._head = start, head
        self.generation += 1


class RewriteDraft(IncrementalView):
    """A view of every message, where those that have grown old are rewritten or left out, each once."""

    __slots__ = ("_boundary", "_done", "_rewrite")

    def __init__(
        self, source: Transcript, keep: KeepSet, boundary: Callable[[Transcript], int], rewrite: Rewrite
    ) -> None:
        super().__init__(source, keep)
        self._boundary = boundary
        self._rewrite = rewrite
        self._done = 0

    def advance(self) -> None:
        source = self.source
        end = max(self._done, min(self._boundary(source), self.keep.tail(source)))
        old = min(end, self.seen)
        if old > self._done:
            low, high = self.position(self._done), self.position(old)
            messages, places, changed = self._rewritten(self._done, old)
            if changed:
                self.messages[low:high], self.places[low:high] = messages, places
                self.generation += 1
        fresh = max(end, self.seen)
        messages, places, _ = self._rewritten(self.seen, fresh)
        self.messages += messages + source.since(fresh)
        self.places += [*places, *range(fresh, len(source))]
        self._done, self.seen = end, len(source)

    def _rewritten(self, start: int, stop: int) -> tuple[list[Message], list[int], bool]:
        """The messages from `start` to `stop` after rewriting, their places, and whether anything changed."""
        messages: list[Message] = []
        places: list[int] = []
        notes: dict[int, ViewNote] = {}
        pinned = self.keep.pinned(self.source)
        for place in range(start, stop):
            message: Message | None = self.source[place]
            verdict = None if place in pinned else self._rewrite(self.source, place)
            if verdict is not None:
                message, notes[place] = verdict
            if message is not None:
                messages.append(message)
                places.append(place)
        self.note(notes)
        return messages, places, bool(notes)
