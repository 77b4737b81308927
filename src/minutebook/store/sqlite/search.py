"""The search index of a SQLite database: a table of FTS5 with the tokens of each entry and fold, without their texts.

FTS5 splits a row at spaces. Tokens are letters and digits or other characters than ASCII, so none of them is split.
"""

from collections.abc import Sequence
from typing import Final

import apsw

from minutebook.store.search import IndexQuery, IndexTerm

INSERT: Final = "INSERT INTO word (rowid, words) VALUES (?, ?)"
_FIND: Final = "SELECT rowid FROM word WHERE word MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"


def index_row(key: int, tokens: Sequence[str]) -> tuple[int, str]:
    """The values of `INSERT`."""
    return key, " ".join(tokens)


def delete_tokens(db: apsw.Connection, start: int, stop: int) -> None:
    """Delete the tokens of a range of keys."""
    keys = db.execute("SELECT id FROM word_docsize WHERE id >= ? AND id < ?", (start, stop)).fetchall()
    db.executemany("DELETE FROM word WHERE rowid = ?", keys)


def find_keys(db: apsw.Connection, query: IndexQuery, start: int, stop: int, limit: int) -> list[int]:
    """The keys in a range whose tokens match, from last to first."""
    return [key for (key,) in db.execute(_FIND, (_match_expression(query), start, stop, limit))]


def _match_expression(query: IndexQuery) -> str:
    alternatives = []
    for required, excluded in query.alternatives:
        expression = " AND ".join(map(_phrase, required))
        if excluded:
            expression = f"({expression}) NOT ({' OR '.join(map(_phrase, excluded))})"
        alternatives.append(f"({expression})")
    filters = [" OR ".join(f'"{token}"' for token in tokens) for tokens in query.filters]
    return " AND ".join(f"({part})" for part in (" OR ".join(alternatives), *filters))


def _phrase(term: IndexTerm) -> str:
    return f'"{" ".join(term.tokens)}"{"*" if term.is_prefix else ""}'
