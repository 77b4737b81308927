"""Full-text search: the query language, the tokens that a database indexes, and the comparison of a text with a query.

The index finds candidates; `SearchTarget.hit` then compares the query with the text of each. So every store returns the
same hits, whatever its index can express.
"""

import re
from base64 import b32encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

from minutebook.errors import InvalidQuery, InvalidSetting, MissingSetting, require_type
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message, MessageRole, text_of
from minutebook.store.types import SearchHit, StoredFold
from minutebook.store.words import is_character_word, stemmer, word_spans, words
from minutebook.wire.chat import entry_to_provider_message, provider_message_to_entry

if TYPE_CHECKING:
    from minutebook.store.backend import SearchQuery

SYNTAX: Final = (
    'words that must all occur, "exact phrases", a prefix* of at least two letters, -word or -"phrase" to exclude, and OR'
    " between alternatives"
)
MAX_PHRASE_WORDS: Final = 64
MIN_PREFIX_LETTERS: Final = 2
_TERM: Final = re.compile(r'(-?)"([^"]*)"(\*?)|(\S+)')
_FIELD: Final = re.compile(r"[^\W\d]\w*:\S")


@dataclass(frozen=True, slots=True)
class Term:
    """Consecutive words. With `is_prefix`, the last one is the start of a word."""

    words: tuple[str, ...]
    is_prefix: bool = False
    is_quoted: bool = False

    @property
    def has_stem(self) -> bool:
        """Whether it also finds other words with the same stem, in a database with stems."""
        return len(self.words) == 1 and not self.is_prefix and not self.is_quoted


@dataclass(frozen=True, slots=True)
class Alternative:
    """The terms between two `OR`s."""

    required: tuple[Term, ...]
    excluded: tuple[Term, ...]


def parse_query(query: str) -> tuple[Alternative, ...]:
    """The alternatives of a query.

    Raises:
        InvalidQuery: it has no word, or a syntax that is not supported.
    """
    require_type("query", query, str, f"text: {SYNTAX}")
    alternatives: list[Alternative] = []
    required: list[Term] = []
    excluded: list[Term] = []

    def end_alternative() -> None:
        if not required:
            problem = "only excludes words" if excluded else "has no word"
            raise InvalidQuery(
                "query", query, SYNTAX, problem if not alternatives else "needs a word before and after OR"
            )
        alternatives.append(Alternative(tuple(required), tuple(excluded)))
        required.clear()
        excluded.clear()

    for match in _TERM.finditer(query):
        minus, phrase, star, word = match.groups()
        if word == "OR":
            end_alternative()
            continue
        if word is None:
            text, is_quoted = phrase, True
        else:
            minus, text = ("-", word[1:]) if word.startswith("-") else ("", word)
            _require_supported(query, text)
            text, star, is_quoted = text.removesuffix("*"), "*" if text.endswith("*") else "", False
        term_words = tuple(words(text))
        if len(term_words) > MAX_PHRASE_WORDS:
            raise InvalidQuery("query", query, SYNTAX, f"has a phrase of more than {MAX_PHRASE_WORDS} words")
        if star and len(term_words[-1] if term_words else "") < MIN_PREFIX_LETTERS and text.isascii():
            raise InvalidQuery("query", query, SYNTAX, "has a prefix that is too short")
        if term_words:
            (excluded if minus else required).append(Term(term_words, bool(star), is_quoted))
    end_alternative()
    return tuple(alternatives)


def _require_supported(query: str, text: str) -> None:
    """Raise for the operators of other search engines, so that they are not taken for words."""
    problem = ""
    if '"' in text:
        problem = "has a quotation mark without its pair"
    elif text in {"AND", "NOT", "NEAR"}:
        problem = f"has the operator {text}"
    elif "*" in text[:-1]:
        problem = "has * within a word"
    elif text.startswith(("+", "-", "~", "^", "|", "&")):
        problem = f"has the operator {text[0]}"
    elif set(text) & set("()[]{}"):
        problem = "has brackets"
    elif _FIELD.match(text):
        problem = f"has the field {text.partition(':')[0]}:"
    if problem:
        raise InvalidQuery("query", query, SYNTAX, problem)


def require_roles(roles: Iterable[str]) -> frozenset[MessageRole]:
    """The roles with these names.

    Raises:
        InvalidSetting: there is no such role.
    """
    try:
        return frozenset(map(MessageRole, roles))
    except ValueError:
        expected = f"roles from {', '.join(role.value for role in MessageRole)}"
        raise InvalidSetting("roles", roles, expected) from None


OFF: Final = "off"
WORDS: Final = "words"
"""The values of the database's setting `search`: no index, an index of words, or the language of its stems."""
_STEM: Final = "\ue000"
ROLE: Final = "\ue001"
_RECIPIENT: Final = "\ue002"
PARTIAL: Final = "\ue003"
"""First characters of tokens that are no words, from the private use area. `PARTIAL` is a token of an entry whose tokens
did not fit into one row."""
TENANT_PREFIX_CHARACTERS: Final = 4
RECIPIENT_CHARACTERS: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_FOLD_POSITION: Final = 1 << 31
"""In the index, fold number n of a conversation has this position plus n."""


def search_mode(setting: bool | str | None) -> str | None:
    """The value of the database's setting for the argument `search` of `open_store`; None if it was not given.

    Raises:
        InvalidSetting: it is not a language of the stemmer.
    """
    if setting is None or isinstance(setting, bool):
        return None if setting is None else (WORDS if setting else OFF)
    if setting not in {OFF, WORDS}:
        stemmer(setting)
    return setting


def require_mode(mode: str, stored_mode: str) -> None:
    """Raise `InvalidSetting` if a database was created with another setting `search`."""
    if mode != stored_mode:
        expected = f"{stored_mode!r}, with which the database was created; for another, import it into a new database"
        raise InvalidSetting("search", mode, expected)


def searchable_text(message: Message) -> str:
    """The text of a message, and the names and arguments of its tool calls."""
    texts = [text_of(message)]
    calls = message.get("tool_calls")
    legacy_call = message.get("function_call")
    for call in (*(calls if isinstance(calls, (list, tuple)) else ()), {"function": legacy_call}):
        function = (call.get("function") or call.get("custom")) if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            texts += [part for name in ("name", "arguments", "input") if isinstance(part := function.get(name), str)]
    return "\n".join(text for text in texts if text)


@lru_cache
def tenant_prefix(tenant: str) -> str:
    """The start of all tokens of a tenant, so that a search reads no tokens of others.

    It is short, because it is stored with every token. The few tenants with the same one only read each other's keys:
    the conversation of a hit is compared with the tenant.
    """
    return _hash(tenant)[:TENANT_PREFIX_CHARACTERS]


@lru_cache(maxsize=10_000)
def recipient_token(recipient: str) -> str:
    return _RECIPIENT + _hash(recipient)[:RECIPIENT_CHARACTERS]


def _hash(name: str) -> str:
    return b32encode(sha256(name.encode()).digest()).decode().lower()


def message_tokens(message: Message, role: MessageRole, mode: str) -> list[str]:
    """The different tokens of a message without those of its conversation, the role last; empty if it is not indexed.

    A word is a token, but a character that is followed by another (in Chinese, Thai, …) is a token together with that: a
    single character is in too many texts to find a phrase by.
    """
    text = searchable_text(message) if mode != OFF else ""
    text_words = words(text)
    if not text_words:
        return []
    tokens = set(text_words) if text.isascii() else set(map(_token, text_words, [*text_words[1:], ""]))
    if mode != WORDS:
        tokens.update([_STEM + stemmer(mode)(word) for word in set(text_words)])
    return [*tokens, ROLE + role.value]


def _token(word: str, next_word: str) -> str:
    return word + next_word if is_character_word(word) and is_character_word(next_word) else word


def fold_tokens(fold: Fold, mode: str) -> list[str]:
    """The tokens of a fold's summary."""
    entry = summary_entry(fold)
    return message_tokens(entry_to_provider_message(entry), entry.role, mode)


def summary_entry(fold: Fold, stored: StoredFold | None = None) -> ConversationEntry:
    """The messages that a fold shows, as one entry."""
    text = "\n".join(filter(None, map(searchable_text, fold.shown)))
    role = str(fold.shown[0].get("role", "system")) if fold.shown else "system"
    message: Message = {"role": role if role in {"user", "assistant"} else "system", "content": text}
    return provider_message_to_entry(
        message,
        evaluation_id=UUID(int=0),
        sequence=fold.start,
        created_at=_EPOCH if stored is None else stored.created_at,
    )


@dataclass(frozen=True, slots=True)
class IndexTerm:
    """A token to find in an index, or with `is_prefix` the start of one."""

    token: str
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """What an index must find: one of the alternatives, and a token of each filter.

    The index has no positions, so a phrase is found by its tokens, and is not among the excluded ones.
    """

    alternatives: tuple[tuple[tuple[IndexTerm, ...], tuple[IndexTerm, ...]], ...]
    """The required and the excluded tokens of each."""
    filters: tuple[tuple[str, ...], ...]


def index_query(query: "SearchQuery", tenant: str, mode: str) -> IndexQuery:
    """The tokens that a query finds in a database's index.

    Raises:
        MissingSetting: the database has no index.
    """
    prefix = tenant_prefix(tenant)

    def terms_of(term: Term) -> list[IndexTerm]:
        if mode != WORDS and term.has_stem:
            return [IndexTerm(prefix + _STEM + stemmer(mode)(term.words[0]))]
        return [IndexTerm(prefix + token, is_prefix) for token, is_prefix in _phrase_tokens(term)]

    def required_terms(alternative: Alternative) -> tuple[IndexTerm, ...]:
        return tuple(dict.fromkeys(token for term in alternative.required for token in terms_of(term)))

    def excluded_terms(alternative: Alternative) -> tuple[IndexTerm, ...]:
        return tuple(tokens[0] for term in alternative.excluded if len(tokens := terms_of(term)) == 1)

    require_search(mode)
    filters = []
    if query.roles:
        filters.append(tuple(sorted(prefix + ROLE + role.value for role in query.roles)))
    if query.recipient is not None:
        filters.append((prefix + recipient_token(query.recipient),))
    return IndexQuery(
        tuple((required_terms(alternative), excluded_terms(alternative)) for alternative in query.alternatives),
        tuple(filters),
    )


def _phrase_tokens(term: Term) -> Iterator[tuple[str, bool]]:
    """The tokens of every text that has the term, each with whether it is the start of one."""
    last = len(term.words) - 1
    for index, word in enumerate(term.words):
        if index < last:
            yield _token(word, term.words[index + 1]), False
        elif not is_character_word(word):
            yield word, term.is_prefix
        elif not index or not is_character_word(term.words[index - 1]):
            yield word, True  # alone, or with the character that follows it


def require_search(mode: str) -> None:
    if mode == OFF:
        how_to_set = (
            "this database was created with search=False; import its conversations into a database with search=True"
        )
        raise MissingSetting("the search index", how_to_set)


CONTEXT_CHARACTERS: Final = 60
"""Characters of a snippet before the first match. Three times as many are shown from the match on."""
MAX_HIGHLIGHTS: Final = 20


@dataclass(frozen=True, slots=True)
class _Text:
    """The words of a text, to compare with terms."""

    words: list[str]
    positions: dict[str, list[int]] = field(default_factory=dict)
    stems: list[str] | None = None

    @classmethod
    def of(cls, text: str, mode: str) -> "_Text":
        instance = cls(words(text), stems=None)
        for index, word in enumerate(instance.words):
            instance.positions.setdefault(word, []).append(index)
        if mode == WORDS:
            return instance
        return replace(instance, stems=[stemmer(mode)(word) for word in instance.words])

    def occurrences(self, term: Term, mode: str) -> Iterator[int]:
        """The numbers of the words where a term begins."""
        if self.stems is not None and term.has_stem:
            stem = stemmer(mode)(term.words[0])
            yield from (index for index, word in enumerate(self.stems) if word == stem)
            return
        *complete, last = term.words
        starts = range(len(self.words)) if term.is_prefix and not complete else self.positions.get(term.words[0], ())
        for start in starts:
            stop = start + len(complete)
            if stop < len(self.words) and self.words[start:stop] == complete:
                word = self.words[stop]
                if word == last or (term.is_prefix and word.startswith(last)):
                    yield start


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """Compares a query with the texts of a database. `mode` is the database's setting `search`."""

    query: "SearchQuery"
    mode: str

    def hit(
        self, conversation: str, position: int, entry: ConversationEntry, fold: Fold | None = None
    ) -> SearchHit | None:
        """The hit for an entry, or for a fold with its `summary_entry`; None if it does not match the query."""
        query = self.query
        if (
            (query.roles and entry.role not in query.roles)
            or (query.since is not None and entry.created_at < query.since)
            or (query.until is not None and entry.created_at >= query.until)
        ):
            return None
        text = searchable_text(entry_to_provider_message(entry))
        text_words = _Text.of(text, self.mode)
        ranges = self._matches(text_words)
        if ranges is None:
            return None
        snippet, highlights = _snippet(text, ranges)
        return SearchHit(conversation, position, entry, snippet, highlights, fold)

    def _matches(self, text: _Text) -> list[range] | None:
        """The words that match the first alternative that the text fulfils, in order; None if it fulfils none."""

        def occurs(term: Term) -> bool:
            return next(text.occurrences(term, self.mode), None) is not None

        for alternative in self.query.alternatives:
            if all(map(occurs, alternative.required)) and not any(map(occurs, alternative.excluded)):
                matches = (
                    range(start, start + len(term.words))
                    for term in alternative.required
                    for start in islice(text.occurrences(term, self.mode), MAX_HIGHLIGHTS)
                )
                return sorted(matches, key=lambda match: (match.start, match.stop))
        return None


def _snippet(text: str, matches: Sequence[range]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """An excerpt on one line around the first match, and where in it the matches are."""
    last_word = max(match.stop for match in matches)
    spans = list(islice(word_spans(text), last_word))
    match_spans = [(spans[match.start][0], spans[match.stop - 1][1]) for match in matches if match.stop <= len(spans)]
    first_match = match_spans[0][0] if match_spans else 0
    start = max(0, first_match - CONTEXT_CHARACTERS)
    if start:  # start at a word boundary if one is near
        start = text.find(" ", start, first_match) + 1 or start
    stop = start + 4 * CONTEXT_CHARACTERS
    ellipsis = "…" if start else ""
    excerpt = ellipsis + re.sub(r"\s", " ", text[start:stop]) + ("…" if stop < len(text) else "")
    shift = len(ellipsis) - start
    return excerpt, tuple((begin + shift, end + shift) for begin, end in match_spans if start <= begin and end <= stop)
