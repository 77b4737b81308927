"""Vocabularies, which are loaded when the first text is counted and shared by all counters."""

import re
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from minutebook.errors import MissingExtra, UnknownName

VOCABULARIES = (
    "o200k_base",
    "cl100k_base",
    "gpt-oss",
    "llama2",
    "llama3",
    "codellama",
    "mistral_v1",
    "mistral_v2",
    "mistral_v3",
    "qwen2",
    "qwen3",
    "deepseek_v3",
    "gemma2",
    "gemma3",
    "gemma4",
    "glm4",
    "kimi_k2",
    "kimi_k3",
    "phi4",
    "olmo2",
)
"""All are included in splintr, so nothing is downloaded."""

TIKTOKEN_VOCABULARIES = frozenset({"o200k_base", "cl100k_base"})
"""The vocabularies that tiktoken has too. tiktoken is used if splintr is not installed."""

MIN_CACHED_CHARACTERS = 64
"""Shorter texts are not cached: encoding them takes no longer than a look-up in the cache."""
MAX_CACHED_CHARACTERS = 8_000_000
"""The cache is cleared when its texts have this number of characters, so that its memory is bounded."""
SLICE_CHARACTERS = 200_000
"""Longer texts are encoded in slices. The encoder holds the GIL, and takes 30 ms for this many letters."""
_WORD_END = re.compile(r"(?<=[A-Za-z]) (?=[A-Za-z])")

Encode = Callable[[str], Sequence[int]]


class LoadedVocabulary:
    """A loaded vocabulary with a cache of recent counts.

    A conversation is counted again at every model call, so the same strings are counted repeatedly. Python caches the hash
    of a string, so the second count is one look-up. `clear_tokenizer_cache` empties the cache inside splintr. That one is
    limited by the number of entries (131,072), not by size, so with long texts it would grow to gigabytes.
    """

    __slots__ = ("_cache", "_characters_left", "_clear_tokenizer_cache", "_encode", "_lock")

    def __init__(self, encode: Encode, clear_tokenizer_cache: Callable[[], object] = lambda: None) -> None:
        self._encode = encode
        self._clear_tokenizer_cache = clear_tokenizer_cache
        self._lock = Lock()
        self._cache: dict[str, int] = {}
        self._characters_left = MAX_CACHED_CHARACTERS

    def count(self, text: str) -> int:
        if len(text) < MIN_CACHED_CHARACTERS:
            return self._count_tokens(text)
        tokens = self._cache.get(text)
        if tokens is None:
            tokens = self._count_tokens(text)
            self._store(text, tokens)
        return tokens

    def _count_tokens(self, text: str) -> int:
        if len(text) > SLICE_CHARACTERS:
            return sum(map(self._count_tokens, _slices(text)))
        try:
            return len(self._encode(text))
        except UnicodeEncodeError:  # half of a surrogate pair, as in truncated JSON escapes
            return len(self._encode(text.encode("utf-8", "replace").decode()))

    def _store(self, text: str, tokens: int) -> None:
        with self._lock:
            self._characters_left -= len(text)
            if self._characters_left < 0:
                self._cache.clear()
                self._clear_tokenizer_cache()
                self._characters_left = MAX_CACHED_CHARACTERS - len(text)
            if self._characters_left >= 0:  # else the text alone exceeds the limit
                self._cache[text] = tokens


def _slices(text: str) -> Iterator[str]:
    """The text in slices. A slice ends before a space between two words if possible, because no token spans that boundary."""
    start = 0
    while len(text) - start > SLICE_CHARACTERS:
        stop = start + SLICE_CHARACTERS
        word_ends = [match.start() for match in _WORD_END.finditer(text, stop - 1_000, stop)]
        stop = word_ends[-1] if word_ends else stop
        yield text[start:stop]
        start = stop
    yield text[start:]


_loaded: dict[str, LoadedVocabulary] = {}
_load_lock = Lock()


def cached_vocabulary(vocabulary: str) -> LoadedVocabulary:
    """The vocabulary with this name, loaded once per process.

    Raises:
        UnknownName: there is no such vocabulary.
        MissingExtra: splintr is not installed, and tiktoken is not available or lacks the vocabulary.
    """
    if (cached := _loaded.get(vocabulary)) is not None:
        return cached
    with _load_lock:
        if vocabulary not in _loaded:
            _loaded[vocabulary] = load_vocabulary(vocabulary)
        return _loaded[vocabulary]


def load_vocabulary(vocabulary: str) -> LoadedVocabulary:
    """Load a vocabulary from splintr, or from tiktoken if splintr is not installed."""
    if vocabulary not in VOCABULARIES:
        raise UnknownName("vocabulary", vocabulary, VOCABULARIES)
    try:
        from splintr import Tokenizer
    except ImportError as error:
        return _load_tiktoken(vocabulary, error)
    tokenizer = Tokenizer.from_pretrained(vocabulary)
    # `encode` would turn text such as <|endoftext|> into special tokens; `encode_ordinary` reads it as text. Gemma 2
    # and 3 have HTML tags among their ordinary tokens, which only `encode_raw` finds (the ids then equal those of llama.cpp).
    encode = tokenizer.encode_raw if vocabulary in {"gemma2", "gemma3"} else tokenizer.encode_ordinary
    # `clear_cache` does nothing for SentencePiece vocabularies, for which splintr has no cache.
    return LoadedVocabulary(encode, tokenizer.clear_cache)


def _load_tiktoken(vocabulary: str, splintr_error: ImportError) -> LoadedVocabulary:
    if vocabulary not in TIKTOKEN_VOCABULARIES:
        raise MissingExtra("splintr", "tokens") from splintr_error
    try:
        import tiktoken
    except ImportError as error:
        raise MissingExtra("tiktoken", "tiktoken") from error
    try:
        encoding = tiktoken.get_encoding(vocabulary)
    except (OSError, ImportError) as error:  # tiktoken downloads its vocabularies, and there may be no network
        raise MissingExtra("splintr", "tokens") from error
    return LoadedVocabulary(encoding.encode_ordinary)
