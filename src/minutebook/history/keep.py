"""What no manager may touch in one call: the caller's wishes, in terms of one transcript."""

from dataclasses import dataclass

from minutebook.history.context import NO_CONTEXT, CurationContext
from minutebook.record.message import is_system
from minutebook.record.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Keep:
    """The caller's wishes as places in a transcript. Equal wishes are equal, so a transcript can remember by them."""

    system: bool
    last: int
    pins: frozenset[int]

    @classmethod
    def asked(cls, context: CurationContext, source: Transcript) -> "Keep":
        """What the context and the transcript's own pins ask for."""
        pins = source.pins
        if context is NO_CONTEXT and not pins:
            return AS_USUAL
        if context.pins:
            pins |= frozenset(place for place in range(len(source)) if source.root_of(place) in context.pins)
        return cls(context.preserve_system, context.preserve_last_n or 0, pins)

    def lead(self, source: Transcript) -> int:
        """How many messages at the front always stay."""
        return source.lead if self.system else 0

    def pinned(self, source: Transcript) -> set[int]:
        """The pinned messages with the whole exchanges they belong to."""
        if not self.pins:
            return set()
        return {place for pin in self.pins for place in source.exchange_of(pin)}

    def tail(self, source: Transcript) -> int:
        """Where the messages begin that stay because they are the last; the end where none do."""
        end = len(source)
        if not self.last or not end:
            return end
        return source.exchange_of(max(0, end - self.last)).start


AS_USUAL = Keep(system=True, last=0, pins=frozenset())
"""What a caller with no wishes asks for: one object, so that asking for it again costs nothing."""


def last_exchange(source: Transcript, end: int | None = None) -> range:
    """The exchange the model is about to answer, with any system messages that follow it.

    `end` is where the transcript is taken to end. Empty if there are only system messages.
    """
    end = len(source) if end is None else end
    last = end - 1
    while last >= 0 and is_system(source[last]):
        last -= 1
    return range(source.exchange_of(last).start, end) if last >= 0 else range(end, end)
