"""Replays recorded conversations under history policies, without a model.

At each point where the model was called in the recording the policy is asked for the view, and the view is measured:
is it valid, is it within the budget, does it hold the system messages and the first and the newest request, how much of
it would the prompt cache have held, and of the identifiers that the recorded answer uses and the record held, how many
does the view still hold (reference recall).
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
"""(messages so far, budget, a place for the policy's own state in this conversation) → view"""

IDENTIFIER = re.compile(
    r"(?:[\w.-]+/)+[\w.-]+|\b[\w-]+\.(?:py|ts|js|go|rs|json|md|yaml|yml|toml|sql|sh|txt)\b|\b[A-Z0-9]{6,}\b"
    r"|\b[0-9a-f]{8,}\b|\b\d{4,}\b|[\w.+-]+@[\w-]+\.\w+|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[a-z]+[A-Z]\w+\b"
)


def key(message: Message) -> str:
    return json.dumps(message, sort_keys=True, ensure_ascii=False)


@dataclass
class Recording:
    """One recorded conversation, with everything that does not depend on a policy worked out once."""

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
        """Where the model was called: before these messages."""
        waiting: set[str] = set()
        calls = []
        for at, message in enumerate(self.messages):
            role = message["role"]
            if role == "assistant":
                if at and not waiting and self.messages[at - 1]["role"] in {"user", "tool"}:
                    calls.append(at)
                waiting = {call["id"] for call in message.get("tool_calls") or ()}
            elif role == "tool":
                waiting.discard(message.get("tool_call_id", ""))
            else:
                waiting = set()
        return calls

    @cached_property
    def wanted(self) -> dict[int, list[tuple[str, list[int]]]]:
        """For each call: the identifiers that the answer uses, and the messages before it that hold each."""
        used: dict[int, set[str]] = {}
        for at in self.calls:
            answer = self.messages[at]
            said = {
                "c": answer.get("content", ""),
                "t": [call["function"].get("arguments", "") for call in answer.get("tool_calls") or ()],
            }
            used[at] = set(IDENTIFIER.findall(key(said)))
        holders = {
            word: [at for at, text in enumerate(self.keys) if word in text] for word in set().union(*used.values())
        }
        return {
            at: [(word, holders[word][: bisect_left(holders[word], at)]) for word in words if holders[word][0] < at]
            for at, words in used.items()
        }


@dataclass
class Tally:
    """What a policy did over many recordings."""

    views: int = 0
    invalid: int = 0
    over: int = 0
    request: int = 0
    goal: int = 0
    system: int = 0
    systems: int = 0
    peak: int = 0
    refused: int = 0
    held: int = 0
    known: int = 0
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
        of = {"system": self.systems, "held": self.known, "cached": self.tokens}.get(name, self.views)
        return float(getattr(self, name)) / max(1, of)


def replay(recordings: Iterable[Recording], policy: Policy, budget: int) -> Tally:
    """Ask the policy for a view at every call of every recording, and measure it."""
    tally = Tally()
    for recording in recordings:
        _replay_one(recording, policy, budget, tally)
    return tally


def _replay_one(recording: Recording, policy: Policy, budget: int, tally: Tally) -> None:
    state: dict[str, Any] = {}
    ledger = CacheLedger()
    messages, keys = recording.messages, recording.keys
    place_of = {id(message): at for at, message in enumerate(messages)}
    for at in recording.calls:
        try:
            view = list(policy(messages[:at], budget, state))
        except CannotFit:
            tally.refused += 1
            continue
        places = [place_of.get(id(message)) for message in view]
        texts = [key(message) if place is None else keys[place] for message, place in zip(view, places, strict=True)]
        counts = [recording.tokens(message, text) for message, text in zip(view, texts, strict=True)]
        tally.views += 1
        tally.invalid += bool(problems(view) - problems(messages[:at]))
        tally.over += sum(counts) > budget
        tally.peak = max(tally.peak, sum(counts))
        sent = set(texts)
        users = [place for place in range(at) if messages[place]["role"] == "user"]
        tally.request += not users or keys[users[-1]] in sent
        tally.goal += not users or keys[users[0]] in sent
        if messages[0]["role"] == "system":
            tally.systems += 1
            tally.system += keys[0] in sent
        ledger.send(view, counts)
        whole = {place for place in places if place is not None}
        changed = "\n".join(text for text, place in zip(texts, places, strict=True) if place is None)
        for word, holders in recording.wanted[at]:
            tally.known += 1
            tally.held += not whole.isdisjoint(holders) or word in changed
    tally.add(ledger)


def problems(view: Sequence[Message]) -> set[str]:
    """What a provider would refuse, found without our own checker."""
    found: set[str] = set()
    waiting: set[str] = set()
    seen: set[str] = set()
    body = [message for message in view if message["role"] not in {"system", "developer"}]
    for message in body:
        if message["role"] == "tool":
            call = message.get("tool_call_id", "")
            if call not in waiting:
                found.add("duplicate" if call in seen else "orphan")
            waiting.discard(call)
            seen.add(call)
        else:
            if waiting:
                found.add("dangling")
            waiting = (
                {call["id"] for call in message.get("tool_calls") or ()} if message["role"] == "assistant" else set()
            )
    if waiting:
        found.add("dangling")
    return found if body else {"empty"}


def plain(message: dict[str, Any]) -> Message:
    """A message as every peer can read it: text content, and only the keys that all of them know."""
    content = message.get("content")
    known = ("role", "content", "tool_calls", "tool_call_id", "name")
    made = {name: value for name, value in message.items() if name in known and value not in (None, [])}
    made["content"] = (
        content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    )
    if made["role"] == "developer":
        made["role"] = "system"
    return made


def recordings(conversations: Iterable[dict[str, Any]], *, most: int, least: int) -> list[Recording]:
    """At most `most` of the conversations that have at least `least` messages, evenly spread."""
    long = [conversation for conversation in conversations if len(conversation["messages"]) >= least]
    step = max(1, len(long) // most)
    return [Recording(c["id"], [plain(m) for m in c["messages"]]) for c in long[::step][:most]]
