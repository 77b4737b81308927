"""Repair conversations that a provider would reject.

As much as possible is preserved: a late result is moved to its call, an unanswered call gets a placeholder result, a
missing or duplicate id is replaced, and a message whose content or names the provider rejects is changed. Only orphan
results, duplicate results and messages with an unknown role are dropped.

`RepairedCopy` is the repaired form of a transcript. It is extended as the transcript grows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from minutebook.errors import require_type
from minutebook.record.finding import SHAPE_KINDS, FindingKind
from minutebook.record.message import (
    FUNCTION_ID_PREFIX,
    MISSING_ID,
    RESULT_ROLES,
    ROLES,
    Message,
    Provider,
    call_ids,
    is_result,
    is_user,
    leading_system_count,
    require_message,
    result_id,
    role_of,
)
from minutebook.record.pairing import call_pairs
from minutebook.record.parts import with_known_parts
from minutebook.record.shapes import shape_problems, with_valid_names, with_valid_shape
from minutebook.record.validation import arguments_of, is_json_object, rejected_kinds

if TYPE_CHECKING:
    from minutebook.record.transcript import Transcript


NO_RESULT: Final = "[no result was recorded for this call]"
MISSING_USER_MESSAGE: Final = "[the conversation begins with the assistant]"


class RepairAction(StrEnum):
    """How a finding was repaired."""

    DROPPED = "dropped"
    ANSWERED = "answered"
    """The call got a placeholder result."""
    MOVED = "moved"
    """The result was moved to its call."""
    RENAMED = "renamed"
    """A call got a new id, or a tool or author a new name."""
    STRIPPED = "stripped"
    """Tool calls were removed from a message that is not the assistant's."""
    WRAPPED = "wrapped"
    """The arguments of a call were put into a JSON object."""
    PRECEDED = "preceded"
    """A user message was added before the message."""
    REPLACED = "replaced"
    """Content, calls or texts of the message were replaced by valid ones."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair of the message at `index` of the input."""

    kind: FindingKind
    action: RepairAction
    index: int
    call_id: str | None = None

    @property
    def what(self) -> str:
        """The problem and the action, without the index: `orphan result ('a'): dropped`."""
        call = f" ({self.call_id!r})" if self.call_id else ""
        return f"{self.kind.value.replace('_', ' ')}{call}: {self.action.value}"

    def __str__(self) -> str:
        return f"message {self.index}: {self.what}"


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repaired conversation."""

    messages: list[Message]
    origins: list[int | None]
    """Index of each message in the input; None for a message that the repair added."""
    repairs: tuple[Repair, ...]


def repair(
    messages: Sequence[Message], *, provider: Provider = "openai", keep_open: bool = False, keep_parts: bool = False
) -> Repaired:
    """Repair everything in the messages that the provider would reject.

    Messages that need no repair are returned as the same objects. Repairing the result again changes nothing. Use
    `keep_open` if more messages will follow: open calls at the end then get no placeholder results, and a result before
    its call is an orphan. With `keep_parts`, parts of content that the provider may not support stay as they are.

    Raises:
        InvalidMessage: an item of the list is not a message.
        InvalidSetting: the provider is unknown.
    """
    rejected_kinds(provider)  # raises if the provider is unknown
    require_type("messages", messages, Sequence, "a list of messages")
    for index, message in enumerate(messages):
        require_message(message, index)
    return _Repairer(messages, provider, keep_open, keep_parts=keep_parts).run()


def repair_view(view: Sequence[Message], provider: Provider, *, keep_parts: bool) -> Repaired:
    """Repair a view of a transcript: a result before its call is an orphan, as it is in the transcript."""
    return _Repairer(view, provider, keep_open=False, keep_parts=keep_parts, drops_early_results=True).run()


class _Repairer:
    def __init__(
        self,
        messages: Sequence[Message],
        provider: Provider | None,
        keep_open: bool,
        *,
        keep_parts: bool = False,
        drops_early_results: bool = False,
    ) -> None:
        """With None as the provider, OpenAI's rules apply, and names and parts are not repaired."""
        self.source = messages
        self.provider = provider
        self.keep_parts = keep_parts
        self.rejected = rejected_kinds(provider or "openai")
        self.pairs = call_pairs(messages, in_progress=keep_open or drops_early_results)
        self.open_exchange_start = _last_exchange_start(messages) if keep_open else -1
        self.source_ids = {call_id for message in messages for call_id in call_ids(message)}
        self.output_ids: set[str] = set()
        self.output: list[Message] = []
        self.origins: list[int | None] = []
        self.repairs: list[Repair] = []

    def run(self) -> Repaired:
        self._report_dropped_and_moved()
        for index, message in enumerate(self.source):
            role = role_of(message)
            if index in self.pairs.results:
                self._append_exchange(index, message)
            elif role in ROLES and role not in RESULT_ROLES:
                self._append(message, index)
        self._ensure_user_first()
        return Repaired(self.output, self.origins, tuple(self.repairs))

    def _report_dropped_and_moved(self) -> None:
        actions = {
            FindingKind.ORPHAN_RESULT: RepairAction.DROPPED,
            FindingKind.DUPLICATE_RESULT: RepairAction.DROPPED,
            FindingKind.UNKNOWN_ROLE: RepairAction.DROPPED,
            FindingKind.INTERLEAVED: RepairAction.MOVED,
            FindingKind.MISPLACED_CALLS: RepairAction.STRIPPED,
        }
        for finding in self.pairs.findings:
            if action := actions.get(finding.kind):
                self.repairs.append(Repair(finding.kind, action, finding.index, finding.call_id))

    def _append_exchange(self, index: int, message: Message) -> None:
        old_ids = call_ids(message)
        new_ids = self._assign_ids(index, old_ids)
        message = _with_ids(message, old_ids, new_ids)
        self._append(self._wrap_arguments(index, message), index)
        unanswered = list(zip(old_ids, new_ids, strict=True))
        for result_index in self.pairs.results[index]:
            result = self.source[result_index]
            old_id, new_id = next(ids for ids in unanswered if ids[0] == result_id(result))
            unanswered.remove((old_id, new_id))
            self._append(result if old_id == new_id else {**result, "tool_call_id": new_id}, result_index)
        if index != self.open_exchange_start:
            for _, call_id in unanswered:
                self._append(placeholder_result(call_id), None)
                self.repairs.append(Repair(FindingKind.DANGLING_CALL, RepairAction.ANSWERED, index, call_id))

    def _assign_ids(self, index: int, ids: list[str]) -> list[str]:
        """Return the ids of one message's calls. Missing, duplicate and (if rejected) reused ids are replaced."""
        new_ids: list[str] = []
        for call_number, call_id in enumerate(ids):
            if call_id == MISSING_ID:
                kind, new_id = FindingKind.MISSING_ID, self._unused_id(f"call_{index}_{call_number}")
            elif call_id in new_ids:
                kind, new_id = FindingKind.DUPLICATE_ID, self._unused_id(call_id)
            elif (
                call_id in self.output_ids
                and FindingKind.REUSED_ID in self.rejected
                and not call_id.startswith(FUNCTION_ID_PREFIX)
            ):
                kind, new_id = FindingKind.REUSED_ID, self._unused_id(call_id)
            else:
                new_ids.append(call_id)
                continue
            self.repairs.append(Repair(kind, RepairAction.RENAMED, index, new_id))
            new_ids.append(new_id)
        self.output_ids.update(new_ids)
        return new_ids

    def _unused_id(self, call_id: str) -> str:
        number, unused_id = 2, call_id
        while unused_id in self.source_ids or unused_id in self.output_ids:
            unused_id, number = f"{call_id}_{number}", number + 1
        self.output_ids.add(unused_id)
        return unused_id

    def _wrap_arguments(self, index: int, message: Message) -> Message:
        """Put arguments that are not a JSON object into one, if the provider requires an object."""
        if FindingKind.BAD_ARGUMENTS not in self.rejected or not message.get("tool_calls"):
            return message
        calls = [self._wrap_call_arguments(index, call) for call in message["tool_calls"]]
        return message if all(map(is_, calls, message["tool_calls"])) else {**message, "tool_calls": calls}

    def _wrap_call_arguments(self, index: int, call: Mapping[str, Any]) -> Mapping[str, Any]:
        function = call.get("function")
        if not isinstance(function, Mapping) or is_json_object(arguments_of(call)):
            return call
        self.repairs.append(Repair(FindingKind.BAD_ARGUMENTS, RepairAction.WRAPPED, index, call.get("id")))
        arguments = json.dumps({"arguments": function["arguments"]}, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": arguments}}

    def _ensure_user_first(self) -> None:
        start = leading_system_count(self.output)
        if (
            FindingKind.WRONG_FIRST_ROLE not in self.rejected
            or start == len(self.output)
            or is_user(self.output[start])
        ):
            return
        source_index = next(origin for origin in self.origins[start:] if origin is not None)
        self.output.insert(start, {"role": "user", "content": MISSING_USER_MESSAGE})
        self.origins.insert(start, None)
        self.repairs.append(Repair(FindingKind.WRONG_FIRST_ROLE, RepairAction.PRECEDED, source_index))

    def _append(self, message: Message, origin: int | None) -> None:
        if origin is not None:
            message = self._repair_message(_without_misplaced_calls(message), origin)
        self.output.append(message)
        self.origins.append(origin)

    def _repair_message(self, message: Message, index: int) -> Message:
        """Return the message with valid content, calls, texts, names and parts, and report each repair."""
        if kinds := shape_problems(message):
            self.repairs += [Repair(kind, RepairAction.REPLACED, index) for kind in kinds]
            message = with_valid_shape(message)
        if self.provider is None:
            return message
        renamed = with_valid_names(message, self.provider)
        if renamed is not message:
            self.repairs.append(Repair(FindingKind.BAD_NAME, RepairAction.RENAMED, index))
        readable = renamed if self.keep_parts else with_known_parts(renamed, self.provider)
        if readable is not renamed:
            self.repairs.append(Repair(FindingKind.BAD_PART, RepairAction.REPLACED, index))
        return readable


def _last_exchange_start(messages: Sequence[Message]) -> int:
    """Index of the assistant message that starts the last exchange; -1 if the last exchange has no assistant message."""
    for index in range(len(messages) - 1, -1, -1):
        if role_of(messages[index]) not in RESULT_ROLES:
            return index if role_of(messages[index]) == "assistant" else -1
    return -1


def _with_ids(message: Message, old_ids: list[str], new_ids: list[str]) -> Message:
    if old_ids == new_ids:
        return message
    calls = [{**call, "id": call_id} for call, call_id in zip(message["tool_calls"], new_ids, strict=True)]
    return {**message, "tool_calls": calls}


def _without_misplaced_calls(message: Message) -> Message:
    if role_of(message) == "assistant" or not call_ids(message):
        return message
    stripped = {key: value for key, value in message.items() if key not in {"tool_calls", "function_call"}}
    return stripped if stripped.get("content") is not None else {**stripped, "content": ""}


def placeholder_result(call_id: str) -> Message:
    """A result for a call without one. Its text says that no result was recorded."""
    if call_id.startswith(FUNCTION_ID_PREFIX):
        return {"role": "function", "name": call_id.removeprefix(FUNCTION_ID_PREFIX), "content": NO_RESULT}
    return {"role": "tool", "tool_call_id": call_id, "content": NO_RESULT}


_DROPPED_KINDS = frozenset({FindingKind.ORPHAN_RESULT, FindingKind.DUPLICATE_RESULT, FindingKind.UNKNOWN_ROLE})
"""Findings that are repaired by dropping the message."""

_APPEND_ONLY_KINDS = _DROPPED_KINDS | SHAPE_KINDS | {FindingKind.DANGLING_CALL}
"""Findings of a new message that are repaired without changing earlier messages of the copy."""


class RepairedCopy:
    """The repaired copy of a transcript.

    New messages are appended to the copy. It is rebuilt if the repair of a new message changes earlier ones, or if the
    pins have changed.
    """

    __slots__ = ("_copy", "_findings_seen", "_messages_seen", "_pins", "_source", "repairs")

    def __init__(self, source: "Transcript") -> None:
        self._source = source
        self._copy: Transcript | None = None
        self._messages_seen = 0
        self._findings_seen = 0
        self._pins: frozenset[int] = frozenset()
        self.repairs: tuple[Repair, ...] = ()

    def current(self) -> "Transcript":
        """The copy of all messages that the transcript has now."""
        if self._copy is None or not self._extend(self._copy):
            repaired = _Repairer(self._source, None, keep_open=True).run()
            self._copy = self._source.derive(repaired.messages, repaired.origins, skip_checks=True)
            self.repairs = repaired.repairs
        self._messages_seen, self._pins = len(self._source), self._source.pins
        self._findings_seen = len(self._source.findings)
        return self._copy

    def _extend(self, copy: "Transcript") -> bool:
        """Append the new messages. Return False, with the copy unchanged, if it must be rebuilt."""
        source = self._source
        if len(source) == self._messages_seen and source.pins == self._pins:
            return True
        new_findings = source.findings[self._findings_seen :]
        if source.pins != self._pins or any(finding.kind not in _APPEND_ONLY_KINDS for finding in new_findings):
            return False
        dropped = {finding.index: finding for finding in new_findings if finding.kind in _DROPPED_KINDS}
        with_shape_problems = {finding.index for finding in new_findings if finding.kind in SHAPE_KINDS}
        for index in range(self._messages_seen, len(source)):
            if not is_result(source[index]):  # the message ends the exchange
                self._answer_open_calls(copy)
            if finding := dropped.get(index):
                self.repairs += (Repair(finding.kind, RepairAction.DROPPED, index, finding.call_id),)
            elif index in with_shape_problems:
                self.repairs += tuple(
                    Repair(kind, RepairAction.REPLACED, index) for kind in shape_problems(source[index])
                )
                copy.append_from(index, with_valid_shape(source[index]))
            else:
                copy.append_from(index, source[index])
        return True

    def _answer_open_calls(self, copy: "Transcript") -> None:
        """Append a placeholder result for each open call of the copy's last exchange."""
        for call_id in copy.open_calls:
            call_index = copy.origin_of(copy.exchange_starts[-1])
            assert call_index is not None
            copy.append_from(None, placeholder_result(call_id))
            self.repairs += (Repair(FindingKind.DANGLING_CALL, RepairAction.ANSWERED, call_index, call_id),)
