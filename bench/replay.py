"""Replays recorded conversations under history policies, without a model.

The policy builds a view at each point of the recording where the model was called. Measured are: whether the view is
valid and within the budget, whether it has the system message and the first and newest request, how much of it would be
in the prompt cache, and its recall: the share of the identifiers in the recorded answer and the earlier record that are in
the view.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from minutebook import CannotFit, Message
from minutebook.history import CacheLedger
from minutebook.tokens import ExactCounter

Policy: TypeAlias = Callable[[list[Message], int, dict[str, Any]], Sequence[Message]]
"""(messages so far, budget, state of the policy for this conversation) → view."""

IDENTIFIER = re.compile(
    r"(?:[\w.-]+/)+[\w.-]+|\b[\w-]+\.(?:py|ts|js|go|rs|json|md|yaml|yml|toml|sql|sh|txt)\b|\b[A-Z0-9]{6,}\b"
    r"|\b[0-9a-f]{8,}\b|\b\d{4,}\b|[\w.+-]+@[\w-]+\.\w+|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[a-z]+[A-Z]\w+\b"
)


def key(message: Message) -> str:
    return json.dumps(message, sort_keys=True, ensure_ascii=False)


@dataclass
class Recording:
    """One recorded conversation. Values that do not depend on a policy are computed once."""

    id: str
    messages: list[Message]
    counter: ExactCounter = field(default_factory=ExactCounter)
    _counts: dict[str, int] = field(default_factory=dict)

    def tokens(self, message: Message, text: str | None = None) -> int:
        text = key(message) if text is None else text
        count = self._counts.get(text)
        if count is None:
            count = self._counts[text] = self.counter.message(message)
        return count

    @cached_property
    def keys(self) -> list[str]:
        return [key(message) for message in self.messages]

    @cached_property
    def calls(self) -> list[int]:
        """The indexes of the messages before which the model was called."""
        waiting: set[str] = set()
        calls = []
        for index, message in enumerate(self.messages):
            role = message["role"]
            if role == "assistant":
                if index and not waiting and self.messages[index - 1]["role"] in {"user", "tool"}:
                    calls.append(index)
                waiting = {call["id"] for call in message.get("tool_calls") or ()}
            elif role == "tool":
                waiting.discard(message.get("tool_call_id", ""))
            else:
                waiting = set()
        return calls

    @cached_property
    def references(self) -> dict[int, list[tuple[str, list[int]]]]:
        """For each call: the identifiers that the answer uses, and the earlier messages that have each."""
        used: dict[int, set[str]] = {}
        for at in self.calls:
            answer = self.messages[at]
            content = {
                "c": answer.get("content", ""),
                "t": [call["function"].get("arguments", "") for call in answer.get("tool_calls") or ()],
            }
            used[at] = set(IDENTIFIER.findall(key(content)))
        holders = {
            word: [at for at, text in enumerate(self.keys) if word in text] for word in set().union(*used.values())
        }
        return {
            at: [(word, holders[word][: bisect_left(holders[word], at)]) for word in words if holders[word][0] < at]
            for at, words in used.items()
        }


@dataclass
class ReplayResult:
    """Totals of a policy over many recordings."""

    views: int = 0
    invalid: int = 0
    over: int = 0
    request: int = 0
    goal: int = 0
    system: int = 0
    systems: int = 0
    peak: int = 0
    refused: int = 0
    recalled: int = 0
    recallable: int = 0
    tokens: int = 0
    cached: int = 0
    busts: int = 0
    cost: float = 0.0

    def add(self, ledger: CacheLedger) -> None:
        self.tokens += ledger.tokens
        self.cached += ledger.cached
        self.busts += ledger.busts
        self.cost += ledger.cost

    def share(self, name: str) -> float:
        of = {"system": self.systems, "recalled": self.recallable, "cached": self.tokens}.get(name, self.views)
        return float(getattr(self, name)) / max(1, of)


def replay(recordings: Iterable[Recording], policy: Policy, budget: int) -> ReplayResult:
    """Build and measure a view at every call of every recording."""
    result = ReplayResult()
    for recording in recordings:
        _replay_one(recording, policy, budget, result)
    return result


def _replay_one(recording: Recording, policy: Policy, budget: int, result: ReplayResult) -> None:
    state: dict[str, Any] = {}
    ledger = CacheLedger()
    messages, keys = recording.messages, recording.keys
    index_of = {id(message): at for at, message in enumerate(messages)}
    for at in recording.calls:
        try:
            view = list(policy(messages[:at], budget, state))
        except CannotFit:
            result.refused += 1
            continue
        indexes = [index_of.get(id(message)) for message in view]
        texts = [key(message) if index is None else keys[index] for message, index in zip(view, indexes, strict=True)]
        counts = [recording.tokens(message, text) for message, text in zip(view, texts, strict=True)]
        result.views += 1
        result.invalid += bool(problems_of(view) - problems_of(messages[:at]))
        result.over += sum(counts) > budget
        result.peak = max(result.peak, sum(counts))
        sent = set(texts)
        users = [index for index in range(at) if messages[index]["role"] == "user"]
        result.request += not users or keys[users[-1]] in sent
        result.goal += not users or keys[users[0]] in sent
        if messages[0]["role"] == "system":
            result.systems += 1
            result.system += keys[0] in sent
        ledger.send(view, counts)
        whole = {index for index in indexes if index is not None}
        changed = "\n".join(text for text, index in zip(texts, indexes, strict=True) if index is None)
        for word, holders in recording.references[at]:
            result.recallable += 1
            result.recalled += not whole.isdisjoint(holders) or word in changed
    result.add(ledger)


def problems_of(view: Sequence[Message]) -> set[str]:
    """The problems for which a provider would reject the view, found without our own validation."""
    problems: set[str] = set()
    waiting: set[str] = set()
    seen: set[str] = set()
    body = [message for message in view if message["role"] not in {"system", "developer"}]
    for message in body:
        if message["role"] == "tool":
            call = message.get("tool_call_id", "")
            if call not in waiting:
                problems.add("duplicate" if call in seen else "orphan")
            waiting.discard(call)
            seen.add(call)
        else:
            if waiting:
                problems.add("dangling")
            waiting = (
                {call["id"] for call in message.get("tool_calls") or ()} if message["role"] == "assistant" else set()
            )
    if waiting:
        problems.add("dangling")
    return problems if body else {"empty"}


def plain(message: dict[str, Any]) -> Message:
    """A message in the form that every peer accepts: text content, and only common keys."""
    content = message.get("content")
    common_keys = ("role", "content", "tool_calls", "tool_call_id", "name")
    converted = {name: value for name, value in message.items() if name in common_keys and value not in (None, [])}
    converted["content"] = (
        content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    )
    if converted["role"] == "developer":
        converted["role"] = "system"
    return converted


def recordings(
    conversations: Iterable[dict[str, Any]], *, max_conversations: int, min_messages: int
) -> list[Recording]:
    """At most `max_conversations` of the conversations with at least `min_messages` messages, evenly spread."""
    candidates = [conversation for conversation in conversations if len(conversation["messages"]) >= min_messages]
    step = max(1, len(candidates) // max_conversations)
    return [Recording(c["id"], [plain(m) for m in c["messages"]]) for c in candidates[::step][:max_conversations]]
