"""The minutes of a request: a stored description of which messages were sent, changed or left out, and why.

Messages that were sent unchanged are given by their positions in the record; only other messages are stored in full. So
minutes are short, and the request can be rebuilt exactly for as long as the record exists.
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
from minutebook.history.curation import Curated, NoteStatus, ViewNote, notes_since
from minutebook.history.explanation import changed_messages, status_and_reason
from minutebook.history.view import View
from minutebook.record.fold import Fold
from minutebook.record.message import Message, Provider, plain_copy
from minutebook.store.types import REQUEST_KIND, Lease, NewDocument
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import json_bytes

_NOT_SENT: Final = frozenset({NoteStatus.DROPPED, NoteStatus.FOLDED})
Part = list[int] | dict[str, Any]
"""A range of positions `[start, stop)` in the record, or a message that is not in the record in this form."""


@dataclass(frozen=True, slots=True)
class Minutes:
    """The messages that one request sent, and the messages that were changed or left out."""

    parts: list[Part]
    left_out: list[dict[str, Any]]
    """Ranges of the record that are changed or left out in the view: `start`, `stop`, `status`, `reason`."""
    tokens_before: int
    tokens_after: int
    """Tokens of the view. In shadow mode this view is computed but not sent."""
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}


def minutes_of(view: View, sent: View, positions: Sequence[int | None], front: Sequence[Message] = ()) -> Minutes:
    """The minutes of a request. `sent` is the view that was sent: `view`, or all messages if the policy does not prune.

    `positions` maps each index in the view's record to a position in the store. `front` are system messages of this request
    only, which were sent before the others.
    """
    record = sent.record
    if sent is not view:
        return _MinutesBuilder().minutes(view, sent, positions, front)
    with record.lock:
        return record.cached_value(("minutes",), _MinutesBuilder).minutes(view, sent, positions, front)


def messages_digest(messages: Iterable[Message]) -> str:
    """The SHA-256 of the messages as a JSON list, in hexadecimal."""
    return _RunningDigest().add_messages(messages).hexdigest()


class _RunningDigest:
    """The digest of a list that messages are appended to."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"[")
        self._is_empty = True

    def add_messages(self, messages: Iterable[Message]) -> "_RunningDigest":
        for message in messages:
            self._hash.update(b"" if self._is_empty else b",")
            self._hash.update(json_bytes(message if isinstance(message, dict) else plain_copy(message)))
            self._is_empty = False
        return self

    def hexdigest(self) -> str:
        complete_hash = self._hash.copy()
        complete_hash.update(b"]")
        return complete_hash.hexdigest()


def _have_same_added(view: Curated, other: Curated) -> bool:
    """Whether both views have the same messages that are not in the record."""
    added, other_added = (
        [message for message, origin in zip(curated, curated.origins, strict=True) if origin is None]
        for curated in (view, other)
    )
    return len(added) == len(other_added) and all(map(is_, added, other_added))


class _MinutesBuilder:
    """Keeps the minutes of the last view of a record, and derives the next ones from them if the next view continues it.

    Until older messages are left out, each view is the previous one with messages appended, and only these are examined.
    After a cut, also the messages are examined that were or are in the view. So the time depends on the length of the
    view, not on the length of the conversation.
    """

    def __init__(self) -> None:
        self._reset((), ())

    def _reset(self, positions: Sequence[int | None], front: Sequence[Message]) -> None:
        self._view: View | None = None
        self._positions, self._front = positions, [*front]
        self._length = 0
        """Length of the record when the last minutes were made."""
        self._is_whole = list(positions) == list(range(len(positions)))
        """Whether each message's position is its index."""
        self._left_out: list[dict[str, Any]] = []
        self._reset_parts()

    def _reset_parts(self) -> None:
        self._part_count = 0
        """Number of messages of the view that are in `_parts`."""
        self._parts: list[Part] = [dict(message) for message in self._front]
        self._digest = _RunningDigest().add_messages(self._front)

    def minutes(self, view: View, sent: View, positions: Sequence[int | None], front: Sequence[Message]) -> Minutes:
        if not self._is_continued_by(view, positions, front):
            changes = self._changes_by_cut(view, positions, front)
            if changes is None:
                self._reset(positions, front)
            else:
                self._change_left_out(changes)
                self._reset_parts()
        start = self._part_count
        new = sent.curated[start:]
        for origin, message in zip(sent.curated.origins[start:], new, strict=True):
            self._add_part(sent.record, origin, message)
        for index, status, reason in changed_messages(view.record, view.curated, view.hidden, start=self._length):
            self._add_left_out(positions[index], status.value, reason)
        self._digest.add_messages(new)
        self._is_whole = self._is_whole and list(positions[self._length :]) == [*range(self._length, len(positions))]
        self._view, self._length, self._part_count = view, len(view.record), len(sent.curated)
        return Minutes(
            [part.copy() for part in self._parts],
            [left_out.copy() for left_out in self._left_out],
            sent.record.tokens,
            view.tokens,
            self._digest.hexdigest(),
        )

    def _is_same_record(self, view: View, positions: Sequence[int | None], front: Sequence[Message]) -> bool:
        last = self._view
        return (
            last is not None
            and positions is self._positions
            and list(front) == self._front
            and (last.hidden is view.hidden or not (last.hidden or view.hidden))
            and len(last.curated.note_chains) == len(view.curated.note_chains)
            and not view.record.repairs
        )

    def _is_continued_by(self, view: View, positions: Sequence[int | None], front: Sequence[Message]) -> bool:
        """Whether the view is the last one with messages appended that are new in the record, for the same reasons."""
        last = self._view
        if last is None or not self._is_same_record(view, positions, front):
            return False
        before, now = last.curated, view.curated
        return (
            len(before) <= len(now)
            and all(map(is_, before, now))
            and list(before.origins) == list(now.origins[: len(before)])
            and all(origin is None or origin >= self._length for origin in now.origins[len(before) :])
            and all(map(is_, before.note_chains, now.note_chains))
        )

    def _changes_by_cut(
        self, view: View, positions: Sequence[int | None], front: Sequence[Message]
    ) -> dict[int, tuple[NoteStatus, str]] | None:
        """Position → the new status and reason of messages that a cut since the last view has changed.

        None if they cannot be derived from the last minutes.
        """
        last = self._view
        if last is None or not self._is_whole or not self._is_same_record(view, positions, front):
            return None
        before, now = last.curated, view.curated
        if view.hidden and not _have_same_added(before, now):
            return None  # if the view has no message of a fold, the messages that the fold hides have another reason
        notes: dict[int, ViewNote] = {}
        for chain_before, chain_now in zip(before.note_chains, now.note_chains, strict=True):
            added = notes_since(chain_now, chain_before)
            if added is None:
                return None
            notes |= added
        sent_before, sent_now = dict(zip(before.origins, before, strict=True)), dict(zip(now.origins, now, strict=True))
        has_several = sum(chain is not None for chain in now.note_chains) > 1
        changes: dict[int, tuple[NoteStatus, str]] = {}
        for position in {position for position in {*sent_before, *sent_now, *notes} if position is not None}:
            if position >= self._length:
                continue
            sent, note = sent_now.get(position), notes.get(position)
            if sent is sent_before.get(position) and note is None:
                continue
            if (note is None and sent is not view.record[position]) or (has_several and sent is None):
                return None  # an earlier note, or that of another manager, is the reason
            changes[position] = status_and_reason(view.record[position], sent, note)
        return changes

    def _change_left_out(self, changes: Mapping[int, tuple[NoteStatus, str]]) -> None:
        if not changes:
            return
        first = min(changes)
        statuses: dict[int, tuple[str, str]] = {}
        while self._left_out and self._left_out[-1]["stop"] > first:
            last = self._left_out.pop()
            same = last["status"], last["reason"]
            statuses |= dict.fromkeys(range(max(first, last["start"]), last["stop"]), same)
            if last["start"] < first:
                self._left_out.append({**last, "stop": first})
        statuses |= {position: (status.value, reason) for position, (status, reason) in changes.items()}
        for position, (status, reason) in sorted(statuses.items()):
            if status != NoteStatus.SENT:
                self._add_left_out(position, status, reason)

    def _add_part(self, record: Sequence[Message], origin: int | None, message: Message) -> None:
        position = None
        if origin is not None and (record[origin] is message or record[origin] == message):
            position = self._positions[origin]
        last_part = self._parts[-1] if self._parts else None
        if position is None:
            self._parts.append(dict(message))
        elif isinstance(last_part, list) and last_part[1] == position:
            last_part[1] = position + 1
        else:
            self._parts.append([position, position + 1])

    def _add_left_out(self, position: int | None, status: str, reason: str) -> None:
        if position is None:
            return
        last_range = self._left_out[-1] if self._left_out else None
        key = (position, status, reason)
        if last_range and (last_range["stop"], last_range["status"], last_range["reason"]) == key:
            last_range["stop"] = position + 1
        else:
            self._left_out.append({"start": position, "stop": position + 1, "status": status, "reason": reason})


def sent_messages(parts: Iterable[Part], record: Mapping[int, Message]) -> list[Message]:
    """Rebuild the sent messages from the record. Messages that were deleted since then are left out."""
    messages: list[Message] = []
    for part in parts:
        if isinstance(part, list):
            messages += [record[position] for position in range(*part) if position in record]
        else:
            messages.append(part)
    return messages


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPruned:
    """How much of a conversation one request sent. Numbers and names only, no text."""

    conversation: str | None
    loaded: int
    """Messages of the record that were loaded."""
    preserved: int
    """Loaded messages that are sent unchanged."""
    pruned: int
    """Loaded messages that are shortened or left out."""
    tokens_before: int
    tokens_after: int
    mode: Literal["off", "shadow", "on"]
    """`on` if the view was sent; `shadow` if it was only computed."""
    policy: str
    stripped: int = 0
    """Messages that are sent in a shorter form."""
    budget: int | None = None
    """Maximum tokens of messages per request."""
    reconcile: str | None = None
    """How a history that the client sent again was matched: appended, forked, partial, auxiliary or bypassed."""
    prefix_stable: bool | None = None
    """Whether the previous request is a prefix of this one; None if unknown."""
    tokens_source: Literal["provider", "tokenizer", "estimate"] = "tokenizer"

    @property
    def sent(self) -> int:
        """The number of messages that are sent."""
        return self.loaded if self.mode != "on" else self.preserved + self.stripped

    @property
    def saved(self) -> int:
        """The tokens that pruning saves; 0 unless the mode is `on`."""
        return max(0, self.tokens_before - self.tokens_after) if self.mode == "on" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """The settings of a model call, the same for all of its requests."""

    conversation: str
    model: str
    policy: Policy
    counter: TokenCounter
    run_id: str
    """The id of the run. A run produces one answer and may make several requests."""
    request_id: str
    provider: str = "openai"
    """The provider's name, as stored in the entries of the call."""
    lease: Lease | None = None
    overhead_tokens: int = 0
    """Tokens that a request sends besides messages: its tools."""
    instructions: Sequence[Message] | None = None
    """System messages that replace the record's leading ones in this call; None to send the record's."""
    retention: RetentionConfig | None = None
    """How old tool payloads are trimmed after the answer; None for no trimming."""
    minutes_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the stored minutes, such as `reconcile`."""
    rules: Provider = "openai"
    """The provider whose rules the view satisfies."""
    keeps_parts: bool = True
    """Whether parts of content that this provider may not have are sent unchanged."""
    fails_open: bool = True
    """Whether all messages are sent if the manager fails. Otherwise its error is raised."""
    number: int | None = None
    """The number of the request in its conversation; None if it is not numbered in advance."""


@dataclass(slots=True, kw_only=True)
class SentRequest:
    """One request to the provider, with its minutes."""

    settings: CallSettings
    minutes: Minutes
    decision: PruningDecision | None = None
    """In shadow mode, how much would have been pruned; otherwise None."""
    loaded: int
    budget: int | None = None
    bypass: str | None = None
    """The name of the error that made the manager fail, so that all messages were sent."""
    folds: tuple[Fold, ...] = ()
    asked_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    overflows: int = 0
    """How often the provider rejected a longer view of this request."""
    outcome: dict[str, Any] = field(default_factory=dict)
    """How the request ended: finish reason, usage, position of the answer."""
    stored_length: int | None = None
    """The length of the record when the minutes were first stored; None if they are not stored yet."""

    @property
    def pruned(self) -> HistoryPruned:
        """The counts for logs and metrics; in shadow mode, of the view that was not sent."""
        minutes, decision = self.minutes, self.decision
        ranges = minutes.left_out
        changed_count = sum(item["stop"] - item["start"] for item in ranges)
        stripped_count = sum(item["stop"] - item["start"] for item in ranges if item["status"] not in _NOT_SENT)
        return HistoryPruned(
            conversation=self.settings.conversation,
            loaded=self.loaded,
            preserved=self.loaded - changed_count if decision is None else decision.loaded - decision.pruned,
            pruned=changed_count if decision is None else decision.pruned,
            tokens_before=minutes.tokens_before,
            tokens_after=minutes.tokens_after if decision is None else decision.tokens_after,
            mode=self.settings.policy.mode,
            policy=self.settings.policy.name,
            stripped=stripped_count,
            budget=self.budget,
            reconcile=self.settings.minutes_fields.get("reconcile"),
        )

    def document(self, length: int) -> NewDocument:
        """The minutes as a document, stored when the record has `length` entries.

        A numbered request is stored once under its number: another one with the same number raises `DocumentExists`.
        """
        is_numbered, is_stored = self.settings.number is not None, self.stored_length is not None
        if not is_stored:
            self.stored_length = length
        body = {
            **({"number": self.settings.number} if is_numbered else {}),
            "run": self.settings.run_id,
            "model": self.settings.model,
            "policy": self.settings.policy.describe(),
            "mode": self.settings.policy.mode,
            "folds": [fold.id for fold in self.folds],
            **self.minutes.to_json(),
            "length": length,
            "bypass": self.bypass,
            "asked_at": self.asked_at.isoformat(),
            **({"overflows": self.overflows} if self.overflows else {}),
            **self.settings.minutes_fields,
            **self.outcome,
        }
        return NewDocument(
            REQUEST_KIND, self.settings.request_id, plain_copy(body), replace=is_stored or not is_numbered
        )


def usage_json(usage: Usage) -> dict[str, Any]:
    """Token usage in the format of OpenAI's chat completions."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            **({"cache_write_tokens": usage.cache_write_tokens} if usage.cache_write_tokens else {}),
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
