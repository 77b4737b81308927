"""Replays a recorded session under a history policy, without a model.

At each point where the model was called, the policy builds the view of the messages so far. The cost is computed with the
provider's prompt cache; recall is the share of what the recorded answer used that the view still contains.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from minutebook.errors import CannotFit
from minutebook.history.cache_cost import TYPICAL_PRICES, CacheLedger
from minutebook.history.compose import PassthroughManager
from minutebook.history.names import full_text
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import view_of
from minutebook.lab.sessions import RecordedCall, RecordedSession, Use
from minutebook.record.finding import errors
from minutebook.record.message import Message, is_user, leading_system_count
from minutebook.record.transcript import Transcript
from minutebook.record.validation import check
from minutebook.tokens.models import Prices

MakeManager: TypeAlias = Callable[[int], HistoryManager]
"""Returns the manager for a budget in tokens. It is called once per session, so a manager may keep state."""
FULL: Final = "full history"
_MAX_MISSES: Final = 20
"""Maximum number of missed lines that are kept per session, for the report."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A line that an answer used and the view did not contain."""

    call: int
    """The index of the answer."""
    source: int
    """The index of the newest message that has the line."""
    text: str


@dataclass(slots=True)
class SessionOutcome:
    """What one policy did with one session."""

    session: str
    messages: int
    views: int = 0
    refused: int = 0
    """Calls for which the essential messages exceed the budget. They count nowhere else, nor in `full_cost`."""
    invalid: int = 0
    over: int = 0
    cuts: int = 0
    """Views that are not the previous one with messages appended."""
    tokens: int = 0
    cached: int = 0
    cost: float = 0.0
    """In tokens of plain input."""
    full_cost: float = 0.0
    """The cost of sending the full history at the same calls."""
    reread_cost: float = 0.0
    """`cost`, and for every missed line the cost of reading its message again."""
    names: int = 0
    names_found: int = 0
    other_names: int = 0
    other_names_found: int = 0
    lines: int = 0
    lines_found: int = 0
    requests: int = 0
    requests_found: int = 0
    """User messages so far that are in the view unchanged, added up over all calls."""
    essentials_lost: int = 0
    """Views without the system message, the first or the newest request."""
    seconds: float = 0.0
    misses: list[Miss] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The cost relative to the full history."""
        return self.cost / self.full_cost if self.full_cost else 1.0

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "misses"}
        misses = [{"call": miss.call, "source": miss.source, "text": miss.text} for miss in self.misses]
        return {**values, "ratio": self.ratio, "misses": misses}


def replay_session(
    session: RecordedSession, make_manager: MakeManager | None, budget: int, *, prices: Prices = TYPICAL_PRICES
) -> SessionOutcome:
    """Build and measure the view at every call of a session. Without a manager, the full history is sent."""
    outcome = SessionOutcome(session.id, len(session.messages))
    record = Transcript(counter=session.counter, broken="mark")
    manager = PassthroughManager() if make_manager is None else make_manager(budget)
    ledger, full = CacheLedger(prices), CacheLedger(prices)
    measured = _Measured(session)
    for call in session.calls:
        record.extend(session.messages[len(record) : call.index])
        started = time.perf_counter()
        try:
            view = view_of(record, manager)
        except CannotFit:
            outcome.refused += 1
            continue
        finally:
            outcome.seconds += time.perf_counter() - started
        messages, origins = view.curated, view.curated.origins
        counts = [measured.tokens(message) for message in messages]
        outcome.views += 1
        outcome.invalid += bool(errors(check(list(messages)))) and not errors(check(session.messages[: call.index]))
        outcome.over += make_manager is not None and sum(counts) > budget
        ledger.send(messages, counts)
        full.send(session.messages[: call.index], session.tokens[: call.index])
        _measure_recall(outcome, session, call, _Shown(measured, messages, origins), sum(counts), prices)
    outcome.tokens, outcome.cached, outcome.cuts = ledger.tokens, ledger.cached, ledger.busts
    outcome.cost, outcome.full_cost = ledger.cost, full.cost
    outcome.reread_cost += outcome.cost
    return outcome


class _Measured:
    """Tokens and texts of messages that a policy has changed or added, computed once."""

    def __init__(self, session: RecordedSession) -> None:
        self.session = session
        self.indexes = {id(message): index for index, message in enumerate(session.messages)}
        self._values: dict[int, tuple[Message, int, str]] = {}
        """By the id of the message, which is kept alive here."""

    def tokens(self, message: Message) -> int:
        index = self.indexes.get(id(message))
        return self.session.tokens[index] if index is not None else self._value(message)[1]

    def text(self, message: Message) -> str:
        return self._value(message)[2]

    def _value(self, message: Message) -> tuple[Message, int, str]:
        value = self._values.get(id(message))
        if value is None:
            value = self._values[id(message)] = (message, self.session.counter.message(message), full_text(message))
        return value


class _Shown:
    """What a view contains: messages of the record unchanged, and the texts of all others."""

    def __init__(self, measured: _Measured, messages: Sequence[Message], origins: Sequence[int | None]) -> None:
        self.unchanged: set[int] = set()
        texts = []
        for message, origin in zip(messages, origins, strict=True):
            if (origin is not None and message is measured.session.messages[origin]) or (
                origin is not None and message == measured.session.messages[origin]
            ):
                self.unchanged.add(origin)
            else:
                texts.append(measured.text(message))
        self._text = "\n".join(texts)

    def contains(self, use: Use) -> bool:
        return not self.unchanged.isdisjoint(use.sources) or use.text in self._text


def _measure_recall(
    outcome: SessionOutcome,
    session: RecordedSession,
    call: RecordedCall,
    shown: _Shown,
    view_tokens: int,
    prices: Prices,
) -> None:
    outcome.names += len(call.names)
    outcome.names_found += sum(map(shown.contains, call.names))
    outcome.other_names += len(call.other_names)
    outcome.other_names_found += sum(map(shown.contains, call.other_names))
    outcome.lines += len(call.lines)
    missed = [use for use in call.lines if not shown.contains(use)]
    outcome.lines_found += len(call.lines) - len(missed)
    outcome.misses += [Miss(call.index, use.sources[-1], use.text) for use in missed][
        : _MAX_MISSES - len(outcome.misses)
    ]
    plain = prices.input or 1.0
    write, read = (plain if price is None else price for price in (prices.cache_write, prices.cache_read))
    for source in {use.sources[-1] for use in missed}:
        outcome.reread_cost += (write * session.tokens[source] + read * view_tokens) / plain
    requests = [index for index in range(call.index) if is_user(session.messages[index])]
    outcome.requests += len(requests)
    outcome.requests_found += sum(index in shown.unchanged for index in requests)
    essential = {*range(min(leading_system_count(session.messages), call.index)), *requests[:1], *requests[-1:]}
    outcome.essentials_lost += not essential <= shown.unchanged


Policies: TypeAlias = Mapping[str, MakeManager | None]
"""Name → the function that makes its manager; None sends the full history."""
