"""The search index of a PostgreSQL database: a `tsvector` of tokens in a GIN index.

A row has the tokens of up to `MAX_ROW_ENTRIES` entries that were appended together: each different token is stored once, so
an agent's turn takes a third of the space. The vectors have no positions, which would double their size. A `tsvector` has
at most 1 MB, so very many tokens are divided into several rows, which are found by any word of the query. In each case the
texts of the entries decide.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from minutebook.store.search import (
    PARTIAL,
    ROLE,
    TENANT_PREFIX_CHARACTERS,
    IndexQuery,
    IndexTerm,
    recipient_token,
    tenant_prefix,
)
from minutebook.store.types import ConversationHeader

FIND: Final = "SELECT lower(keys), upper(keys) FROM minutebook.search(?, ?, ?, ?) AS keys"
INSERT: Final = "INSERT INTO word (key, part, size, words) VALUES (?, ?, ?, array_to_tsvector(string_to_array(?, ' ')))"
MAX_ROW_ENTRIES: Final = 32
"""Also in the function `search` of the database."""
DELETE: Final = "DELETE FROM word WHERE tenant = ? AND key >= ? AND key < ?"
DELETE_OVERLAPPING: Final = (
    f"DELETE FROM word WHERE tenant = ? AND key > ?::bigint - {MAX_ROW_ENTRIES} AND key < ? AND key + size > ?"  # noqa: S608 - a constant
    " RETURNING key, key + size"
)
READ_INDEX_IN_ORDER: Final = (
    "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)
"""Without table statistics, the planner would sort all conversations of a tenant instead of reading an index in order."""
MAX_PART_CHARACTERS: Final = 125_000
"""A character has up to 4 bytes."""


def index_rows(
    header: ConversationHeader, key: int, tokens: Sequence[Sequence[str]]
) -> Iterator[tuple[int, int, int, str]]:
    """The columns key, part, size and words of the rows for consecutive entries; `key` is the key of the first."""
    prefix = tenant_prefix(header.tenant)
    for start in range(0, len(tokens), MAX_ROW_ENTRIES):
        batch = tokens[start : start + MAX_ROW_ENTRIES]
        different = dict.fromkeys(chain.from_iterable(batch))
        if different:
            words = [prefix + token for token in (*different, recipient_token(header.recipient))]
            for part, part_words in enumerate(_parts(prefix, words)):
                yield key + start, part, len(batch), part_words


def _parts(prefix: str, words: list[str]) -> list[str]:
    """The tokens, with spaces between, divided into parts that fit into a row. The last one is that of the recipient."""
    joined = " ".join(words)
    if len(joined) <= MAX_PART_CHARACTERS:
        return [joined]
    common = [prefix + PARTIAL, *(word for word in words if word.startswith(prefix + ROLE)), words[-1]]
    count = -(-len(joined) // MAX_PART_CHARACTERS)
    return [" ".join(dict.fromkeys([*words[part::count], *common])) for part in range(count)]


def tsquery(query: IndexQuery) -> str:
    """The text of the tsquery that finds the rows. Excluded words may be in another entry of the row."""
    alternatives = [" & ".join(map(_word_of, required)) for required, _ in query.alternatives]
    terms_to_find = [term for required, _ in query.alternatives for term in required]
    words = set(map(_word_of, terms_to_find))
    partial = _word(terms_to_find[0].token[:TENANT_PREFIX_CHARACTERS] + PARTIAL)
    alternatives.append(f"{partial} & ({' | '.join(sorted(words))})")
    filters = [" | ".join(_word(token) for token in tokens) for tokens in query.filters]
    expression = " | ".join(f"({alternative})" for alternative in alternatives)
    return " & ".join(f"({part})" for part in (expression, *filters))


def _word_of(term: IndexTerm) -> str:
    return _word(term.token, is_prefix=term.is_prefix)


def _word(token: str, *, is_prefix: bool = False) -> str:
    return f"'{token}'{':*' if is_prefix else ''}"
