"""Which result answers which call, decided as the messages arrive.

A result belongs to the calls of the nearest assistant message before it, as long as nothing but results stands
between them: that is what providers demand, and it is why ids may repeat from one exchange to the next.

Every call of a whole conversation with the results that answer it, wherever those stand.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from minutebook.record.finding import Finding, FindingKind
from minutebook.record.message import BY_NAME, NO_ID, RESULT_ROLES, ROLES, Message, call_ids, result_id, role_of

NOTHING: tuple[Finding, ...] = ()


class Pairing:
    """Follows calls and results through a conversation, one message at a time."""

    __slots__ = ("_late", "_used", "open", "start")

    def __init__(self) -> None:
        self.start = -1
        """The assistant message whose calls are being answered."""
        self.open: dict[str, int] = {}
        """Ids of its calls that still wait for a result, and how many calls wait under each."""
        self._late: dict[str, list[int]] = {}
        self._used: set[str] = set()

    def take(self, index: int, message: Message) -> None:
        """Add the next message."""
        role = role_of(message)
        if role in RESULT_ROLES:
            self._answer(result_id(message))
        else:
            for call_id, waiting in self.open.items():
                self._late.setdefault(call_id, []).extend([self.start] * waiting)
            self.open = {}
            if role == "assistant":
                self._ask(index, call_ids(message))

    def problems(self, index: int, message: Message) -> Sequence[Finding]:
        """What is wrong with the next message or, once it is here, with the calls before it; not yet taken."""
        role = role_of(message)
        if role in RESULT_ROLES:
            return self._result_problems(index, result_id(message))
        found: list[Finding] = []
        if self.open:
            found += [Finding(FindingKind.DANGLING_CALL, self.start, call_id) for call_id in self.open]
        if role not in ROLES:
            found.append(Finding(FindingKind.UNKNOWN_ROLE, index))
        elif "tool_calls" in message or "function_call" in message:
            found += self._call_problems(index, role, call_ids(message))
        return found or NOTHING

    def home(self, message: Message) -> int | None:
        """The assistant message that a result arriving now would answer, or None for an orphan or a duplicate."""
        call_id = result_id(message)
        if call_id in self.open:
            return self.start
        late = self._late.get(call_id)
        return late[-1] if late else None

    def _result_problems(self, index: int, call_id: str) -> Sequence[Finding]:
        if call_id in self.open:
            return NOTHING if call_id != NO_ID else (Finding(FindingKind.MISSING_ID, index),)
        if call_id in self._late:
            kind = FindingKind.INTERLEAVED
        elif call_id in self._used and call_id != NO_ID:
            kind = FindingKind.DUPLICATE_RESULT
        else:
            kind = FindingKind.ORPHAN_RESULT
        return (Finding(kind, index, call_id or None),)

    def _call_problems(self, index: int, role: str, ids: list[str]) -> list[Finding]:
        if role != "assistant":
            return [Finding(FindingKind.MISPLACED_CALLS, index)] if ids else []
        found: list[Finding] = []
        seen: set[str] = set()
        for call_id in ids:
            if call_id == NO_ID:
                found.append(Finding(FindingKind.MISSING_ID, index))
            elif call_id in seen:
                found.append(Finding(FindingKind.DUPLICATE_ID, index, call_id))
            elif call_id in self._used:
                found.append(Finding(FindingKind.REUSED_ID, index, call_id))
            seen.add(call_id)
        return found

    def _ask(self, index: int, ids: list[str]) -> None:
        if not ids:
            return
        self.start = index
        for call_id in ids:
            self.open[call_id] = self.open.get(call_id, 0) + 1
        self._used.update(call_id for call_id in ids if not call_id.startswith(BY_NAME))

    def _answer(self, call_id: str) -> None:
        waiting = self.open.get(call_id)
        if waiting is not None:
            if waiting == 1:
                del self.open[call_id]
            else:
                self.open[call_id] = waiting - 1
            return
        late = self._late.get(call_id)
        if late:
            late.pop()
            if not late:
                del self._late[call_id]


@dataclass(slots=True)
class Survey:
    """What belongs together in a conversation, and what is wrong with it whoever the provider is."""

    results: dict[int, list[int]] = field(default_factory=dict)
    """Assistant message → the results that answer its calls, as they arrived."""
    unanswered: dict[int, list[str]] = field(default_factory=dict)
    """Assistant message → the ids of its calls that nothing answers."""
    findings: list[Finding] = field(default_factory=list)


def survey(messages: Sequence[Message], *, so_far: bool = False) -> Survey:
    """Pair every call with its result; a late result, or one that came before its call, finds its way home.

    With `so_far` the conversation is still going on and is read as it arrived: a result before its call is an orphan.
    """
    pairing, seen = Pairing(), Survey()
    orphans: list[Finding] = []
    for index, message in enumerate(messages):
        if role_of(message) in RESULT_ROLES:
            home = pairing.home(message)
            if home is not None:
                seen.results[home].append(index)
                seen.unanswered[home].remove(result_id(message))
        elif ids := _asked(message):
            seen.results[index] = []
            seen.unanswered[index] = ids
        for finding in pairing.problems(index, message):
            if finding.kind is FindingKind.ORPHAN_RESULT:
                orphans.append(finding)
            elif finding.kind is not FindingKind.DANGLING_CALL:
                seen.findings.append(finding)
        pairing.take(index, message)
    if so_far:
        seen.findings += orphans
    else:
        _bring_home(messages, orphans, seen)
    seen.findings += [
        Finding(FindingKind.DANGLING_CALL, index, call_id or None)
        for index, ids in seen.unanswered.items()
        for call_id in ids
    ]
    seen.findings.sort(key=lambda finding: finding.index)
    return seen


def _asked(message: Message) -> list[str]:
    return call_ids(message) if role_of(message) == "assistant" else []


def _bring_home(messages: Sequence[Message], orphans: list[Finding], seen: Survey) -> None:
    """A result that stands before its call is out of place, not an orphan."""
    waiting: dict[str, list[int]] = {}
    for index, ids in seen.unanswered.items():
        for call_id in ids:
            waiting.setdefault(call_id, []).append(index)
    for orphan in orphans:
        call_id = result_id(messages[orphan.index])
        homes = [home for home in waiting.get(call_id, ()) if home > orphan.index] if call_id != NO_ID else []
        if homes:
            waiting[call_id].remove(homes[0])
            seen.unanswered[homes[0]].remove(call_id)
            insort(seen.results[homes[0]], orphan.index)
            seen.findings.append(Finding(FindingKind.INTERLEAVED, orphan.index, call_id))
        else:
            seen.findings.append(orphan)
