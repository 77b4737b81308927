"""Vocabularies, loaded when the first text is counted and shared by every counter that names them."""

from collections.abc import Callable, Sequence
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
"""Each of them loads from splintr, which carries its data: nothing is fetched."""

TIKTOKEN_HAS = frozenset({"o200k_base", "cl100k_base"})

REMEMBERED_FROM = 64
"""Shorter texts are counted again: remembering them costs as much."""
REMEMBERED_CHARACTERS = 8_000_000
"""After so many characters everything remembered is forgotten, so memory is bounded."""

Encode = Callable[[str], Sequence[int]]


class Encoder:
    """A loaded vocabulary and the counts it gave lately.

    A conversation is counted again at every model call, so the same strings come back; Python keeps a string's hash,
    which makes the second count one look-up. `clear` empties the library's own memory of pieces: splintr bounds that
    by number (131,072), not by size, so long pieces would otherwise grow it into gigabytes.
    """

    __slots__ = ("_clear", "_encode", "_lock", "_remembered", "_room")

    def __init__(self, encode: Encode, clear: Callable[[], object] = lambda: None) -> None:
        self._encode = encode
        self._clear = clear
        self._lock = Lock()
        self._remembered: dict[str, int] = {}
        self._room = REMEMBERED_CHARACTERS

    def count(self, text: str) -> int:
        if len(text) < REMEMBERED_FROM:
            return self._encoded(text)
        known = self._remembered.get(text)
        if known is None:
            known = self._encoded(text)
            self._remember(text, known)
        return known

    def _encoded(self, text: str) -> int:
        try:
            return len(self._encode(text))
        except UnicodeEncodeError:  # half of a surrogate pair, as truncated JSON escapes leave it
            return len(self._encode(text.encode("utf-8", "replace").decode()))

    def _remember(self, text: str, tokens: int) -> None:
        with self._lock:
            self._room -= len(text)
            if self._room < 0:
                self._remembered.clear()
                self._clear()
                self._room = REMEMBERED_CHARACTERS - len(text)
            if self._room >= 0:
                self._remembered[text] = tokens


_loaded: dict[str, Encoder] = {}
_loading = Lock()


def encoder(vocabulary: str) -> Encoder:
    """The one encoder of this vocabulary in the process.

    Raises:
        UnknownName: there is no such vocabulary.
        MissingExtra: neither splintr nor, for OpenAI's vocabularies, tiktoken with its data can be had.
    """
    if (known := _loaded.get(vocabulary)) is not None:
        return known
    with _loading:
        if vocabulary not in _loaded:
            _loaded[vocabulary] = load(vocabulary)
        return _loaded[vocabulary]


def load(vocabulary: str) -> Encoder:
    if vocabulary not in VOCABULARIES:
        raise UnknownName("vocabulary", vocabulary, VOCABULARIES)
    try:
        from splintr import Tokenizer
    except ImportError as error:
        return _load_tiktoken(vocabulary, error)
    tokenizer = Tokenizer.from_pretrained(vocabulary)
    # `encode` would turn text such as <|endoftext|> into special tokens; `encode_ordinary` reads it as text. Gemma 2
    # and 3 have HTML tags among their ordinary tokens, which only `encode_raw` finds (ids then equal llama.cpp's).
    encode = tokenizer.encode_raw if vocabulary in {"gemma2", "gemma3"} else tokenizer.encode_ordinary
    # The SentencePiece backends keep no memory of pieces and take this as a no-op.
    return Encoder(encode, tokenizer.clear_cache)


def _load_tiktoken(vocabulary: str, why: ImportError) -> Encoder:
    if vocabulary not in TIKTOKEN_HAS:
        raise MissingExtra("splintr", "tokens") from why
    try:
        import tiktoken
    except ImportError as error:
        raise MissingExtra("tiktoken", "tiktoken") from error
    try:
        encoding = tiktoken.get_encoding(vocabulary)
    except (OSError, ImportError) as error:  # tiktoken fetches its vocabularies, and there may be no network
        raise MissingExtra("splintr", "tokens") from error
    return Encoder(encoding.encode_ordinary)
