"""The tokens of entries and folds in the search index of a database.

The key of an entry is its conversation's number * 2^32 + its position; that of a fold has the position
`FIRST_FOLD_POSITION` + its number.
"""

from collections.abc import Sequence
from typing import Final

from minutebook.record.fold import Fold
from minutebook.record.message import Message, MessageRole
from minutebook.store.search import (
    FIRST_FOLD_POSITION,
    WORDS,
    fold_tokens,
    message_tokens,
    recipient_token,
    tenant_prefix,
)
from minutebook.store.sql.transaction import ConversationRow, SqlTransaction
from minutebook.store.types import ConversationHeader

KEY_SHIFT: Final = 32
"""Number of bits of the position in a key."""
_SELECT_MODE: Final = "SELECT value FROM setting WHERE name = 'search'"


async def load_mode(tx: SqlTransaction) -> str:
    """The database's setting `search`."""
    rows = await tx.rows(_SELECT_MODE)
    return str(rows[0][0]) if rows else WORDS


def entry_tokens(row: ConversationRow, message: Message, role: MessageRole, mode: str) -> str:
    """The tokens of an entry, see `conversation_tokens`."""
    return conversation_tokens(row.conversation, message_tokens(message, role, mode))


async def index_fold(tx: SqlTransaction, row: ConversationRow, number: int, fold: Fold) -> None:
    """Add the summary of a fold to the index."""
    tokens = fold_tokens(fold, await load_mode(tx))
    if tokens:
        await tx.write_tokens(row.conversation, (row.number << KEY_SHIFT) + FIRST_FOLD_POSITION + number, tokens)


def conversation_tokens(header: ConversationHeader, tokens: Sequence[str]) -> str:
    """The tokens with that of the recipient at the end, all as the tenant's, with spaces between; empty if there are none."""
    if not tokens:
        return ""
    prefix = tenant_prefix(header.tenant)
    return prefix + f" {prefix}".join((*tokens, recipient_token(header.recipient)))
