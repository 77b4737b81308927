"""Where turns and exchanges of a conversation begin and end, as its stored entries say."""

from collections.abc import Iterable
from typing import Any, Final

from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole
from minutebook.store.sql.transaction import ConversationRow, Span, SqlTransaction

ROLES: Final = (MessageRole.SYSTEM, MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL)
NUMBER_OF: Final = {role: number for number, role in enumerate(ROLES)}
"""The number that stands for a role in a row."""
_TOOL: Final = NUMBER_OF[MessageRole.TOOL]
_POSITION: Final = (1 << 32) - 1


async def read(tx: SqlTransaction, spans: Iterable[Span]) -> tuple[list[int], list[ConversationEntry]]:
    """The positions and entries of some stretches."""
    return await tx.unpack(await tx.rows_of(*map(tx.entry_query, spans)))


async def turn_start(tx: SqlTransaction, row: ConversationRow, count: int) -> int:
    """The position where the last so many turns begin. It looks, from the end, at no more rows than will be read."""
    for span in reversed(row.spans(row.conversation.first, row.conversation.length)):
        found = await _last(tx, span, f"AND role = {NUMBER_OF[MessageRole.USER]}", count)
        count -= len(found)
        if count == 0:
            return found[-1]
    return row.conversation.first


async def exchange_start(tx: SqlTransaction, row: ConversationRow, position: int) -> int:
    """The position where the exchange of an entry begins: the nearest one up to it that is no result."""
    for span in reversed(row.spans(row.conversation.first, position + 1)):
        found = await _last(tx, span, f"AND role <> {_TOOL}", 1)
        if found:
            return found[0]
    return row.conversation.first


async def exchange_stop(tx: SqlTransaction, row: ConversationRow, position: int) -> int:
    """The position after the exchange of an entry."""
    stop = position + 1
    while await splits(tx, row, stop):
        stop += 1
    return stop


async def splits(tx: SqlTransaction, row: ConversationRow, position: int) -> bool:
    """Whether a cut before this entry would part it from its call."""
    if not row.conversation.first < position < row.conversation.length:
        return False
    return bool(await _value(tx, row, position, "role") == _TOOL)


async def turns_before(tx: SqlTransaction, row: ConversationRow, position: int) -> int:
    """How many user messages there are before a position."""
    if position > row.conversation.first:
        return int(await _value(tx, row, position - 1, "turn"))
    if position == 0:
        return 0
    is_user = bool(await _value(tx, row, position, "role") == NUMBER_OF[MessageRole.USER])
    return int(await _value(tx, row, position, "turn")) - is_user


async def _value(tx: SqlTransaction, row: ConversationRow, position: int, column: str) -> Any:
    where, values = tx.entry_range(row.span(position))
    ((value,),) = await tx.rows(f"SELECT {column} FROM entry WHERE {where}", *values)  # noqa: S608 - a column of ours
    return value


async def _last(tx: SqlTransaction, span: Span, condition: str, count: int) -> list[int]:
    """The positions of the last entries of a stretch that fulfil a condition, from the last to the first."""
    where, values = tx.entry_range(span)
    key = tx.ENTRY_KEY
    query = f"SELECT {key} FROM entry WHERE {where} {condition} ORDER BY {key} DESC LIMIT ?"  # noqa: S608 - constants of ours
    return [value & _POSITION for (value,) in await tx.rows(query, *values, count)]
