"""Loads a part of a conversation by one call of the server function `minutebook.load`."""

import json
from collections.abc import Sequence
from typing import Final

from psycopg import AsyncConnection

from minutebook.errors import ConversationErased, ConversationNotFound
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.store.backend import LoadQuery
from minutebook.store.codec import fold_from_bytes
from minutebook.store.postgres.entries import unpack_row
from minutebook.store.postgres.functions import ServerFunction, result_rows
from minutebook.store.rules import id_hash
from minutebook.store.sql.headers import row_of
from minutebook.store.types import LoadedConversation

_LOAD: Final = ServerFunction("load", "text", "text", "bytea", *["integer"] * 4, "boolean")
_ERASED, _HEADER, _PIN, _FOLD = range(4)
"""The kinds of the rows that are not entries."""
_KIND_SHIFT, _ROLE_SHIFT, _ROLE_MASK, _POSITION_MASK = 40, 32, 0xFF, 0xFFFFFFFF


async def load(db: AsyncConnection, tenant: str, query: LoadQuery) -> LoadedConversation:
    """Load a part of a conversation, on a connection without a transaction."""
    part = (query.last_turns, query.last_messages, query.since, query.limit)
    name = query.conversation
    rows = result_rows(await _LOAD.call(db, tenant, name, id_hash(tenant, name), *part, query.folded))
    if not rows:
        raise ConversationNotFound(name)
    return loaded_conversation(rows, query)


def loaded_conversation(rows: Sequence[Sequence[bytes]], query: LoadQuery) -> LoadedConversation:
    """The result of `minutebook.load`.

    Raises:
        ConversationErased: the conversation was erased.
    """
    integer = int.from_bytes
    key, columns, start, stop = rows[0]
    if integer(key) >> _KIND_SHIFT == _ERASED:
        raise ConversationErased(query.conversation)
    pins: set[int] = set()
    folds: list[Fold] = []
    positions: list[int] = []
    entries: list[ConversationEntry] = []
    for key, a, b, c in rows[1:]:
        number = integer(key)
        kind, position = number >> _KIND_SHIFT, number & _POSITION_MASK
        if kind == _PIN:
            pins.add(position)
        elif kind == _FOLD:
            if query.folded or position < integer(stop):
                folds.append(fold_from_bytes(a.decode(), position, integer(c), b))
        else:
            positions.append(position)
            entries.append(unpack_row(number >> _ROLE_SHIFT & _ROLE_MASK, a, b, c))
    header = row_of(json.loads(columns)).conversation
    return LoadedConversation(header, integer(start), tuple(entries), tuple(positions), tuple(folds), frozenset(pins))
