from math import ceil, isfinite

from minutebook.errors import InvalidSetting
from minutebook.tokens.counter import MessageCounter, TokenCounter
from minutebook.tokens.media import OPENAI, MediaPrices


def rounded_up(tokens: float) -> int:
    """The next whole number; what a product of floats adds to a whole one does not count."""
    return ceil(tokens - 1e-9)


class ScaledCounter(MessageCounter):
    """Another counter's texts times a factor, rounded up.

    For models whose vocabulary is not public. Only text is scaled: the 4 of a message and the 8 of a call are
    delimiters whatever the vocabulary, and media has its own price list.
    """

    __slots__ = ("factor", "inner", "media")

    def __init__(self, inner: TokenCounter, factor: float, media: MediaPrices = OPENAI) -> None:
        if not (isfinite(factor) and factor > 0):
            raise InvalidSetting("factor", factor, "a positive number, such as 1.2")
        self.inner = inner
        self.factor = factor
        self.media = media

    @property
    def name(self) -> str:
        return f"{self.inner.name} x {self.factor:g}"

    def count(self, text: str) -> int:
        return rounded_up(self.inner.count(text) * self.factor)

    def _facts(self) -> tuple[TokenCounter, float, MediaPrices]:
        return self.inner, self.factor, self.media
