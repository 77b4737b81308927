"""Which result answers which call, decided as the messages arrive.

A result belongs to the calls of the nearest assistant message before it, as long as nothing but results stands
between them: that is what providers demand, and it is why ids may repeat from one exchange to the next.
"""

from collections.abc import Sequence

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
