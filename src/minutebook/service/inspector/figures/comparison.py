"""What if: the same session under another policy or budget, replayed and measured with the lab."""

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import yaml

from minutebook.conversation.policy import MANAGERS, manager_from_texts
from minutebook.history.protocol import HistoryManager
from minutebook.lab.outcome import SessionOutcome, replay_session
from minutebook.lab.policies import BUDGET_POLICY
from minutebook.lab.sessions import RecordedSession
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.policy import ReplayPolicy, new_conversation, replay, window_of

SUGGESTED: Final = (BUDGET_POLICY, f"{BUDGET_POLICY}:target=0.3", f"{BUDGET_POLICY}:target=0.7", "tool_result_clearer", "turn_window:5", "sliding_window:40", "passthrough")  # fmt: skip
MAX_KEPT: Final = 6
"""Comparisons that are kept per conversation."""


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
        managers = [_described(manager_from_texts([text], self.budget), text.partition(":")[0]) for text in self.text.split()]  # fmt: skip
        policy = {"manager": managers, "max_tokens": self.budget}
        return yaml.safe_dump({"conversation": {"policy": "mine"}, "policies": {"mine": policy}}, sort_keys=False)


def _described(manager: Any, name: str) -> str | dict[str, Any]:
    settings = {
        item.name: getattr(manager, item.name)
        for item in fields(manager)
        if item.name not in {"counter", "max_tokens"}
        and (item.default is MISSING or getattr(manager, item.name) != item.default)
        and isinstance(getattr(manager, item.name), (bool, int, float, str))
    }
    return {"name": name, **settings} if settings else name


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
    budget = conversation.budget or window_of(conversation.model)
    if conversation.is_replay:
        return PolicyChoice(" ".join(conversation.managers) or BUDGET_POLICY, budget)
    return PolicyChoice(conversation.policy if conversation.policy in MANAGERS else BUDGET_POLICY, budget)


_executor: Final = ThreadPoolExecutor(1, "what if")
_runs: Final[WeakKeyDictionary[InspectedConversation, OrderedDict[tuple[PolicyChoice, int], "Future[PolicyRun]"]]] = (
    WeakKeyDictionary()
)


def start_run(conversation: InspectedConversation, choice: PolicyChoice) -> "Future[PolicyRun]":
    """Replay the conversation in a thread, once for each policy and length.

    Raises:
        InvalidSetting: there is no such manager, or a setting is invalid.
    """
    choice.manager()
    runs = _runs.setdefault(conversation, OrderedDict())
    key = choice, len(conversation.messages)
    if key not in runs:
        runs[key] = _executor.submit(run_policy, conversation, choice)
        while len(runs) > MAX_KEPT:
            runs.popitem(last=False)[1].cancel()
    runs.move_to_end(key)
    return runs[key]


def run_policy(conversation: InspectedConversation, choice: PolicyChoice) -> PolicyRun:
    """The conversation under a policy."""
    session = RecordedSession(
        conversation.id, conversation.messages, conversation.record.counter, conversation.model, conversation.times
    )
    outcome = replay_session(session, partial(_manager, choice), choice.budget)
    other = new_conversation(conversation.id, conversation.messages, title=conversation.title, model=conversation.model)
    replay(other, _ChosenPolicy(choice=choice))
    if other.failure is not None:
        raise other.failure
    return PolicyRun(choice, outcome, other)


def _manager(choice: PolicyChoice, _budget: int) -> HistoryManager:
    return choice.manager()
