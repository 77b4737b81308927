"""The indexed list: an append-only sequence of messages that knows itself.

What every manager asks again and again (how many tokens, which exchange, which turn, which user message is the newest)
is worked out once, when a message arrives, so that building a view costs what it keeps and not what was ever said.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import is_
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from minutebook.errors import BrokenConversation, InvalidSetting
from minutebook.record.finding import Finding, FindingKind
from minutebook.record.message import RESULT_ROLES, SYSTEM_ROLES, Message, require_message, role_of
from minutebook.record.pairing import Pairing
from minutebook.record.repairs import Mended, Repair
from minutebook.tokens import TokenCounter, counter_for

Broken: TypeAlias = Literal["raise", "mark"]
T = TypeVar("T")

_REMEMBERED = 8
"""How many different readers a transcript keeps the state of."""

_HARMLESS = frozenset({FindingKind.REUSED_ID})
"""Findings that break nothing: pairing reads ids within one exchange only."""


class Transcript(Sequence[Message]):
    """An append-only sequence of messages, indexed as it grows.

    A message that does not fit the ones before it raises `BrokenConversation`, or with `broken="mark"` is kept and
    marked in `findings`. Messages are held as they are given: change one afterwards and the index no longer holds.
    """

    def __init__(
        self, messages: Iterable[Message] = (), *, counter: TokenCounter | None = None, broken: Broken = "raise"
    ) -> None:
        if broken not in {"raise", "mark"}:
            raise InvalidSetting("broken", broken, "'raise' or 'mark'")
        self.broken = broken
        self._counter = counter
        self._eager = True
        self._messages: list[Message] = []
        self._tokens: list[int] = []
        self._total = 0
        self._pairing = Pairing()
        self._findings: list[Finding] = []
        self.lead = 0
        """How many system messages stand at the front."""
        self.exchange_starts: list[int] = []
        self.turn_starts: list[int] = []
        """Where the user messages stand: one for each turn."""
        self.result_places: list[int] = []
        """Where the tool results stand."""
        self._pins: frozenset[int] = frozenset()
        self._parent: Transcript | None = None
        self._origins: list[int | None] | None = None
        self.roots: list[int | None] | None = None
        """Where each message stands in the record, for a transcript that was made from another."""
        self._in_order = False
        self._mended = Mended(self)
        self._memory: dict[tuple[Hashable, ...], Any] = {}
        self._last_key: tuple[Hashable, ...] = ()
        self._at_hand: Any = None
        self.lock = threading.RLock()
        self.extend(messages)

    @classmethod
    def of(cls, messages: Sequence[Message], *, counter: TokenCounter | None = None) -> "Transcript":
        """The messages as a transcript: themselves if they are one, else a new one that marks what is broken."""
        if isinstance(messages, Transcript):
            return messages
        made = cls(counter=counter, broken="mark")
        made._eager = False  # whoever reads it once may never ask for tokens
        made.extend(messages)
        return made

    def append(self, message: Message) -> int:
        """Add a message at the end; return its index.

        Raises:
            InvalidMessage: it does not have the shape of a message. Nothing was appended.
            BrokenConversation: it does not fit the ones before it, and `broken` is "raise". Nothing was appended.
        """
        with self.lock:
            index = len(self._messages)
            require_message(message, index)
            found = [finding for finding in self._pairing.problems(index, message) if finding.kind not in _HARMLESS]
            if found and self.broken == "raise":
                raise BrokenConversation(found)
            if self._eager:
                self._tokens.append(self.counter.message(message))
                self._total += self._tokens[-1]
            self._findings += found
            self._take(index, message)
            if self._findings and self._eager:
                self._mended.current()
            return index

    def _take(self, index: int, message: Message) -> None:
        self._pairing.take(index, message)
        self._index(index, role_of(message))
        self._messages.append(message)

    def extend(self, messages: Iterable[Message]) -> None:
        """Append each message in turn; the ones before a broken one stay."""
        for message in messages:
            self.append(message)

    def _index(self, index: int, role: str) -> None:
        if role in RESULT_ROLES:
            self.result_places.append(index)
            if self.exchange_starts and self.exchange_starts[-1] == self._pairing.start:
                return
        elif role == "user":
            self.turn_starts.append(index)
        elif role in SYSTEM_ROLES and self.lead == index:
            self.lead += 1
        self.exchange_starts.append(index)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the messages that were kept all the same, as it was found."""
        return tuple(self._findings)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What the coherent form of this transcript does about its findings."""
        return self._mended.repairs if self._findings else ()

    @property
    def open_calls(self) -> tuple[str, ...]:
        """The calls of the last exchange that wait for their results."""
        return tuple(self._pairing.open)

    @property
    def counter(self) -> TokenCounter:
        """What counts the tokens; an exact counter unless another was given."""
        if self._counter is None:
            self._counter = counter_for(None)
        return self._counter

    @property
    def tokens(self) -> int:
        """The tokens of all messages."""
        if len(self._tokens) < len(self._messages):
            self._count()
        return self._total

    def tokens_of(self, index: int) -> int:
        """The tokens of one message."""
        if len(self._tokens) < len(self._messages):
            self._count()
        return self._tokens[index]

    def token_counts(self) -> Sequence[int]:
        """The tokens of every message, in order; not to be changed."""
        self._count()
        return self._tokens

    def _count(self) -> None:
        with self.lock:
            for index in range(len(self._tokens), len(self._messages)):
                tokens = self._known(index)
                tokens = self.counter.message(self._messages[index]) if tokens is None else tokens
                self._tokens.append(tokens)
                self._total += tokens

    def _known(self, index: int) -> int | None:
        """The count of a message that came unchanged from the transcript this one was made from."""
        if self._parent is None or self._origins is None or (origin := self._origins[index]) is None:
            return None
        same = self._parent[origin] is self._messages[index]
        return self._parent.tokens_of(origin) if same else None

    @property
    def first_request(self) -> int | None:
        """The first user message."""
        return self.turn_starts[0] if self.turn_starts else None

    @property
    def newest_request(self) -> int | None:
        """The newest user message."""
        return self.turn_starts[-1] if self.turn_starts else None

    def exchange_of(self, index: int) -> range:
        """The exchange that a message belongs to."""
        place = bisect_right(self.exchange_starts, index) - 1
        stop = self.exchange_starts[place + 1] if place + 1 < len(self.exchange_starts) else len(self)
        return range(self.exchange_starts[place], stop)

    def turn_of(self, index: int) -> int:
        """The turn that a message belongs to, counted from 0; -1 before the first user message."""
        return bisect_right(self.turn_starts, index) - 1

    @property
    def pins(self) -> frozenset[int]:
        """The messages that every view must hold."""
        return self._pins

    def pin(self, index: int) -> None:
        """Have every view hold this message, and the exchange it belongs to."""
        self._pins |= {range(len(self))[index]}

    def unpin(self, index: int) -> None:
        self._pins -= {range(len(self))[index]}

    def derive(
        self, messages: Iterable[Message], origins: Iterable[int | None], *, in_order: bool = False
    ) -> "Transcript":
        """A transcript of messages made from these ones; `origins` says where each stands in this one.

        Messages that came unchanged are not counted again, and pins go with their messages. `in_order` promises that
        nothing is broken in them, now or later, so that nothing need be checked again.
        """
        made = Transcript(counter=self._counter, broken="mark")
        made._parent, made._origins, made.roots, made._eager = self, [], [], False
        made._in_order = in_order
        for message, origin in zip(messages, origins, strict=True):
            made.append_from(origin, message)
        return made

    def append_from(self, origin: int | None, message: Message) -> None:
        """Append to a derived transcript a message made from the one at `origin` of its parent."""
        assert self._parent is not None
        assert self._origins is not None
        assert self.roots is not None
        self._origins.append(origin)
        self.roots.append(None if origin is None else self._parent.root_of(origin))
        if self._in_order:
            self._take(len(self._messages), message)
        else:
            self.append(message)
        if self._parent.pins and origin in self._parent.pins:
            self._pins |= {len(self._messages) - 1}

    def root_of(self, index: int) -> int | None:
        """Where a message stands in the record that this transcript was made from, or None if it was added."""
        return index if self.roots is None else self.roots[index]

    def places_of(self, roots: Iterable[int | None]) -> list[int | None]:
        """Where messages of the record stand in this transcript: `root_of`, the other way round."""
        if self.roots is None:
            return list(roots)
        places = {root: place for place, root in enumerate(self.roots) if root is not None}
        return [None if root is None else places.get(root) for root in roots]

    def coherent(self) -> "Transcript":
        """The same conversation with nothing broken in it; this very transcript when nothing is."""
        if not self._findings:
            return self
        with self.lock:
            return self._mended.current()

    def remember(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        """What `make` made for this key, kept with the transcript; the key least lately used gives way.

        The key of last time is known by its objects, without comparing what they hold.
        """
        with self.lock:
            last = self._last_key
            if len(key) == len(last) and all(map(is_, key, last)):
                return cast("T", self._at_hand)
            kept = self._memory.pop(key, None)
            if kept is None:
                kept = make()
                while len(self._memory) >= _REMEMBERED:
                    self._memory.pop(next(iter(self._memory)))
            self._memory[key] = self._at_hand = kept
            self._last_key = key
            return cast("T", kept)

    def since(self, index: int) -> list[Message]:
        """The messages from `index` on, as a new list."""
        return self._messages[index:]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._messages[index]

    def __repr__(self) -> str:
        return f"Transcript({len(self)} messages, {len(self.turn_starts)} turns)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (list(self._messages), self._counter, self.broken, self._pins)


def _restored(
    messages: list[Message], counter: TokenCounter | None, broken: Broken, pins: frozenset[int]
) -> Transcript:
    transcript = Transcript(messages, counter=counter, broken=broken)
    for pin in pins:
        transcript.pin(pin)
    return transcript
