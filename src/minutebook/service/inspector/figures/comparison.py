"""What if: the same session under another policy or budget, replayed and measured with the lab."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

import yaml

from minutebook.conversation.policy import MANAGERS, manager_config, manager_from_texts
from minutebook.errors import RequestRefused
from minutebook.history.protocol import HistoryManager
from minutebook.lab.outcome import SessionOutcome, replay_session
from minutebook.lab.policies import BUDGET_POLICY
from minutebook.lab.sessions import RecordedSession
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.policy import ReplayPolicy, new_conversation, replay, window_of

SUGGESTED: Final = (BUDGET_POLICY, f"{BUDGET_POLICY}:target=0.3", f"{BUDGET_POLICY}:target=0.7", "tool_result_clearer", "turn_window:5", "sliding_window:40", "passthrough")  # fmt: skip
MAX_KEPT: Final = 6
"""Comparisons that are kept per conversation."""
MAX_WAITING: Final = 8
"""Replays of one owner that wait for their turn."""


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy by text, such as `sliding_window:40` (several are joined by a space), and its budget."""

    text: str
    budget: int

    def manager(self) -> HistoryManager:
        """The manager.

        Raises:
            InvalidSetting: there is no such manager, or a setting is invalid.
        """
        return manager_from_texts(self.text.split(), self.budget)

    @property
    def command(self) -> str:
        """The same policy on the command line."""
        return " ".join([*(f"--manager {text}" for text in self.text.split()), f"--max-tokens {self.budget}"])

    @property
    def configuration(self) -> str:
        """The same policy in the configuration of a service."""
        configs = map(manager_config, self.text.split())
        managers = [{"name": config.name, **config.settings} if config.settings else config.name for config in configs]
        policy = {"manager": managers, "max_tokens": self.budget}
        return yaml.safe_dump({"conversation": {"policy": "mine"}, "policies": {"mine": policy}}, sort_keys=False)


@dataclass(frozen=True, slots=True)
class _ChosenPolicy(ReplayPolicy):
    """Replays with exactly one policy. A view above the budget is shown, not refused, as in the lab."""

    choice: PolicyChoice = PolicyChoice("passthrough", 0)

    def manager(self, model: str | None) -> tuple[HistoryManager, int | None, str]:  # noqa: ARG002 - as in the base
        return self.choice.manager(), None, f"{self.choice.text} {self.choice.budget:,}"


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """A conversation under a policy: the measures of the lab, and the requests."""

    choice: PolicyChoice
    outcome: SessionOutcome
    conversation: InspectedConversation

    @property
    def cost(self) -> float:
        """In the unit of the conversation's prices."""
        return self._in_unit(self.outcome.cost)

    @property
    def full_cost(self) -> float:
        return self._in_unit(self.outcome.full_cost)

    @property
    def reread_cost(self) -> float:
        return self._in_unit(self.outcome.reread_cost)

    @property
    def is_priced(self) -> bool:
        """Whether the costs are in US dollars."""
        return self.outcome.model is not None

    def _in_unit(self, cost: float) -> float:
        return cost / 1e6 if self.is_priced else cost


def current_choice(conversation: InspectedConversation) -> PolicyChoice:
    """The policy of a replay. For recorded requests: the recorded one, if it is a manager, else the token budget."""
    budget = conversation.budget or window_of(conversation.model, conversation.models)
    if conversation.is_replay:
        return PolicyChoice(" ".join(conversation.managers) or BUDGET_POLICY, budget)
    return PolicyChoice(conversation.policy if conversation.policy in MANAGERS else BUDGET_POLICY, budget)


class ReplayQueue:
    """Runs replays in one thread. Owners take turns, so one with many replays does not delay the others by more than one.

    More threads would not finish the replays sooner, since only one runs Python code at a time; requests would wait more.
    """

    def __init__(self) -> None:
        self._waiting = OrderedDict[str, deque[tuple[Future[PolicyRun], Callable[[], PolicyRun]]]]()
        self._lock = threading.Lock()
        self._is_running = False

    def submit(self, owner: str, replay_policy: "Callable[[], PolicyRun]") -> "Future[PolicyRun]":
        """The result of a replay, which waits for its turn.

        Raises:
            RequestRefused: too many replays of the owner are waiting.
        """
        future: Future[PolicyRun] = Future()
        with self._lock:
            waiting = self._waiting.setdefault(owner, deque())
            if len(waiting) >= MAX_WAITING:
                problem = f"{MAX_WAITING} comparisons are waiting already; load the page again later."
                raise RequestRefused(429, problem, "too_many_comparisons")
            waiting.append((future, replay_policy))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, daemon=True, name="what if").start()
        return future

    def _run(self) -> None:
        while (job := self._next()) is not None:
            future, replay_policy = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(replay_policy())
            except Exception as error:  # noqa: BLE001 - the page that waits for the future reports it
                future.set_exception(error)

    def _next(self) -> "tuple[Future[PolicyRun], Callable[[], PolicyRun]] | None":
        with self._lock:
            if not self._waiting:
                self._is_running = False
                return None
            owner, waiting = self._waiting.popitem(last=False)
            job = waiting.popleft()
            if waiting:
                self._waiting[owner] = waiting
            return job


_queue: Final = ReplayQueue()
_runs: Final[WeakKeyDictionary[InspectedConversation, OrderedDict[tuple[PolicyChoice, int], "Future[PolicyRun]"]]] = (
    WeakKeyDictionary()
)


def start_run(owner: str, conversation: InspectedConversation, choice: PolicyChoice) -> "Future[PolicyRun]":
    """Replay the conversation in a thread, once for each policy and length. Owners take turns.

    Raises:
        InvalidSetting: there is no such manager, or a setting is invalid.
        RequestRefused: too many replays of the owner are waiting.
    """
    choice.manager()
    runs = _runs.setdefault(conversation, OrderedDict())
    key = choice, len(conversation.messages)
    if key not in runs:
        runs[key] = _queue.submit(owner, partial(run_policy, conversation, choice))
        while len(runs) > MAX_KEPT:
            runs.popitem(last=False)[1].cancel()
    runs.move_to_end(key)
    return runs[key]


def run_policy(conversation: InspectedConversation, choice: PolicyChoice) -> PolicyRun:
    """The conversation under a policy."""
    session = RecordedSession(
        conversation.id, conversation.messages, conversation.record.counter, conversation.model, conversation.times
    )
    session.models = conversation.models
    outcome = replay_session(session, partial(_manager, choice), choice.budget)
    other = new_conversation(
        conversation.id,
        conversation.messages,
        title=conversation.title,
        model=conversation.model,
        models=conversation.models,
    )
    replay(other, _ChosenPolicy(choice=choice))
    if other.failure is not None:
        raise other.failure
    return PolicyRun(choice, outcome, other)


def _manager(choice: PolicyChoice, _budget: int) -> HistoryManager:
    return choice.manager()
