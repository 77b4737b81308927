"""A session as an agent would have lived it: a view before every model call, and what became of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook import CacheLedger, CannotFit, Curated, Explanation, Message, Transcript, explain, is_valid
from minutebook.cli.cuts import Cut, cuts_of
from minutebook.history.draft import ContextualManager

DOLLARS_PER_MILLION: Final = 3.0
"""What a million plain input tokens cost. Cache reads are a tenth of it, cache writes one and a quarter."""


@dataclass
class Replayed:
    """What one manager made of a session."""

    name: str
    budget: int
    calls: int = 0
    peak: int = 0
    over: int = 0
    invalid: int = 0
    refused: int = 0
    first_kept: int = 0
    newest_kept: int = 0
    ledger: CacheLedger = field(default_factory=CacheLedger)
    transcript: Transcript = field(default_factory=Transcript)
    last: Curated | None = None
    explanation: Explanation = field(default_factory=lambda: Explanation(()))
    """What became of every message in the last view."""

    @property
    def dollars(self) -> float:
        return self.ledger.cost * DOLLARS_PER_MILLION / 1_000_000

    def cuts(self) -> list[Cut]:
        """What is not sent as it is, and why; the most saved first."""
        return cuts_of(self.explanation.lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "manager": self.name,
            "calls": self.calls,
            "peak_tokens": self.peak,
            "over_budget": self.over,
            "invalid": self.invalid,
            "refused": self.refused,
            "first_request_kept": self.first_kept,
            "newest_request_kept": self.newest_kept,
            "input_tokens": self.ledger.tokens,
            "cached_tokens": self.ledger.cached,
            "cache_busts": self.ledger.busts,
            "cost_in_plain_tokens": round(self.ledger.cost),
            "dollars": round(self.dollars, 4),
            "last_view": {
                "messages": len(self.last or ()),
                "tokens": self.explanation.view_tokens,
                "cuts": [
                    {"fate": fate.value, "reason": reason, "messages": count, "tokens": tokens}
                    for fate, reason, count, tokens in self.cuts()
                ],
            },
        }


def replayed(session: Sequence[Message], manager: ContextualManager, name: str, budget: int) -> Replayed:
    """Ask the manager for a view before each message of the assistant, as its transcript grows."""
    result = Replayed(name, budget)
    known: dict[int, tuple[Message, int]] = {}
    transcript, seen = result.transcript, 0
    for place, message in enumerate(session):
        if message["role"] != "assistant":
            continue
        transcript.extend(session[seen:place])
        seen = place
        _ask(result, manager, known)
    result.explanation = explain(transcript, result.last or ())
    # The last answer belongs to the record, and the last view was made before it.
    transcript.extend(session[seen:])
    return result


def _ask(result: Replayed, manager: ContextualManager, known: dict[int, tuple[Message, int]]) -> None:
    transcript = result.transcript
    result.calls += 1
    try:
        view = manager.curate(transcript)
    except CannotFit:
        result.refused += 1
        return
    counts = []
    for message in view:
        if id(message) not in known:
            known[id(message)] = message, transcript.counter.message(message)
        counts.append(known[id(message)][1])
    result.peak = max(result.peak, sum(counts))
    result.over += sum(counts) > result.budget
    result.invalid += not is_valid(view)
    kept = {origin for origin, message in zip(view.origins, view, strict=True) if _same(transcript, origin, message)}
    result.first_kept += transcript.first_request in kept
    result.newest_kept += transcript.newest_request in kept
    result.ledger.send(view, counts)
    result.last = view


def _same(transcript: Transcript, origin: int | None, message: Message) -> bool:
    return origin is not None and transcript[origin] is message
