"""The transcript: an append-only list of messages with an index of tokens, exchanges and turns.

The index is updated when a message is appended. Building a view therefore takes time proportional to the messages in the
view, not to those in the record.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import is_
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from minutebook.errors import BrokenConversation, InvalidSetting, require_type
from minutebook.record.finding import Finding, FindingKind
from minutebook.record.message import RESULT_ROLES, SYSTEM_ROLES, Message, has_fold_kind, require_message, role_of
from minutebook.record.pairing import Pairing
from minutebook.record.parts import with_known_parts
from minutebook.record.repairs import Repair, RepairedCopy
from minutebook.record.shapes import has_common_names, is_plain, require_content, shape_problems
from minutebook.tokens import TokenCounter, counter_for

OnBroken: TypeAlias = Literal["raise", "mark"]
T = TypeVar("T")

_MAX_CACHED = 8
"""Maximum number of values that `Transcript.cached_value` keeps."""

_BROKEN_ADVICE = "Append the missing message first, call repair(), or accept it with Transcript(broken='mark')"

_IGNORED_KINDS = frozenset({FindingKind.REUSED_ID})
"""Problems that a transcript does not report. Calls and results are paired within one exchange, so an id may occur again
in a later one."""


class Transcript(Sequence[Message]):
    """An append-only sequence of messages, indexed as it grows.

    A message that breaks the pairing of calls and results raises `BrokenConversation`, and one with content that no
    provider accepts raises `InvalidMessage`. With `broken="mark"`, such messages are appended and reported in `findings`.
    Messages are not copied, so do not change them afterwards: the index would be wrong.
    """

    def __init__(
        self, messages: Iterable[Message] = (), *, counter: TokenCounter | None = None, broken: OnBroken = "raise"
    ) -> None:
        if broken not in {"raise", "mark"}:
            raise InvalidSetting("broken", broken, "'raise' or 'mark'")
        self.broken = broken
        self._counter = counter
        self._counts_on_append = True
        self._messages: list[Message] = []
        self._tokens: list[int] = []
        self._total_tokens = 0
        self._pairing = Pairing()
        self._findings: list[Finding] = []
        self.leading_system_count = 0
        """The number of system messages at the start."""
        self.system_prompt_count = 0
        """The number of leading system messages that every view must have. Summaries, markers and messages that a manager
        has added do not count, nor do the system messages after them."""
        self.exchange_starts: list[int] = []
        """Index of the first message of each exchange."""
        self.turn_starts: list[int] = []
        """Indexes of the user messages, one per turn. Messages that a manager has added do not count."""
        self.result_indexes: list[int] = []
        """Indexes of the tool results."""
        self._pins: frozenset[int] = frozenset()
        self._parent: Transcript | None = None
        self._origins: list[int | None] | None = None
        self.record_positions: list[int | None] | None = None
        """Position of each message in the record, if this transcript is derived from another one."""
        self._has_unusual_fields = False
        self._skips_checks = False
        self._is_view = False
        self._repaired = RepairedCopy(self)
        self._cache: dict[tuple[Hashable, ...], Any] = {}
        self._last_key: tuple[Hashable, ...] = ()
        self._last_value: Any = None
        self.lock = threading.RLock()
        self.extend(messages)

    @classmethod
    def of(cls, messages: Sequence[Message], *, counter: TokenCounter | None = None) -> "Transcript":
        """Return the messages if they are a transcript, else a new transcript of them with `broken="mark"`."""
        if isinstance(messages, Transcript):
            return messages
        transcript = cls(counter=counter, broken="mark")
        transcript._counts_on_append = False  # a caller that reads the messages once may not need token counts
        transcript.extend(messages)
        return transcript

    def append(self, message: Message) -> int:
        """Add a message at the end; return its index.

        Raises:
            InvalidMessage: it is not a message, or no provider accepts its content. Nothing was appended.
            BrokenConversation: it breaks the pairing of calls and results, and `broken` is "raise". Nothing was appended.
        """
        with self.lock:
            index = len(self._messages)
            needs_no_checks = self._is_checked(index, message) or (type(message) is dict and is_plain(message))
            if not needs_no_checks:
                require_message(message, index)
            problems = self._pairing.problems(index, message)
            findings = [finding for finding in problems if finding.kind not in _IGNORED_KINDS]
            if findings and self.broken == "raise":
                raise BrokenConversation(findings, _BROKEN_ADVICE)
            if not needs_no_checks:
                if self.broken == "raise":
                    require_content(message, index)
                findings += [Finding(kind, index) for kind in shape_problems(message)]
                self._has_unusual_fields = (
                    self._has_unusual_fields
                    or not has_common_names(message)
                    or with_known_parts(message, "openai") is not message
                )
            if self._counts_on_append:
                self._tokens.append(self.counter.message(message))
                self._total_tokens += self._tokens[-1]
            self._findings += findings
            self._append(index, message)
            if self._findings and self._counts_on_append:
                self._repaired.current()  # update the copy now, like the token counts, so that views are built fast
            return index

    def _is_checked(self, index: int, message: Message) -> bool:
        """Whether the message is unchanged from the parent, which found no problem in any message."""
        if self._parent is None or self._origins is None or self._parent.findings:
            return False
        origin = self._origins[index]
        return origin is not None and self._parent[origin] is message

    def _append(self, index: int, message: Message) -> None:
        self._pairing.add(index, message)
        self._update_index(index, message)
        self._messages.append(message)

    def extend(self, messages: Iterable[Message]) -> None:
        """Append the messages one by one. Those before an invalid one stay appended."""
        require_type("messages", messages, Iterable, "a list of messages")
        for message in messages:
            self.append(message)

    def _update_index(self, index: int, message: Message) -> None:
        role = role_of(message)
        if role in RESULT_ROLES:
            self.result_indexes.append(index)
            if self.exchange_starts and self.exchange_starts[-1] == self._pairing.start:
                return
        elif role == "user" and not has_fold_kind(message):
            if not self._is_view or self._origins is None or self._origins[index] is not None:
                self.turn_starts.append(index)
        elif role in SYSTEM_ROLES and self.leading_system_count == index:
            self.leading_system_count += 1
            if self.system_prompt_count == index and self._is_system_prompt(index, message):
                self.system_prompt_count += 1
        self.exchange_starts.append(index)

    def _is_system_prompt(self, index: int, message: Message) -> bool:
        """Whether this leading system message is one of the record."""
        if self._parent is None or self._origins is None:
            return not has_fold_kind(message)
        origin = self._origins[index]
        if origin is None or has_fold_kind(message):
            return False
        # A system message that comes to the start because a fold or a repair of the record hid the messages before it
        # counts. One that comes to the start because a manager left messages out does not.
        is_folded_or_repaired = self._parent.record_positions is None and not self._is_view
        return is_folded_or_repaired or origin < self._parent.system_prompt_count

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The problems of the messages.

        Some are reported here also with `broken="raise"`: those that a view can repair within one message, such as a lone
        surrogate.
        """
        return tuple(self._findings)

    @property
    def has_unusual_fields(self) -> bool:
        """Whether some provider rejects a part of content, or the name of a tool or of an author."""
        return self._has_unusual_fields or (self._parent is not None and self._parent.has_unusual_fields)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """How `coherent()` repairs the findings."""
        return self._repaired.repairs if self._findings else ()

    @property
    def open_calls(self) -> tuple[str, ...]:
        """Ids of the calls in the last exchange that have no result yet."""
        return tuple(self._pairing.open)

    @property
    def counter(self) -> TokenCounter:
        """The token counter. Default: `counter_for(None)`."""
        if self._counter is None:
            self._counter = counter_for(None)
        return self._counter

    @property
    def tokens(self) -> int:
        """Tokens of all messages."""
        if len(self._tokens) < len(self._messages):
            self._count_tokens()
        return self._total_tokens

    def tokens_of(self, index: int) -> int:
        """Tokens of one message."""
        if len(self._tokens) < len(self._messages):
            self._count_tokens()
        return self._tokens[index]

    def token_counts(self) -> Sequence[int]:
        """Tokens of each message, in order. Do not change the list."""
        self._count_tokens()
        return self._tokens

    def _count_tokens(self) -> None:
        with self.lock:
            for index in range(len(self._tokens), len(self._messages)):
                tokens = self._parent_tokens(index)
                if tokens is None:
                    tokens = self.counter.message(self._messages[index])
                self._tokens.append(tokens)
                self._total_tokens += tokens

    def _parent_tokens(self, index: int) -> int | None:
        """The parent's count for a message that was not changed, else None."""
        if self._parent is None or self._origins is None or (origin := self._origins[index]) is None:
            return None
        is_unchanged = self._parent[origin] is self._messages[index]
        return self._parent.tokens_of(origin) if is_unchanged else None

    @property
    def first_request(self) -> int | None:
        """Index of the first user message, or None if there is no user message."""
        return self.turn_starts[0] if self.turn_starts else None

    @property
    def newest_request(self) -> int | None:
        """Index of the newest user message, or None if there is no user message."""
        return self.turn_starts[-1] if self.turn_starts else None

    def exchange_of(self, index: int) -> range:
        """The exchange that contains the message at `index`."""
        next_exchange = bisect_right(self.exchange_starts, index)
        stop = self.exchange_starts[next_exchange] if next_exchange < len(self.exchange_starts) else len(self)
        return range(self.exchange_starts[next_exchange - 1], stop)

    def turn_of(self, index: int) -> int:
        """The number of the turn that contains the message, from 0; -1 before the first user message."""
        return bisect_right(self.turn_starts, index) - 1

    @property
    def pins(self) -> frozenset[int]:
        """Indexes of the messages that every view must include."""
        return self._pins

    def pin(self, index: int) -> None:
        """Include this message and its exchange in every view."""
        self._pins |= {range(len(self))[index]}

    def unpin(self, index: int) -> None:
        self._pins -= {range(len(self))[index]}

    def derive(
        self,
        messages: Iterable[Message],
        origins: Iterable[int | None],
        *,
        skip_checks: bool = False,
        is_view: bool = False,
    ) -> "Transcript":
        """A new transcript of a changed selection of these messages. Pins and the counts of unchanged messages are copied.

        `origins` has the index in this transcript of each message, None for an added one. With `skip_checks`, messages
        are not checked, neither now nor in `append_from`: the caller guarantees that they are valid. With `is_view`, they
        are the view of a manager: only the system prompts of this transcript are system prompts there too.
        """
        derived = Transcript(counter=self._counter, broken="mark")
        derived._parent, derived._origins, derived.record_positions = self, [], []
        derived._counts_on_append = False
        derived._skips_checks, derived._is_view = skip_checks, is_view
        for message, origin in zip(messages, origins, strict=True):
            derived.append_from(origin, message)
        return derived

    def append_from(self, origin: int | None, message: Message) -> None:
        """Append a message to a derived transcript. `origin` is its index in the parent, None for an added message."""
        assert self._parent is not None
        assert self._origins is not None
        assert self.record_positions is not None
        self._origins.append(origin)
        self.record_positions.append(None if origin is None else self._parent.position_of(origin))
        if self._skips_checks:
            self._append(len(self._messages), message)
        else:
            self.append(message)
        if self._parent.pins and origin in self._parent.pins:
            self._pins |= {len(self._messages) - 1}

    def origin_of(self, index: int) -> int | None:
        """Index in the parent of the message at `index` of a derived transcript, or None if it was added."""
        return index if self._origins is None else self._origins[index]

    def position_of(self, index: int) -> int | None:
        """Position in the record of the message at `index`, or None if it was added."""
        return index if self.record_positions is None else self.record_positions[index]

    def indexes_of(self, positions: Iterable[int | None]) -> list[int | None]:
        """Indexes in this transcript of messages at these positions of the record: the inverse of `position_of`."""
        if self.record_positions is None:
            return list(positions)
        indexes = {position: index for index, position in enumerate(self.record_positions) if position is not None}
        return [None if position is None else indexes.get(position) for position in positions]

    def coherent(self) -> "Transcript":
        """The repaired conversation; this transcript itself if it has no findings."""
        if not self._findings:
            return self
        with self.lock:
            return self._repaired.current()

    def cached_value(self, key: tuple[Hashable, ...], make: Callable[[], T]) -> T:
        """The cached value of the key. If there is none, call `make` and cache its result.

        The least recently used key is evicted.
        """
        with self.lock:
            # Keys can be slow to hash (a tuple of thousands of folds), so the last one is compared by identity first.
            last_key = self._last_key
            if len(key) == len(last_key) and all(map(is_, key, last_key)):
                return cast("T", self._last_value)
            value = self._cache.pop(key, None)
            if value is None:
                value = make()
                while len(self._cache) >= _MAX_CACHED:
                    self._cache.pop(next(iter(self._cache)))
            self._cache[key] = self._last_value = value
            self._last_key = key
            return cast("T", value)

    def since(self, index: int) -> list[Message]:
        """A new list of the messages from `index` on."""
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
        return _unpickle, (list(self._messages), self._counter, self.broken, self._pins)


def _unpickle(
    messages: list[Message], counter: TokenCounter | None, broken: OnBroken, pins: frozenset[int]
) -> Transcript:
    transcript = Transcript(messages, counter=counter, broken=broken)
    for pin in pins:
        transcript.pin(pin)
    return transcript
