"""Headers as rows: how a conversation is found, made and changed."""

import json
from dataclasses import dataclass
from typing import Any, Final

import apsw

from minutebook.errors import ConversationErased, ConversationNotFound
from minutebook.store.codec import microseconds, moment
from minutebook.store.rules import tombstone
from minutebook.store.types import Conversation, ConversationStatus, Origin

SHIFT: Final = 32
"""An entry's place is its conversation's number, shifted by this, plus its position."""

COLUMNS: Final = (
    "number, tenant, id, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels, "
    "created_at, updated_at, status_updated_at, origin_id, origin_position, lineage"
)
_FIND: Final = f"SELECT {COLUMNS} FROM conversation WHERE tenant = ? AND id = ?"  # noqa: S608 - a constant of ours
_INSERT: Final = (
    "INSERT INTO conversation (tenant, id, recipient, status, version, length, turns, lead, first, indexed, open_at, open_calls,"
    " labels, created_at, updated_at, status_updated_at, origin, origin_id, origin_position, lineage, documents)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
GROW: Final = (
    "UPDATE conversation SET version = ?, length = ?, turns = ?, lead = ?, open_at = ?, open_calls = ?, updated_at = ?"
    " WHERE number = ?"
)


@dataclass(frozen=True, slots=True)
class Filed:
    """A conversation with its place in the database."""

    number: int
    conversation: Conversation
    lineage: tuple[tuple[int, int], ...] = ()
    """For a fork: the number of the conversation that a stretch is read from, and where that stretch ends."""

    def spans(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Where the entries of a range stand, as ranges of places."""
        found: list[tuple[int, int]] = []
        for number, end in (*self.lineage, (self.number, self.conversation.length)):
            until = min(end, stop)
            if start < until:
                found.append((place(number, start), place(number, until)))
                start = until
        return found

    def place(self, position: int) -> int:
        """Where the entry of one position stands."""
        number = next((number for number, end in self.lineage if position < end), self.number)
        return place(number, position)

    @property
    def own(self) -> int:
        """The position of the first entry that is not read from another."""
        return self.lineage[-1][1] if self.lineage else 0


def place(number: int, position: int) -> int:
    return (number << SHIFT) + position


def position_of(entry_place: int) -> int:
    return entry_place & ((1 << SHIFT) - 1)


def rows(db: apsw.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """All rows of an answer. What a column holds is our own affair, so its type is not checked."""
    return db.execute(statement, values).fetchall()


def find(db: apsw.Connection, tenant: str, conversation: str) -> Filed | None:
    """The conversation of that id, or None.

    Raises:
        ConversationErased: there was one.
    """
    row = db.execute(_FIND, (tenant, conversation)).fetchone()
    if row is not None:
        return filed(row)
    if db.execute("SELECT 1 FROM tombstone WHERE id = ?", (tombstone(tenant, conversation),)).fetchone():
        raise ConversationErased(conversation)
    return None


def found(db: apsw.Connection, tenant: str, conversation: str) -> Filed:
    """The conversation of that id.

    Raises:
        ConversationNotFound: there is none.
    """
    known = find(db, tenant, conversation)
    if known is None:
        raise ConversationNotFound(conversation)
    return known


def filed(row: tuple[Any, ...]) -> Filed:
    """A row of `COLUMNS`."""
    (number, tenant, name, recipient, status, version, length, turns, lead, first, open_at, open_calls, labels) = row[
        :13
    ]
    created_at, updated_at, status_updated_at, origin_id, origin_position, lineage = row[13:]
    return Filed(
        number,
        Conversation(
            tenant,
            name,
            recipient,
            moment(created_at),
            moment(updated_at),
            moment(status_updated_at),
            ConversationStatus(status),
            version,
            length,
            turns,
            lead,
            first,
            tuple(json.loads(open_calls)) if open_calls else (),
            open_at,
            json.loads(labels) if labels else {},
            None if origin_id is None else Origin(origin_id, origin_position),
        ),
        tuple((source, stop) for source, stop in json.loads(lineage)) if lineage else (),
    )


def insert(
    db: apsw.Connection,
    conversation: Conversation,
    *,
    origin: int | None = None,
    lineage: tuple[tuple[int, int], ...] = (),
    documents: int = 0,
) -> Filed:
    """File a new conversation, which so many documents are put into at once."""
    one = conversation
    db.execute(
        _INSERT,
        (
            *(one.tenant, one.id, one.recipient, one.status.value, one.version, one.length, one.turns, one.lead),
            *(
                one.first,
                lineage[-1][1] if lineage else 0,
                one.open_at,
                _json(one.open_calls),
                _json(one.labels),
                microseconds(one.created_at),
            ),
            *(microseconds(one.updated_at), microseconds(one.status_updated_at), origin),
            *((one.origin.conversation, one.origin.position) if one.origin else (None, None)),
            _json(lineage),
            documents,
        ),
    )
    return Filed(db.last_insert_rowid(), one, lineage)


def growth(number: int, one: Conversation) -> tuple[Any, ...]:
    """What an append changes, for `GROW`; no index is touched."""
    counts = (one.version, one.length, one.turns, one.lead, one.open_at, _json(one.open_calls))
    return (*counts, microseconds(one.updated_at), number)


def set_status(db: apsw.Connection, number: int, one: Conversation) -> None:
    db.execute(
        "UPDATE conversation SET status = ?, status_updated_at = ? WHERE number = ?",
        (one.status.value, microseconds(one.status_updated_at), number),
    )


def set_labels(db: apsw.Connection, number: int, one: Conversation) -> None:
    db.execute("UPDATE conversation SET labels = ? WHERE number = ?", (_json(one.labels), number))


def _json(value: Any) -> str | None:
    return json.dumps(value) if value else None
