"""What one request was sent, written down beside the record: which of its messages, which were changed, which left out.

Messages that were sent as they are in the record are named by their positions; only what the record does not hold is
written out. So the minutes of a request are short, and build it again word by word for as long as the record lasts.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from operator import is_
from typing import Any, Final, Literal

from minutebook.agent.messages import Usage
from minutebook.conversation.config import RetentionConfig
from minutebook.conversation.policy import Policy
from minutebook.conversation.retention import PruningDecision
from minutebook.history.curated import Status
from minutebook.history.view import View
from minutebook.record.fold import Fold
from minutebook.record.message import Message, thawed
from minutebook.store.types import Lease, NewDocument
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import dumped

REQUEST: Final = "request"
"""The kind of document that holds the minutes of a request."""
_NOT_SENT: Final = frozenset({Status.DROPPED, Status.FOLDED})
Part = list[int] | dict[str, Any]
"""Positions `[start, stop)` of the record, or a message that is not in it as it was sent."""


@dataclass(frozen=True, slots=True)
class Minutes:
    """What was sent, and what became of the rest."""

    parts: list[Part]
    left_out: list[dict[str, Any]]
    """Stretches of the record that the view has not as they are: `start`, `stop`, `status`, `reason`."""
    tokens_before: int
    tokens_after: int
    """The view's; where nothing is pruned yet, what it would have been."""
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def minutes_of(view: View, sent: View, positions: Sequence[int | None], front: Sequence[Message] = ()) -> Minutes:
    """The minutes of a request that was sent `sent`: the view, or everything where nothing is pruned.

    `positions` says where each message of the view's record stands in the store's; `front` was sent before the rest.
    """
    record = sent.record
    parts: list[Part] = [dict(message) for message in front]
    for origin, message in zip(sent.messages.origins, sent.messages, strict=True):
        place = positions[origin] if origin is not None and record[origin] == message else None
        if place is None:
            parts.append(dict(message))
        elif parts and isinstance(parts[-1], list) and parts[-1][1] == place:
            parts[-1][1] = place + 1
        else:
            parts.append([place, place + 1])
    return Minutes(parts, _left_out(view, positions), record.tokens, view.tokens, digest([*front, *sent.messages]))


def resent(parts: Iterable[Part], record: Mapping[int, Message]) -> list[Message]:
    """The messages that were sent, built again from the record; those that it has no more are left out."""
    messages: list[Message] = []
    for part in parts:
        if isinstance(part, list):
            messages += [record[place] for place in range(*part) if place in record]
        else:
            messages.append(part)
    return messages


def digest(messages: Sequence[Message]) -> str:
    """What tells whether two lists of messages are the same, byte for byte."""
    return hashlib.sha256(dumped([thawed(message) for message in messages])).hexdigest()


def _left_out(view: View, positions: Sequence[int | None]) -> list[dict[str, Any]]:
    stretches: list[dict[str, Any]] = []
    if not view.hidden and len(view.messages) == len(view.record) and all(map(is_, view.messages, view.record)):
        return stretches  # what is mostly asked needs no explanation
    for line in view.explain().lines:
        place = None if line.index is None else positions[line.index]
        if place is None or line.status is Status.SENT:
            continue
        last = stretches[-1] if stretches else None
        if last and last["stop"] == place and (last["status"], last["reason"]) == (line.status.value, line.reason):
            last["stop"] = place + 1
        else:
            stretches.append({"start": place, "stop": place + 1, "status": line.status.value, "reason": line.reason})
    return stretches


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """What is asked, of whom, and on whose behalf: what does not change in the course of a model call."""

    conversation: str
    model: str
    policy: Policy
    counter: TokenCounter
    run_id: str
    """The answer that this is for, which may take several requests."""
    request_id: str
    provider: str = "openai"
    """Who is asked, as the entries of the call say it."""
    lease: Lease | None = None
    overhead_tokens: int = 0
    """What a request sends besides messages: its tools."""
    instructions: Sequence[Message] | None = None
    """System messages of this call alone, in place of the record's leading ones; None for those."""
    retention: RetentionConfig | None = None
    """What is trimmed after the answer; None for nothing."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else the minutes say, such as how a resent history was understood."""


@dataclass(slots=True, kw_only=True)
class SentRequest:
    """One request to the provider, with its minutes."""

    call: CallSettings
    minutes: Minutes
    decision: PruningDecision | None = None
    """In shadow mode, what would have been pruned."""
    loaded: int
    budget: int | None = None
    bypass: str | None = None
    """Why the view was not used, where it could not be."""
    folds: tuple[Fold, ...] = ()
    asked_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    outcome: dict[str, Any] = field(default_factory=dict)
    """How it ended."""

    @property
    def pruned(self) -> HistoryPruned:
        """What was pruned, in numbers, or in shadow mode would have been."""
        minutes, decision = self.minutes, self.decision
        changed = sum(part["stop"] - part["start"] for part in minutes.left_out)
        stripped = sum(part["stop"] - part["start"] for part in minutes.left_out if part["status"] not in _NOT_SENT)
        return HistoryPruned(
            conversation=self.call.conversation,
            loaded=self.loaded,
            preserved=self.loaded - changed if decision is None else decision.loaded - decision.pruned,
            pruned=changed if decision is None else decision.pruned,
            tokens_before=minutes.tokens_before,
            tokens_after=minutes.tokens_after if decision is None else decision.tokens_after,
            mode=self.call.policy.mode,
            policy=self.call.policy.name,
            stripped=stripped,
            budget=self.budget,
            reconcile=self.call.facts.get("reconcile"),
        )

    def document(self, length: int) -> NewDocument:
        """The minutes as they are kept beside a record of that length."""
        body = {
            "run": self.call.run_id,
            "model": self.call.model,
            "policy": self.call.policy.describe(),
            "mode": self.call.policy.mode,
            "folds": [fold.id for fold in self.folds],
            **self.minutes.to_json(),
            "length": length,
            "bypass": self.bypass,
            "asked_at": self.asked_at.isoformat(),
            **self.call.facts,
            **self.outcome,
        }
        return NewDocument(REQUEST, self.call.request_id, thawed(body), replace=True)


def usage_json(usage: Usage) -> dict[str, Any]:
    """Tokens in the words of chat completions, as every surface of the service tells them."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
