"""The search index of a PostgreSQL database: the tokens of each entry and fold as a `tsvector`, in a GIN index.

A `tsvector` has positions up to 16,383, at most 255 of each token, and 1 MB. The tokens of an entry that exceeds this are
divided into several rows without positions. Such rows are found by any word of the query; the text decides.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from minutebook.store.search import PARTIAL, TENANT_PREFIX_CHARACTERS, IndexQuery, IndexTerm

FIND: Final = "SELECT minutebook.search(?, ?, ?, ?)"
INSERT: Final = "INSERT INTO word (key, part, words) VALUES (?, ?, ?::tsvector)"
DELETE: Final = "DELETE FROM word WHERE tenant = ? AND key >= ? AND key < ?"
READ_INDEX_IN_ORDER: Final = (
    "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)
"""Without table statistics, the planner would sort all conversations of a tenant instead of reading an index in order."""
MAX_POSITIONS: Final = 16_000
MAX_OCCURRENCES: Final = 255
MAX_PART_BYTES: Final = 500_000


def vectors(tokens: Sequence[str]) -> list[str]:
    """The texts of the tsvectors for the tokens of an entry. The last two tokens are those of role and recipient."""
    positions: dict[str, list[int]] = {}
    for position, token in enumerate(tokens, 1):
        positions.setdefault(token, []).append(position)
    size = sum(len(token.encode()) for token in positions)
    if len(tokens) <= MAX_POSITIONS and size <= MAX_PART_BYTES and max(map(len, positions.values())) <= MAX_OCCURRENCES:
        return [" ".join(f"{token}:{','.join(map(str, numbers))}" for token, numbers in positions.items())]
    common_tokens = [*tokens[-2:], tokens[-1][:TENANT_PREFIX_CHARACTERS] + PARTIAL]
    return [" ".join([*part, *common_tokens]) for part in _parts(positions)]


def _parts(tokens: Iterable[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    size = 0
    for token in tokens:
        size += len(token.encode())
        if size > MAX_PART_BYTES:
            parts.append([])
            size = len(token.encode())
        parts[-1].append(token)
    return parts


def tsquery(query: IndexQuery) -> str:
    """The text of the tsquery that finds the rows."""
    alternatives = []
    for required, excluded in query.alternatives:
        terms = [*map(_phrase, required), *(f"!({_phrase(term)})" for term in excluded)]
        alternatives.append(" & ".join(terms))
    terms_to_find = [term for required, _ in query.alternatives for term in required]
    words = {_word(term.tokens[0], is_prefix=term.is_prefix and len(term.tokens) == 1) for term in terms_to_find}
    prefix = terms_to_find[0].tokens[0][:TENANT_PREFIX_CHARACTERS]
    alternatives.append(f"'{prefix}{PARTIAL}' & ({' | '.join(sorted(words))})")
    filters = [" | ".join(_word(token) for token in tokens) for tokens in query.filters]
    expression = " | ".join(f"({alternative})" for alternative in alternatives)
    return " & ".join(f"({part})" for part in (expression, *filters))


def _phrase(term: IndexTerm) -> str:
    *tokens, last = term.tokens
    return f"({' <-> '.join([*map(_word, tokens), _word(last, is_prefix=term.is_prefix)])})"


def _word(token: str, *, is_prefix: bool = False) -> str:
    return f"'{token}'{':*' if is_prefix else ''}"
