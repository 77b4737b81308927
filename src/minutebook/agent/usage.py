"""What a model call cost, as the provider reports it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or with `+` of several."""

    input_tokens: int = 0
    """All that was sent, cached or not."""
    output_tokens: int = 0
    """All that was answered, reasoning included."""
    cached_tokens: int = 0
    """How many of the input tokens the provider had in its cache."""
    cache_write_tokens: int = 0
    """How many of the input tokens it was paid to put there."""
    reasoning_tokens: int = 0
    """How many of the output tokens nobody sees."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )
