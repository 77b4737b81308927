"""The fact that a request's history was pruned, or would have been: what logs, metrics and traces tell of it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPruned:
    """What became of a conversation's messages on their way to the model. Numbers and names only, no text."""

    conversation: str | None
    loaded: int
    """How many messages of the record there were to choose from."""
    preserved: int
    """How many of them are sent as they are."""
    pruned: int
    """How many of them are not sent, or not whole."""
    tokens_before: int
    tokens_after: int
    mode: Literal["off", "shadow", "on"]
    """Whether it was done, or only worked out."""
    policy: str
    stripped: int = 0
    """How many tool payloads are left out of messages that are sent."""
    budget: int | None = None
    """The most tokens that may be sent."""
    reconcile: str | None = None
    """How a resent history was understood: appended, forked, partial, auxiliary or bypassed."""
    prefix_stable: bool | None = None
    """Whether it begins with all of what the request before it was sent; None if that is not known."""
    tokens_source: Literal["provider", "tokenizer", "estimate"] = "tokenizer"

    @property
    def sent(self) -> int:
        """How many messages are sent, where it is done."""
        return self.loaded if self.mode != "on" else self.preserved + self.stripped

    @property
    def saved(self) -> int:
        """How many tokens fewer are sent; 0 where it is only worked out."""
        return max(0, self.tokens_before - self.tokens_after) if self.mode == "on" else 0
