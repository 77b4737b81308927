"""Reads entries, and finds where turns and exchanges of a stored conversation begin and end."""

from collections.abc import Iterable
from typing import Any, Final

from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole
from minutebook.store.sql.transaction import ConversationRow, EntrySpan, SqlTransaction

ROLES: Final = (MessageRole.SYSTEM, MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL)
ROLE_NUMBERS: Final = {role: number for number, role in enumerate(ROLES)}
"""Role → its number in the column `role`."""
_TOOL: Final = ROLE_NUMBERS[MessageRole.TOOL]
_SYSTEM: Final = ROLE_NUMBERS[MessageRole.SYSTEM]
_POSITION_MASK: Final = (1 << 32) - 1


async def read(tx: SqlTransaction, spans: Iterable[EntrySpan]) -> tuple[list[int], list[ConversationEntry]]:
    """The positions and entries of some spans."""
    return await tx.unpack(await tx.query(*map(tx.entry_query, spans)))


async def find_start_of_last_turns(tx: SqlTransaction, row: ConversationRow, count: int) -> int:
    """The position where the last `count` turns begin. Reads backwards, and no more rows than the turns have."""
    for span in reversed(row.spans(row.conversation.first, row.conversation.length)):
        positions = await _find_last_positions(tx, span, f"AND role = {ROLE_NUMBERS[MessageRole.USER]}", count)
        count -= len(positions)
        if count == 0:
            return positions[-1]
    return row.conversation.first


async def find_exchange_start(tx: SqlTransaction, row: ConversationRow, position: int) -> int:
    """The position where the exchange of an entry begins: the last entry up to it that is not a tool result."""
    for span in reversed(row.spans(row.conversation.first, position + 1)):
        positions = await _find_last_positions(tx, span, f"AND role <> {_TOOL}", 1)
        if positions:
            return positions[0]
    return row.conversation.first


async def find_exchange_stop(tx: SqlTransaction, row: ConversationRow, position: int) -> int:
    """The position after the exchange of an entry."""
    stop = position + 1
    while await splits_exchange(tx, row, stop):
        stop += 1
    return stop


async def splits_exchange(tx: SqlTransaction, row: ConversationRow, position: int) -> bool:
    """Whether the entry at a position is a tool result, so that a cut before it would split an exchange."""
    if not row.conversation.first < position < row.conversation.length:
        return False
    return bool(await _read_value(tx, row, position, "role") == _TOOL)


async def find_end_of_system_messages(tx: SqlTransaction, row: ConversationRow, position: int) -> int:
    """The position of the first entry from a position on that is no system message, or the end."""
    for span in row.spans(position, row.conversation.length):
        where, values = tx.entry_condition(span)
        key = tx.ENTRY_KEY
        query = f"SELECT {key} FROM entry WHERE {where} AND role <> {_SYSTEM} ORDER BY {key} LIMIT 1"  # noqa: S608 - constants of ours
        for (value,) in await tx.rows(query, *values):
            return int(value & _POSITION_MASK)
    return row.conversation.length


async def count_turns_before(tx: SqlTransaction, row: ConversationRow, position: int) -> int:
    """The number of user messages before a position."""
    if position > row.conversation.first:
        return int(await _read_value(tx, row, position - 1, "turn"))
    if position == 0:
        return 0
    is_user = bool(await _read_value(tx, row, position, "role") == ROLE_NUMBERS[MessageRole.USER])
    return int(await _read_value(tx, row, position, "turn")) - is_user


async def read_turns(tx: SqlTransaction, row: ConversationRow, positions: Iterable[int]) -> list[int]:
    """The number of user messages up to and including each position."""
    conditions = [tx.entry_condition(row.span(position)) for position in positions]
    results = await tx.query(*((f"SELECT turn FROM entry WHERE {where}", values) for where, values in conditions))  # noqa: S608 - constants of ours
    return [int(turn) for ((turn,),) in results]


async def _read_value(tx: SqlTransaction, row: ConversationRow, position: int, column: str) -> Any:
    where, values = tx.entry_condition(row.span(position))
    ((value,),) = await tx.rows(f"SELECT {column} FROM entry WHERE {where}", *values)  # noqa: S608 - a column of ours
    return value


async def _find_last_positions(tx: SqlTransaction, span: EntrySpan, condition: str, count: int) -> list[int]:
    """The positions of the last `count` entries of a span that satisfy a condition, from last to first."""
    where, values = tx.entry_condition(span)
    key = tx.ENTRY_KEY
    query = f"SELECT {key} FROM entry WHERE {where} {condition} ORDER BY {key} DESC LIMIT ?"  # noqa: S608 - constants of ours
    return [value & _POSITION_MASK for (value,) in await tx.rows(query, *values, count)]
