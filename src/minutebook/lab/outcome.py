"""Measures the requests of a replay: cost, validity, and what the recorded answers used that a view does not contain."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from minutebook.history.names import full_text
from minutebook.history.view import View
from minutebook.lab.prompt_cache import Billing, billing_of
from minutebook.lab.replay import MakeManager, ReplayedRequest, replay_requests
from minutebook.lab.sessions import RecordedSession
from minutebook.lab.uses import Goal, Use
from minutebook.record.message import Message, call_ids, is_result, is_system, is_user, leading_system_count, result_id

MAX_MISSES: Final = 20
"""Maximum number of missed lines whose text is kept per session."""


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
    model: str | None = None
    """The model with whose prices the costs are in millionths of a US dollar; None if they are in tokens of plain input."""
    budget: int = 0
    views: int = 0
    refused: int = 0
    """Calls for which the essential messages exceed the budget. They count nowhere else, nor in `full_cost`."""
    invalid: int = 0
    """Views with a problem that the record does not have."""
    over: int = 0
    cuts: int = 0
    """Views that are not the previous one with messages appended."""
    peak: int = 0
    """Tokens of the largest view."""
    room: int = 0
    """The budget, added up over all views."""
    tokens: int = 0
    cached: int = 0
    written: int = 0
    cost: float = 0.0
    full_cost: float = 0.0
    """The cost of sending the full history at the same calls."""
    reread_cost: float = 0.0
    """`cost`, and the cost of reading missed lines again: their smallest message is fetched, and stays until the next cut."""
    names: int = 0
    names_found: int = 0
    other_names: int = 0
    other_names_found: int = 0
    lines: int = 0
    lines_found: int = 0
    requests: int = 0
    requests_found: int = 0
    """User messages so far that are in the view unchanged, added up over all calls."""
    constraints: int = 0
    constraints_found: int = 0
    decisions: int = 0
    decisions_found: int = 0
    essentials_lost: int = 0
    """Views without the system message, the first or the newest request."""
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    misses: list[Miss] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The cost relative to the full history."""
        return self.cost / self.full_cost if self.full_cost else 1.0

    @property
    def lines_missed(self) -> int:
        return self.lines - self.lines_found

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SessionOutcome":
        known = {item.name: value[item.name] for item in fields(cls) if item.name in value}
        return cls(**{**known, "misses": [Miss(**miss) for miss in value["misses"]]})


def replay_session(
    session: RecordedSession,
    make_manager: MakeManager | None,
    budget: int,
    *,
    billing: Billing | None = None,
    max_misses: int = MAX_MISSES,
) -> SessionOutcome:
    """Build and measure the view at every call of a session. Without a manager, the full history is sent."""
    billing = billing or billing_of(session.model, session.models)
    outcome = SessionOutcome(session.id, len(session.messages), billing.model, budget)
    meter = _Meter(session, outcome, billing, max_misses)
    for request in replay_requests(session, make_manager, budget, billing=billing):
        outcome.seconds += request.seconds
        outcome.slowest_seconds = max(outcome.slowest_seconds, request.seconds)
        if request.view is None:
            outcome.refused += 1
        else:
            meter.add(request, request.view)
    outcome.reread_cost += outcome.cost
    return outcome


class Shown:
    """What a view contains: messages of the record unchanged, and the texts of all others."""

    def __init__(self, session: RecordedSession, view: View, texts: "_Texts") -> None:
        self.unchanged: set[int] = set()
        self._texts = texts
        self._changed: list[Message] = []
        for message, origin in zip(view.curated, view.curated.origins, strict=True):
            recorded = None if origin is None else session.messages[origin]
            if origin is not None and (message is recorded or message == recorded):
                self.unchanged.add(origin)
            else:
                self._changed.append(message)

    def contains(self, use: Use) -> bool:
        return not self.unchanged.isdisjoint(use.sources) or self.has_text(use.text)

    def has_goal(self, goal: Goal) -> bool:
        return goal.source in self.unchanged or self.has_text(goal.text)

    def has_text(self, text: str) -> bool:
        """Whether a changed or added message contains the text."""
        return any(self._texts.contains(message, text) for message in self._changed)


class _Texts:
    """Texts and tokens of messages that a policy has changed or added. Each is read and searched once."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Message, str]] = {}
        """By the id of the message, which is kept alive here."""
        self._found: dict[tuple[int, str], bool] = {}

    def contains(self, message: Message, text: str) -> bool:
        key = (id(message), text)
        found = self._found.get(key)
        if found is None:
            known = self._texts.get(id(message))
            if known is None:
                known = self._texts[id(message)] = (message, full_text(message))
            found = self._found[key] = text in known[1]
        return found


class _Meter:
    """Adds the measures of consecutive requests to an outcome."""

    def __init__(self, session: RecordedSession, outcome: SessionOutcome, billing: Billing, max_misses: int) -> None:
        self._session, self._outcome, self._billing, self._max_misses = session, outcome, billing, max_misses
        self._texts, self._check = _Texts(), PairingCheck()
        self._requests = [index for index, message in enumerate(session.messages) if is_user(message)]
        self._refetched: set[int] = set()
        """Messages that were read again since the last cut, and are in the view since then."""

    def add(self, request: ReplayedRequest, view: View) -> None:
        outcome, session = self._outcome, self._session
        tokens = view.tokens
        outcome.views += 1
        outcome.cuts += request.is_cut
        outcome.over += tokens > outcome.budget
        outcome.peak = max(outcome.peak, tokens)
        outcome.room += outcome.budget
        outcome.tokens += request.charge.tokens
        outcome.cached += request.charge.cached
        outcome.written += request.charge.written
        outcome.cost += request.charge.cost
        outcome.full_cost += request.full.cost
        problems = self._check.problems(view.curated)
        outcome.invalid += bool(problems and problems - self._check.problems(session.messages[: request.call.index]))
        shown = Shown(session, view, self._texts)
        self._add_uses(request, shown, tokens)
        self._add_goals(request.call.index, shown)

    def _add_uses(self, request: ReplayedRequest, shown: Shown, tokens: int) -> None:
        outcome, call = self._outcome, request.call
        outcome.names += len(call.names)
        outcome.names_found += sum(map(shown.contains, call.names))
        outcome.other_names += len(call.other_names)
        outcome.other_names_found += sum(map(shown.contains, call.other_names))
        missed = [use for use in call.lines if not shown.contains(use)]
        outcome.lines += len(call.lines)
        outcome.lines_found += len(call.lines) - len(missed)
        room = self._max_misses - len(outcome.misses)
        outcome.misses += [Miss(call.index, use.sources[-1], use.text) for use in missed[: max(0, room)]]
        self._add_rereads(missed, tokens, is_cut=request.is_cut)

    def _add_rereads(self, missed: Sequence[Use], tokens: int, *, is_cut: bool) -> None:
        size, billing = self._session.tokens, self._billing
        if is_cut:
            self._refetched.clear()
        self._outcome.reread_cost += billing.read_price * sum(size[source] for source in self._refetched)
        for use in missed:
            if self._refetched.isdisjoint(use.sources):
                source = min(use.sources, key=lambda index: size[index])
                self._refetched.add(source)
                self._outcome.reread_cost += billing.write_price * size[source] + billing.read_price * tokens

    def _add_goals(self, length: int, shown: Shown) -> None:
        outcome, session = self._outcome, self._session
        requests = [index for index in self._requests if index < length]
        outcome.requests += len(requests)
        outcome.requests_found += sum(index in shown.unchanged for index in requests)
        for name, goals in (("constraints", session.constraints), ("decisions", session.decisions)):
            earlier = [goal for goal in goals if goal.source < length]
            found = sum(map(shown.has_goal, earlier))
            setattr(outcome, name, getattr(outcome, name) + len(earlier))
            setattr(outcome, f"{name}_found", getattr(outcome, f"{name}_found") + found)
        system = range(min(leading_system_count(session.messages), length))
        outcome.essentials_lost += not {*system, *requests[:1], *requests[-1:]} <= shown.unchanged


class PairingCheck:
    """Finds problems for which a provider would reject a request, without our own validation. Each message is read once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message, bool, str | None, frozenset[str]]] = {}
        """By the id of the message, which is kept alive here: whether it is a system message, its result id, its call ids."""

    def problems(self, messages: Iterable[Message]) -> set[str]:
        problems: set[str] = set()
        waiting: set[str] = set()
        seen: set[str] = set()
        is_empty = True
        for message in messages:
            _, is_left_out, answered, calls = self._known.get(id(message)) or self._read(message)
            if is_left_out:
                continue
            is_empty = False
            if answered is None:
                if waiting:
                    problems.add("dangling")
                waiting = set(calls)
                continue
            if answered not in waiting:
                problems.add("duplicate" if answered in seen else "orphan")
            waiting.discard(answered)
            seen.add(answered)
        if waiting:
            problems.add("dangling")
        return {"empty"} if is_empty else problems

    def _read(self, message: Message) -> tuple[Message, bool, str | None, frozenset[str]]:
        answered = result_id(message) if is_result(message) else None
        known = self._known[id(message)] = (message, is_system(message), answered, frozenset(call_ids(message)))
        return known
