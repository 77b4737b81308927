"""Repair of a conversation that a provider would refuse, and the repaired copy that a transcript keeps.

The mended copy of a broken transcript, kept up to date as it grows.

Makes a conversation one that a provider accepts, and says what it did.

Nothing that can be kept is lost: a late result is moved to its call, an unanswered call gets a result that says so, an
id that is missing or used twice gets a new one. Only what answers nothing, or answers twice, is left out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from minutebook.record.finding import FindingKind
from minutebook.record.message import (
    BY_NAME,
    NO_ID,
    RESULT_ROLES,
    ROLES,
    Message,
    Provider,
    call_ids,
    is_result,
    is_system,
    is_user,
    require_message,
    result_id,
    role_of,
)
from minutebook.record.pairing import Survey, survey
from minutebook.record.validation import arguments_of, is_object, rejected_by

if TYPE_CHECKING:
    from minutebook.record.transcript import Transcript


NO_RESULT: Final = "[no result was recorded for this call]"
NO_START: Final = "[the conversation begins with the assistant]"


class RepairAction(StrEnum):
    """What was done about a finding."""

    DROPPED = "dropped"
    ANSWERED = "answered"
    MOVED = "moved"
    RENAMED = "renamed"
    STRIPPED = "stripped"
    WRAPPED = "wrapped"
    PRECEDED = "preceded"


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was done, to the message at `index` of the input."""

    kind: FindingKind
    action: RepairAction
    index: int
    call_id: str | None = None

    @property
    def what(self) -> str:
        """What was wrong and what was done, without saying where."""
        which = f" ({self.call_id!r})" if self.call_id else ""
        return f"{self.kind.value.replace('_', ' ')}{which}: {self.action.value}"

    def __str__(self) -> str:
        return f"message {self.index}: {self.what}"


@dataclass(frozen=True, slots=True)
class Repaired:
    """A conversation after repair."""

    messages: list[Message]
    origins: list[int | None]
    """Where each message stood in the input; None for one that repair had to add."""
    repairs: tuple[Repair, ...]


def repair(messages: Sequence[Message], *, provider: Provider = "openai", keep_open: bool = False) -> Repaired:
    """The conversation with orphan, dangling, duplicate and interleaved calls and results put right.

    With `keep_open` the conversation is taken to be still going on: calls of the last exchange that wait for their
    results are left waiting, and a result that came before its call is an orphan. Input that needs no repair comes back
    as the same messages; repairing twice changes nothing more.

    Raises:
        InvalidMessage: something in the list does not have the shape of a message.
    """
    for index, message in enumerate(messages):
        require_message(message, index)
    return _Mending(messages, provider, keep_open).run()


class _Mending:
    def __init__(self, messages: Sequence[Message], provider: Provider, keep_open: bool) -> None:
        self.messages = messages
        self.rejected = rejected_by(provider)
        self.seen: Survey = survey(messages, so_far=keep_open)
        self.waiting = _last_exchange(messages) if keep_open else -1
        self.taken: set[str] = set()
        self.everyone = {call_id for message in messages for call_id in call_ids(message)}
        self.out: list[Message] = []
        self.origins: list[int | None] = []
        self.repairs: list[Repair] = []

    def run(self) -> Repaired:
        self._report_findings()
        for index, message in enumerate(self.messages):
            role = role_of(message)
            if index in self.seen.results:
                self._exchange(index, message)
            elif role in ROLES and role not in RESULT_ROLES:
                self._put(self._without_calls(message), index)
        self._start_with_user()
        return Repaired(self.out, self.origins, tuple(self.repairs))

    def _report_findings(self) -> None:
        actions = {
            FindingKind.ORPHAN_RESULT: RepairAction.DROPPED,
            FindingKind.DUPLICATE_RESULT: RepairAction.DROPPED,
            FindingKind.UNKNOWN_ROLE: RepairAction.DROPPED,
            FindingKind.INTERLEAVED: RepairAction.MOVED,
            FindingKind.MISPLACED_CALLS: RepairAction.STRIPPED,
        }
        for finding in self.seen.findings:
            if action := actions.get(finding.kind):
                self.repairs.append(Repair(finding.kind, action, finding.index, finding.call_id))

    def _exchange(self, index: int, message: Message) -> None:
        old, new = call_ids(message), self._new_ids(index, call_ids(message))
        self._put(self._wrapped(index, _with_ids(message, old, new)), index)
        unanswered = list(zip(old, new, strict=True))
        for place in self.seen.results[index]:
            result = self.messages[place]
            pair = next(pair for pair in unanswered if pair[0] == result_id(result))
            unanswered.remove(pair)
            self._put(result if pair[0] == pair[1] else {**result, "tool_call_id": pair[1]}, place)
        if index != self.waiting:
            for _, call_id in unanswered:
                self._put(no_result(call_id), None)
                self.repairs.append(Repair(FindingKind.DANGLING_CALL, RepairAction.ANSWERED, index, call_id))

    def _new_ids(self, index: int, ids: list[str]) -> list[str]:
        """The ids of one message's calls, each made unique where this provider needs it."""
        new: list[str] = []
        for position, call_id in enumerate(ids):
            if call_id == NO_ID:
                kind, fresh = FindingKind.MISSING_ID, self._fresh(f"call_{index}_{position}")
            elif call_id in new:
                kind, fresh = FindingKind.DUPLICATE_ID, self._fresh(call_id)
            elif call_id in self.taken and FindingKind.REUSED_ID in self.rejected and not call_id.startswith(BY_NAME):
                kind, fresh = FindingKind.REUSED_ID, self._fresh(call_id)
            else:
                new.append(call_id)
                continue
            self.repairs.append(Repair(kind, RepairAction.RENAMED, index, fresh))
            new.append(fresh)
        self.taken.update(new)
        return new

    def _fresh(self, call_id: str) -> str:
        number, fresh = 2, call_id
        while fresh in self.everyone or fresh in self.taken:
            fresh, number = f"{call_id}_{number}", number + 1
        self.taken.add(fresh)
        return fresh

    def _wrapped(self, index: int, message: Message) -> Message:
        if FindingKind.BAD_ARGUMENTS not in self.rejected or not message.get("tool_calls"):
            return message
        calls = [self._wrapped_call(index, call) for call in message["tool_calls"]]
        return message if all(map(_same, calls, message["tool_calls"])) else {**message, "tool_calls": calls}

    def _wrapped_call(self, index: int, call: Mapping[str, Any]) -> Mapping[str, Any]:
        function = call.get("function")
        if not isinstance(function, Mapping) or is_object(arguments_of(call)):
            return call
        self.repairs.append(Repair(FindingKind.BAD_ARGUMENTS, RepairAction.WRAPPED, index, call.get("id")))
        arguments = json.dumps({"arguments": function["arguments"]}, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": arguments}}

    def _without_calls(self, message: Message) -> Message:
        if role_of(message) == "assistant" or not call_ids(message):
            return message
        left = {key: value for key, value in message.items() if key not in {"tool_calls", "function_call"}}
        return left if left.get("content") is not None else {**left, "content": ""}

    def _start_with_user(self) -> None:
        first = next((place for place, message in enumerate(self.out) if not is_system(message)), None)
        if FindingKind.WRONG_FIRST_ROLE not in self.rejected or first is None or is_user(self.out[first]):
            return
        index = next(origin for origin in self.origins[first:] if origin is not None)
        self.out.insert(first, {"role": "user", "content": NO_START})
        self.origins.insert(first, None)
        self.repairs.append(Repair(FindingKind.WRONG_FIRST_ROLE, RepairAction.PRECEDED, index))

    def _put(self, message: Message, origin: int | None) -> None:
        self.out.append(message)
        self.origins.append(origin)


def _last_exchange(messages: Sequence[Message]) -> int:
    """The assistant message whose results may still be on their way, or -1."""
    for index in range(len(messages) - 1, -1, -1):
        if role_of(messages[index]) not in RESULT_ROLES:
            return index if role_of(messages[index]) == "assistant" else -1
    return -1


def _with_ids(message: Message, old: list[str], new: list[str]) -> Message:
    if old == new:
        return message
    calls = [{**call, "id": call_id} for call, call_id in zip(message["tool_calls"], new, strict=True)]
    return {**message, "tool_calls": calls}


def no_result(call_id: str) -> Message:
    """A result for a call that has none."""
    if call_id.startswith(BY_NAME):
        return {"role": "function", "name": call_id.removeprefix(BY_NAME), "content": NO_RESULT}
    return {"role": "tool", "tool_call_id": call_id, "content": NO_RESULT}


def _same(one: object, other: object) -> bool:
    return one is other


_LEFT_OUT = frozenset({FindingKind.ORPHAN_RESULT, FindingKind.DUPLICATE_RESULT, FindingKind.UNKNOWN_ROLE})
"""Findings that are mended by leaving the message out."""

_AT_THE_END = _LEFT_OUT | {FindingKind.DANGLING_CALL}
"""Findings that are mended without touching what came before."""


class Mended:
    """Repairs a transcript once, and again only when something arrives that changes what came before it."""

    __slots__ = ("_copy", "_findings", "_length", "_pins", "_source", "repairs")

    def __init__(self, source: "Transcript") -> None:
        self._source = source
        self._copy: Transcript | None = None
        self._length = 0
        self._findings = 0
        self._pins: frozenset[int] = frozenset()
        self.repairs: tuple[Repair, ...] = ()

    def current(self) -> "Transcript":
        if self._copy is None or not self._extend(self._copy):
            mended = repair(self._source, keep_open=True)
            self._copy = self._source.derive(mended.messages, mended.origins, in_order=True)
            self.repairs = mended.repairs
        self._length, self._findings, self._pins = len(self._source), len(self._source.findings), self._source.pins
        return self._copy

    def _extend(self, copy: "Transcript") -> bool:
        """Append what is new; False if the copy has to be made anew."""
        source = self._source
        if len(source) == self._length and source.pins == self._pins:
            return True
        news = source.findings[self._findings :]
        if source.pins != self._pins or any(finding.kind not in _AT_THE_END for finding in news):
            return False
        left_out = {finding.index: finding for finding in news if finding.kind in _LEFT_OUT}
        for index in range(self._length, len(source)):
            if not is_result(source[index]):
                self._answer(copy)
            if finding := left_out.get(index):
                self.repairs += (Repair(finding.kind, RepairAction.DROPPED, index, finding.call_id),)
            else:
                copy.append_from(index, source[index])
        return True

    def _answer(self, copy: "Transcript") -> None:
        """Something was said while calls still waited: nobody will answer them now."""
        for call_id in copy.open_calls:
            asking = copy.root_of(copy.exchange_starts[-1])
            assert asking is not None
            copy.append_from(None, no_result(call_id))
            self.repairs += (Repair(FindingKind.DANGLING_CALL, RepairAction.ANSWERED, asking, call_id),)
