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

LOAD_PARAMETERS: Final = (*["int4"] * 4, "bool")
"""The types of the values of `load_arguments`."""
_LOAD: Final = ServerFunction("load", "text", "text", "bytea", *LOAD_PARAMETERS)
_ERASED, _HEADER, _PIN, _FOLD = range(4)
"""The kinds of the rows that are not entries."""
_MAX_NUMBER: Final = 1 << 30
"""More than a conversation has messages. The server adds two of these numbers, and the sum must fit into 31 bits."""
_KIND_SHIFT, _ROLE_SHIFT, _ROLE_MASK, _POSITION_MASK = 40, 32, 0xFF, 0xFFFFFFFF


async def load_rows(db: AsyncConnection, tenant: str, query: LoadQuery) -> Sequence[Sequence[bytes]]:
    """The rows of a part of a conversation, read on a connection without a transaction."""
    name = query.conversation
    return result_rows(await _LOAD.call(db, tenant, name, id_hash(tenant, name), *load_arguments(query)))


def load_arguments(query: LoadQuery) -> tuple[int | None, ...]:
    """The arguments of `minutebook.load` that select the part of the conversation."""
    numbers = (query.last_turns, query.last_messages, query.since, query.limit)
    return *(number if number is None else min(number, _MAX_NUMBER) for number in numbers), query.folded


def loaded_conversation(rows: Sequence[Sequence[bytes]], query: LoadQuery) -> tuple[int, LoadedConversation]:
    """Decode the rows of `minutebook.load`: the row number of the conversation and the loaded part.

    Raises:
        ConversationNotFound: the conversation does not exist.
        ConversationErased: it was erased.
    """
    if not rows:
        raise ConversationNotFound(query.conversation)
    integer = int.from_bytes
    key, columns, start, stop = rows[0]
    if integer(key) >> _KIND_SHIFT == _ERASED:
        raise ConversationErased(query.conversation)
    pins: set[int] = set()
    folds: list[Fold] = []
    positions: list[int] = []
    entries: list[ConversationEntry] = []
    for key, first, second, third in rows[1:]:  # the kind of the row decides what the three values are
        number = integer(key)
        kind, position = number >> _KIND_SHIFT, number & _POSITION_MASK
        if kind == _PIN:
            pins.add(position)
        elif kind == _FOLD:
            if query.folded or position < integer(stop):
                folds.append(fold_from_bytes(first.decode(), position, integer(third), second))
        else:
            positions.append(position)
            entries.append(unpack_row(number >> _ROLE_SHIFT & _ROLE_MASK, first, second, third))
    row = row_of(json.loads(columns))
    parts = (integer(start), tuple(entries), tuple(positions), tuple(folds), frozenset(pins))
    return row.number, LoadedConversation(row.conversation, *parts)
