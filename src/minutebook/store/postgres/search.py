"""The search index of a PostgreSQL database: the tokens of each entry and fold as a `tsvector`, in a GIN index.

The vectors have no positions: these would double their size. A `tsvector` has at most 1 MB, so the tokens of a very large
entry are divided into several rows. Such rows are found by any word of the query; the text decides.
"""

from typing import Final

from minutebook.store.search import PARTIAL, TENANT_PREFIX_CHARACTERS, IndexQuery, IndexTerm

FIND: Final = "SELECT minutebook.search(?, ?, ?, ?)"
INSERT: Final = "INSERT INTO word (key, part, words) VALUES (?, ?, array_to_tsvector(string_to_array(?, ' ')))"
DELETE: Final = "DELETE FROM word WHERE tenant = ? AND key >= ? AND key < ?"
READ_INDEX_IN_ORDER: Final = (
    "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)
"""Without table statistics, the planner would sort all conversations of a tenant instead of reading an index in order."""
MAX_PART_CHARACTERS: Final = 125_000
"""A character has up to 4 bytes."""


def parts(tokens: str) -> list[str]:
    """The tokens of an entry, divided into parts that fit into a row. The last two are those of role and recipient."""
    if len(tokens) <= MAX_PART_CHARACTERS:
        return [tokens] if tokens else []
    *own, role, recipient = tokens.split(" ")
    common = f" {role} {recipient} {recipient[:TENANT_PREFIX_CHARACTERS]}{PARTIAL}"
    count = -(-len(tokens) // MAX_PART_CHARACTERS)
    return [" ".join(own[part::count]) + common for part in range(count)]


def tsquery(query: IndexQuery) -> str:
    """The text of the tsquery that finds the rows."""
    alternatives = []
    for required, excluded in query.alternatives:
        terms = [*map(_word_of, required), *(f"!{_word_of(term)}" for term in excluded)]
        alternatives.append(" & ".join(terms))
    terms_to_find = [term for required, _ in query.alternatives for term in required]
    words = set(map(_word_of, terms_to_find))
    prefix = terms_to_find[0].token[:TENANT_PREFIX_CHARACTERS]
    alternatives.append(f"'{prefix}{PARTIAL}' & ({' | '.join(sorted(words))})")
    filters = [" | ".join(_word(token) for token in tokens) for tokens in query.filters]
    expression = " | ".join(f"({alternative})" for alternative in alternatives)
    return " & ".join(f"({part})" for part in (expression, *filters))


def _word_of(term: IndexTerm) -> str:
    return _word(term.token, is_prefix=term.is_prefix)


def _word(token: str, *, is_prefix: bool = False) -> str:
    return f"'{token}'{':*' if is_prefix else ''}"
