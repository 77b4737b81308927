"""Summing up more than fits into one request, so that nothing goes unread.

The text is read from front to back in pieces. Each piece is summed up together with the summary of all before it, so
the last summary is of everything. The other way, to sum up each piece alone and join them, would grow with the text.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeAlias

from minutebook.compaction.summarizer import SummaryRequest, accepted
from minutebook.errors import InvalidSetting
from minutebook.tokens import TokenCounter

SummarizeText: TypeAlias = Callable[[str, str | None], Awaitable[str]]
"""Sums up a text, given the summary of what came before it."""

BETWEEN: Final = "\n\n"
_GUESS: Final = 4
"""Characters a token, to begin with."""


async def summarized(
    parts: Sequence[str], request: SummaryRequest, summarize: SummarizeText, *, max_piece_tokens: int
) -> str:
    """The summary of these paragraphs and of `request.previous`, made from all of them, piece by piece.

    Raises:
        SummaryRejected: a summary on the way there may not be used, so that the last one would lack something.
    """
    summary = request.previous
    for piece in pieces(parts, request.counter, max_piece_tokens):
        summary = accepted(await summarize(piece, summary), request)
    return summary or ""


def pieces(parts: Sequence[str], counter: TokenCounter, max_tokens: int) -> Iterator[str]:
    """The paragraphs in pieces of at most so many tokens; joined again, they are all of the text.

    Paragraphs stay whole where they fit.

    Raises:
        InvalidSetting: there is no room for anything.
    """
    if max_tokens < 1:
        raise InvalidSetting("max_piece_tokens", max_tokens, "1 or more")
    gap = counter.count(BETWEEN)
    held: list[str] = []
    size = 0
    for part in parts:
        tokens = counter.count(part) + gap
        if held and size + tokens > max_tokens:
            yield BETWEEN.join(held)
            held, size = [], 0
        *whole, last = [part] if tokens <= max_tokens else split(part, counter, max_tokens)
        yield from whole
        held.append(last)
        size += counter.count(last) + gap if whole else tokens
    if held:
        yield BETWEEN.join(held)


def split(text: str, counter: TokenCounter, max_tokens: int) -> list[str]:
    """A long text in pieces of at most so many tokens, cut at the end of a line or word where there is one."""
    found: list[str] = []
    while text:
        length = _longest(text, counter, max_tokens)
        if length < len(text):
            length = _good_end(text, length)
        found.append(text[:length])
        text = text[length:]
    return found


def head(text: str, counter: TokenCounter, max_tokens: int) -> str:
    """As much of the beginning of a text as fits."""
    if max_tokens < 1:
        return ""
    length = _longest(text, counter, max_tokens)
    if counter.count(text[:length]) > max_tokens:
        return ""
    return text[: length if length == len(text) else _good_end(text, length)].rstrip()


def _longest(text: str, counter: TokenCounter, max_tokens: int) -> int:
    """How many characters of the text's beginning are within the bound, found without counting all of it."""
    length = min(len(text), max_tokens * _GUESS)
    while length > 1 and (tokens := counter.count(text[:length])) > max_tokens:
        length = max(1, min(length - 1, int(length * max_tokens / tokens * 0.95)))
    return length


def _good_end(text: str, length: int) -> int:
    """A little earlier, after a line or a word, if that is not much earlier."""
    for mark in ("\n", " "):
        place = text.rfind(mark, length // 2, length)
        if place > 0:
            return place + 1
    return length
