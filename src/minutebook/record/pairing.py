"""Pair tool calls with their results.

A result belongs to the calls of the nearest assistant message before it, if only results are between the two. Providers
require this order, so a result is paired with the right call even if an earlier exchange used the same id. The reused id
is reported.

`Pairing` checks messages one by one as they are appended. `call_pairs` pairs the calls and results of a whole
conversation, including results that are out of order.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from minutebook.record.finding import Finding, FindingKind
from minutebook.record.message import (
    FUNCTION_ID_PREFIX,
    MISSING_ID,
    RESULT_ROLES,
    ROLES,
    Message,
    call_ids,
    result_id,
    role_of,
)

NO_FINDINGS: tuple[Finding, ...] = ()


class Pairing:
    """Tracks the open calls of a conversation, one message at a time."""

    __slots__ = ("_unanswered", "_used_ids", "open", "start")

    def __init__(self) -> None:
        self.start = -1
        """Index of the last assistant message with calls; -1 before the first."""
        self.open: dict[str, int] = {}
        """Id of each call of that message that has no result yet → the number of such calls with this id."""
        self._unanswered: dict[str, list[int]] = {}
        """Call id → indexes of earlier assistant messages whose call with this id has no result."""
        self._used_ids: set[str] = set()

    def add(self, index: int, message: Message) -> None:
        """Add the next message."""
        role = role_of(message)
        if role in RESULT_ROLES:
            self._close_call(result_id(message))
        else:
            for call_id, count in self.open.items():
                self._unanswered.setdefault(call_id, []).extend([self.start] * count)
            self.open = {}
            if role == "assistant":
                self._open_calls(index, call_ids(message))

    def problems(self, index: int, message: Message) -> Sequence[Finding]:
        """The problems that `add` would cause: those of the message, and open calls that it leaves without a result."""
        role = role_of(message)
        if role in RESULT_ROLES:
            problems = self._result_problems(index, result_id(message))
            return (
                [*problems, *self._call_problems(index, role, call_ids(message))]
                if "tool_calls" in message
                else problems
            )
        findings: list[Finding] = []
        if self.open:
            findings += [Finding(FindingKind.DANGLING_CALL, self.start, call_id) for call_id in self.open]
        if role not in ROLES:
            findings.append(Finding(FindingKind.UNKNOWN_ROLE, index))
        elif "tool_calls" in message or "function_call" in message:
            findings += self._call_problems(index, role, call_ids(message))
        return findings or NO_FINDINGS

    def call_index(self, result: Message) -> int | None:
        """Index of the assistant message that this result would answer if it came next.

        None if the result is an orphan or a duplicate.
        """
        call_id = result_id(result)
        if call_id in self.open:
            return self.start
        indexes = self._unanswered.get(call_id)
        return indexes[-1] if indexes else None

    def _result_problems(self, index: int, call_id: str) -> Sequence[Finding]:
        if call_id in self.open:
            return NO_FINDINGS if call_id != MISSING_ID else (Finding(FindingKind.MISSING_ID, index),)
        if call_id in self._unanswered:
            kind = FindingKind.INTERLEAVED
        elif call_id in self._used_ids and call_id != MISSING_ID:
            kind = FindingKind.DUPLICATE_RESULT
        else:
            kind = FindingKind.ORPHAN_RESULT
        return (Finding(kind, index, call_id or None),)

    def _call_problems(self, index: int, role: str, ids: list[str]) -> list[Finding]:
        if role != "assistant":
            return [Finding(FindingKind.MISPLACED_CALLS, index)] if ids else []
        findings: list[Finding] = []
        ids_in_message: set[str] = set()
        for call_id in ids:
            if call_id == MISSING_ID:
                findings.append(Finding(FindingKind.MISSING_ID, index))
            elif call_id in ids_in_message:
                findings.append(Finding(FindingKind.DUPLICATE_ID, index, call_id))
            elif call_id in self._used_ids:
                findings.append(Finding(FindingKind.REUSED_ID, index, call_id))
            ids_in_message.add(call_id)
        return findings

    def _open_calls(self, index: int, ids: list[str]) -> None:
        if not ids:
            return
        self.start = index
        for call_id in ids:
            self.open[call_id] = self.open.get(call_id, 0) + 1
        self._used_ids.update(call_id for call_id in ids if not call_id.startswith(FUNCTION_ID_PREFIX))

    def _close_call(self, call_id: str) -> None:
        count = self.open.get(call_id)
        if count is not None:
            if count == 1:
                del self.open[call_id]
            else:
                self.open[call_id] = count - 1
            return
        indexes = self._unanswered.get(call_id)
        if indexes:
            indexes.pop()
            if not indexes:
                del self._unanswered[call_id]


@dataclass(slots=True)
class CallPairs:
    """Which results belong to which calls of a conversation."""

    results: dict[int, list[int]] = field(default_factory=dict)
    """Index of an assistant message with calls → the indexes of their results, ascending."""
    unanswered: dict[int, list[str]] = field(default_factory=dict)
    """Index of an assistant message with calls → the ids of its calls without a result."""
    findings: list[Finding] = field(default_factory=list)
    """The problems of calls, results, ids and roles, for any provider."""


def call_pairs(messages: Sequence[Message], *, in_progress: bool = False) -> CallPairs:
    """Pair every call with its result, also if the result comes late or before its call.

    `in_progress` means that more messages will follow. A result before its call is then an orphan, as it was when it was
    appended.
    """
    pairing, pairs = Pairing(), CallPairs()
    orphans: list[Finding] = []
    for index, message in enumerate(messages):
        if role_of(message) in RESULT_ROLES:
            call_index = pairing.call_index(message)
            if call_index is not None:
                pairs.results[call_index].append(index)
                pairs.unanswered[call_index].remove(result_id(message))
        elif role_of(message) == "assistant" and (ids := call_ids(message)):
            pairs.results[index] = []
            pairs.unanswered[index] = ids
        for finding in pairing.problems(index, message):
            if finding.kind is FindingKind.ORPHAN_RESULT:
                orphans.append(finding)
            elif finding.kind is not FindingKind.DANGLING_CALL:
                pairs.findings.append(finding)
        pairing.add(index, message)
    if in_progress:
        pairs.findings += orphans
    else:
        _pair_early_results(messages, orphans, pairs)
    pairs.findings += [
        Finding(FindingKind.DANGLING_CALL, index, call_id or None)
        for index, ids in pairs.unanswered.items()
        for call_id in ids
    ]
    pairs.findings.sort(key=lambda finding: finding.index)
    return pairs


def _pair_early_results(messages: Sequence[Message], orphans: list[Finding], pairs: CallPairs) -> None:
    """Pair the orphans that have their call later in the conversation, and report those as interleaved."""
    call_indexes: dict[str, list[int]] = {}
    for index, ids in pairs.unanswered.items():
        for call_id in ids:
            call_indexes.setdefault(call_id, []).append(index)
    for orphan in orphans:
        call_id = result_id(messages[orphan.index])
        candidates = () if call_id == MISSING_ID else call_indexes.get(call_id, ())
        call_index = next((index for index in candidates if index > orphan.index), None)
        if call_index is None:
            pairs.findings.append(orphan)
            continue
        call_indexes[call_id].remove(call_index)
        pairs.unanswered[call_index].remove(call_id)
        insort(pairs.results[call_index], orphan.index)
        pairs.findings.append(Finding(FindingKind.INTERLEAVED, orphan.index, call_id))
