"""The search index of a SQLite database: a table of FTS5 with the tokens of each entry and fold, without their texts.

FTS5 writes several pages with every commit, so the tokens of a few entries wait in the table `pending_word`, in the same
transaction as the entries, until there are enough of them for one write. A search reads both.

FTS5 splits a row at each ASCII character that is not a letter or digit. Tokens have no such characters, so only the spaces
between them split a row.
"""

from collections.abc import Iterable
from typing import Final

import apsw

from minutebook.store.search import IndexQuery, IndexTerm, recipient_token, tenant_prefix
from minutebook.store.types import ConversationHeader

INSERT: Final = "INSERT INTO word (rowid, words) VALUES (?, ?)"
MAX_PENDING_CHARACTERS: Final = 32_768
"""Maximum size of all rows in `pending_word`."""
_INSERT_PENDING: Final = "INSERT INTO pending_word (key, words) VALUES (?, ?)"
_FIND: Final = "SELECT rowid FROM word WHERE word MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"
_FIND_PENDING: Final = "SELECT key, words FROM pending_word WHERE key >= ? AND key < ?"


def row_tokens(header: ConversationHeader, tokens: Iterable[str]) -> str:
    """The tokens of a row with that of the recipient at the end, all as the tenant's, with spaces between."""
    prefix = tenant_prefix(header.tenant)
    return prefix + f" {prefix}".join((*tokens, recipient_token(header.recipient)))


def count_pending_characters(db: apsw.Connection) -> int:
    count: int = db.execute("SELECT coalesce(sum(length(words)), 0) FROM pending_word").get
    return count


def write_rows(db: apsw.Connection, rows: Iterable[tuple[int, str]], pending_characters: int) -> int:
    """Add the keys and tokens of new entries to the index; return the new size of all pending rows."""
    rows = list(rows)
    pending_characters += sum(len(tokens) for _, tokens in rows)
    if pending_characters <= MAX_PENDING_CHARACTERS:
        db.executemany(_INSERT_PENDING, rows)
        return pending_characters
    rows += [(int(key), str(tokens)) for key, tokens in db.execute("SELECT key, words FROM pending_word")]
    db.execute("DELETE FROM pending_word")
    db.executemany(INSERT, sorted(rows))  # FTS5 writes all its pages again for a row that is not after the last one
    return 0


def delete_tokens(db: apsw.Connection, start: int, stop: int) -> None:
    """Delete the tokens of a range of keys."""
    db.execute("DELETE FROM pending_word WHERE key >= ? AND key < ?", (start, stop))
    keys = db.execute("SELECT id FROM word_docsize WHERE id >= ? AND id < ?", (start, stop)).fetchall()
    db.executemany("DELETE FROM word WHERE rowid = ?", keys)


def find_keys(db: apsw.Connection, query: IndexQuery, start: int, stop: int, limit: int) -> list[int]:
    """The keys in a range whose tokens match, from last to first, and pending keys that may match."""
    keys = [key for (key,) in db.execute(_FIND, (_match_expression(query), start, stop, limit))]
    pending = [key for key, tokens in db.execute(_FIND_PENDING, (start, stop)) if _may_match(query, f" {tokens} ")]
    return sorted((*keys, *pending), reverse=True)[:limit]


def _may_match(query: IndexQuery, tokens: str) -> bool:
    """Whether a row has the tokens that the query requires. `tokens` has a space before and after each token of the row."""

    def has(term: IndexTerm) -> bool:
        return f" {term.token}{'' if term.is_prefix else ' '}" in tokens

    return any(all(map(has, required)) for required, _ in query.alternatives) and all(
        any(f" {token} " in tokens for token in alternatives) for alternatives in query.filters
    )


def _match_expression(query: IndexQuery) -> str:
    alternatives = []
    for required, excluded in query.alternatives:
        expression = " AND ".join(map(_word, required))
        if excluded:
            expression = f"({expression}) NOT ({' OR '.join(map(_word, excluded))})"
        alternatives.append(f"({expression})")
    filters = [" OR ".join(f'"{token}"' for token in tokens) for tokens in query.filters]
    return " AND ".join(f"({part})" for part in (" OR ".join(alternatives), *filters))


def _word(term: IndexTerm) -> str:
    return f'"{term.token}"{"*" if term.is_prefix else ""}'
