"""What a store says about a conversation: values, with no store in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.frozen import FrozenDict, frozen
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import entry_to_provider_message

T = TypeVar("T")


class ConversationStatus(StrEnum):
    """What a conversation is doing. Any may follow any other; a new one is idle."""

    ACTIVE = "active"
    AWAITING_ANSWER = "awaiting_answer"
    CLOSED = "closed"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork left the conversation it was made from."""

    conversation: str
    position: int
    """How many entries they share: the fork's own begin here."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The header of a conversation: what is known of it without reading an entry."""

    tenant: str
    id: str
    recipient: str
    """Whom it is with: the one whose wish to be forgotten reaches it. Its own id, where nobody was named."""
    created_at: datetime
    updated_at: datetime
    """When entries were last appended."""
    status_updated_at: datetime
    status: ConversationStatus = ConversationStatus.IDLE
    version: int = 0
    """How many appends it has seen; the fork that made it counts as one. Folds, pins and status do not count."""
    length: int = 0
    """How many entries were ever appended: the position of the next one."""
    turns: int = 0
    """How many of them are user messages."""
    lead: int = 0
    """How many system messages stand at the front."""
    first: int = 0
    """The position of the first entry that was not purged."""
    open_calls: tuple[str, ...] = ()
    """The calls of the last exchange that wait for their results."""
    open_at: int | None = None
    """The position of the message that made them."""
    labels: Mapping[str, str] = field(default_factory=FrozenDict, hash=False)
    """A few short words that its owner keeps with it; a fork begins with the same."""
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.labels, FrozenDict):
            object.__setattr__(self, "labels", frozen(self.labels))


@dataclass(frozen=True, slots=True)
class StoredFold:
    """A fold as the store keeps it: it is never removed, only marked undone."""

    fold: Fold
    created_at: datetime
    undone_at: datetime | None = None
    sealed: bool = False
    """Whether entries that it covers were purged, so that it can no longer be undone."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A part of a conversation, as it was at one moment."""

    conversation: Conversation
    start: int
    """Where the part that was asked for begins."""
    entries: tuple[ConversationEntry, ...]
    positions: Sequence[int]
    """Where each of the entries stands in the record."""
    folds: tuple[Fold, ...]
    """The folds that stand, by their place: undone ones and those that a later one covers are not among them."""
    pins: frozenset[int]
    """The positions that every view must hold; those of the whole conversation."""

    @property
    def messages(self) -> list[Message]:
        """The entries as messages, no fold applied."""
        return [entry_to_provider_message(entry) for entry in self.entries]

    def shown(self) -> list[tuple[int | None, Message]]:
        """The messages with the folds applied, each with its position; None for what a fold shows."""
        hidden = _Hidden(self.folds)
        parts: list[tuple[int, int | None, Message]] = [
            (position, position, entry_to_provider_message(entry))
            for position, entry in zip(self.positions, self.entries, strict=True)
            if not hidden.holds(position)
        ]
        parts += [(fold.start, None, message) for fold in self.folds for message in fold.shown]
        parts.sort(key=lambda part: part[0])  # stable: what one fold shows stays in its order
        return [(position, message) for _, position, message in parts]

    def transcript(self, *, counter: TokenCounter | None = None) -> Transcript:
        """What `shown` gives, as a transcript with its pins: ready for `view_of`."""
        shown = self.shown()
        made = Transcript.of([message for _, message in shown], counter=counter)
        for index, (position, _) in enumerate(shown):
            if position in self.pins:
                made.pin(index)
        return made


class _Hidden:
    """Which positions a set of folds covers, asked in rising order."""

    def __init__(self, folds: Sequence[Fold]) -> None:
        self._ranges = [(fold.start, fold.stop) for fold in folds]
        self._at = 0

    def holds(self, position: int) -> bool:
        while self._at < len(self._ranges) and self._ranges[self._at][1] <= position:
            self._at += 1
        return self._at < len(self._ranges) and self._ranges[self._at][0] <= position


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that holds every word that was searched for."""

    conversation: str
    position: int
    entry: ConversationEntry


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of the answers, and where to go on."""

    items: tuple[T, ...]
    cursor: str | None
    """Give it back to get the next page; None when there is none."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an erasure removed. It names nobody and quotes nothing, so it may be kept."""

    id: str
    erased_at: datetime
    conversations: int
    """The ones that were named and every fork made from them."""
    entries: int
    folds: int
    pins: int


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import added; what an earlier try of the same import had added already is counted too."""

    conversations: int
    entries: int
