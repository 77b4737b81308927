"""Appends to conversations that are known already: one statement, which the database takes or leaves.

What a conversation was after our last append to it is remembered, so the next one is decided without asking. The
database changes the header only if it still has that version. If not, nothing is written, and the append is done again
the long way: under a lock, from what is there.
"""

import asyncio
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from struct import pack
from typing import Any, Final, NamedTuple

from minutebook.errors import IdempotencyConflict
from minutebook.store.codec import Packed, microseconds
from minutebook.store.postgres_append import Ask
from minutebook.store.postgres_entries import Kept, Rows
from minutebook.store.postgres_rows import json_of
from minutebook.store.rules import grown, require_recipient, require_version
from minutebook.store.types import Conversation

Name = tuple[str, str]
"""A tenant and the id of a conversation."""
Known = MutableMapping[Name, tuple[int, Conversation]]
"""The number and the header of conversations, as they were when we last looked."""

_BYTES, _BIG, _SMALL, _INTEGER, _TEXT = 17, 20, 21, 23, 25
"""The database's own numbers for bytea, bigint, smallint, integer and text."""
_PLAIN: Final = {_BIG: ">q", _SMALL: ">h", _INTEGER: ">i"}
_FORMATS: Final = {_BIG: ">iq", _SMALL: ">ih", _INTEGER: ">ii"}
_WIDTHS: Final = {_BIG: 8, _SMALL: 2, _INTEGER: 4}

_HEADER: Final = (_BIG, _BIG, _BIG, _INTEGER, _INTEGER, _INTEGER, _INTEGER, _TEXT, _BIG)
_ENTRY: Final = (_BIG, _INTEGER, _SMALL, _INTEGER, _BYTES, _BYTES, _BYTES)
_PAYLOAD: Final = (_BYTES, _BIG, _BYTES)
_ANSWER: Final = (_BIG, _BYTES, _BYTES, _BIG)
_KINDS: Final = (*_HEADER, *_ENTRY, *_PAYLOAD, *_ANSWER)
_ARRAYS: Final = {_BYTES: 1001, _BIG: 1016, _SMALL: 1005, _INTEGER: 1007, _TEXT: 1009}
"""The same for arrays of them."""
_ONE_KINDS: Final = (*_HEADER, *_ENTRY[1:], _BYTES, _BYTES)


class Message(NamedTuple):
    """A statement on its way: types are said beside it, since reading casts takes the server as long as the work itself."""

    statement: bytes
    types: Sequence[int]
    values: Sequence[bytes | None]


def _call(function: str, types: Sequence[int]) -> tuple[bytes, Sequence[int]]:
    numbers = ", ".join(f"${number}" for number in range(1, len(types) + 1))
    return f"SELECT minutebook.{function}({numbers})".encode(), types


_MANY: Final = _call("append", (_TEXT, _TEXT, *(_ARRAYS[kind] for kind in _KINDS)))
_ONE: Final = _call("append_one", (_TEXT, _TEXT, *_ONE_KINDS))


@dataclass(slots=True, eq=False)
class Quick:
    """An append that somebody waits for; the answer is its version, or None if it is to be done the long way."""

    tenant: str
    ask: Ask
    answer: "asyncio.Future[int | None]"


@dataclass(slots=True)
class _Talk:
    number: int
    before: Conversation
    after: Conversation
    parts: list[tuple[int, int, Sequence[Packed], Sequence[Kept]]] = field(default_factory=list)
    answers: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)


class Plan:
    """What a group of one tenant's appends will have written, if nobody else has changed the same conversations."""

    def __init__(self, tenant: str, known: Known) -> None:
        self._tenant = tenant
        self._known = known
        self._talks: dict[str, _Talk] = {}

    @property
    def conversations(self) -> int:
        return len(self._talks)

    def add(self, ask: Ask) -> int:
        """Decide on one append; return the version that it makes.

        Raises:
            MinutebookError: it could not be done, if what is known is still so.
        """
        talk = self._talks.get(ask.conversation)
        if talk is None:
            number, header = self._known[self._tenant, ask.conversation]
            talk = _Talk(number, header, header)
        key = None if ask.idempotency_key is None else ask.key
        if key in talk.answers:
            digest, version = talk.answers[key]
            if digest != ask.request.digest:
                raise IdempotencyConflict(ask.conversation, ask.idempotency_key or "")
            return version
        require_version(talk.after, ask.conversation, ask.expected_version)
        require_recipient(talk.after, ask.recipient)
        after = grown(talk.after, ask.request.messages, broken=ask.broken, at=ask.at)
        talk.parts.append((talk.after.length, talk.after.turns, ask.request.packed, ask.kept))
        talk.after = after
        if key is not None:
            talk.answers[key] = (ask.request.digest, after.version)
        self._talks[ask.conversation] = talk
        return after.version

    def message(self, lock_milliseconds: int) -> Message:
        """What has it written. Conversations are in the order in which everybody locks them."""
        talks = [self._talks[name] for name in sorted(self._talks)]
        rows = Rows()
        for talk in talks:
            for part in talk.parts:
                rows.add(talk.number, *part)
        start = [self._tenant.encode(), str(lock_milliseconds).encode()]
        if len(rows.columns[0]) == 1 and not rows.payloads:
            entry = [column[0] for column in rows.columns[1:]]
            answer = next(((key, digest) for key, (digest, _) in talks[0].answers.items()), (None, None))
            row = (*_header(talks[0]), *entry, *answer)
            return Message(*_ONE, [*start, *map(_scalar, _ONE_KINDS, row)])
        payloads = ((digest, *kept) for digest, kept in rows.payloads.items())
        answers = ((talk.number, key, *kept) for talk in talks for key, kept in talk.answers.items())
        columns = (
            *_columns(_HEADER, map(_header, talks)),
            *rows.columns,
            *_columns(_PAYLOAD, payloads),
            *_columns(_ANSWER, answers),
        )
        arrays = [_array(kind, column) for kind, column in zip(_KINDS, columns, strict=True)]
        return Message(*_MANY, [*start, *arrays])

    def remember(self) -> None:
        """Note how things are, now that it is done."""
        for name, talk in self._talks.items():
            self._known[self._tenant, name] = (talk.number, talk.after)

    def forget(self) -> None:
        """Note that somebody else was faster."""
        for name in self._talks:
            self._known.pop((self._tenant, name), None)


def _header(talk: _Talk) -> tuple[Any, ...]:
    one = talk.after
    counts = (one.version, one.length, one.turns, one.lead, one.open_at)
    return (talk.number, talk.before.version, *counts, json_of(one.open_calls), microseconds(one.updated_at))


def _columns(kinds: Sequence[int], rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    columns: list[list[Any]] = [[] for _ in kinds]
    for row in rows:
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns


def _scalar(kind: int, value: Any) -> bytes | None:
    if value is None:
        return None
    if kind in _PLAIN:
        return pack(_PLAIN[kind], value)
    return value.encode() if isinstance(value, str) else bytes(value)


def _array(kind: int, values: Sequence[Any]) -> bytes:
    """An array as the database reads it: what it holds and how many, then for each its length and its bytes."""
    if not values:
        return pack(">iii", 0, 0, kind)
    head = pack(">iiiii", 1, 1 if None in values else 0, kind, len(values), 1)
    if kind in _FORMATS:
        how, width = _FORMATS[kind], _WIDTHS[kind]
        return head + b"".join([_NULL if value is None else pack(how, width, value) for value in values])
    made = [value.encode() if isinstance(value, str) else value for value in values]
    return head + b"".join([_NULL if one is None else pack(">i", len(one)) + one for one in made])


_NULL: Final = pack(">i", -1)
