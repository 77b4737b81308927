"""Builds the minutes of the views of one record.

Between two cuts each view is the previous one with messages appended, so its minutes are those of the previous view with a
few parts appended. Only the new messages are examined, and a request costs the same in a short and in a long conversation.
"""

import hashlib
from collections.abc import Iterable, Sequence
from operator import is_
from typing import Any

from minutebook.conversation.minutes import Minutes, Part
from minutebook.history.explanation import changed_messages
from minutebook.history.view import View
from minutebook.record.message import Message, plain_copy
from minutebook.wire.chat import json_bytes


def minutes_of(view: View, sent: View, positions: Sequence[int | None], front: Sequence[Message] = ()) -> Minutes:
    """The minutes of a request. `sent` is the view that was sent: `view`, or all messages if the policy does not prune.

    `positions` maps each index in the view's record to a position in the store. `front` was sent before the other messages.
    """
    record = sent.record
    if sent is not view:
        return _MinutesBuilder().minutes(view, sent, positions, front)
    with record.lock:
        return record.remember(("minutes",), _MinutesBuilder).minutes(view, sent, positions, front)


def messages_digest(messages: Iterable[Message]) -> str:
    """The SHA-256 of the messages as a JSON list, in hexadecimal."""
    return _RunningDigest().with_messages(messages).hexdigest()


class _RunningDigest:
    """The digest of a list that messages are appended to."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256(b"[")
        self._is_empty = True

    def with_messages(self, messages: Iterable[Message]) -> "_RunningDigest":
        for message in messages:
            self._hash.update(b"" if self._is_empty else b",")
            self._hash.update(json_bytes(message if isinstance(message, dict) else plain_copy(message)))
            self._is_empty = False
        return self

    def hexdigest(self) -> str:
        finished = self._hash.copy()
        finished.update(b"]")
        return finished.hexdigest()


class _MinutesBuilder:
    """Keeps the minutes of the last view of a record, and extends them if the next view continues it."""

    def __init__(self) -> None:
        self._reset((), ())

    def _reset(self, positions: Sequence[int | None], front: Sequence[Message]) -> None:
        self._view: View | None = None
        self._positions, self._front = positions, [*front]
        self._length = 0
        """Length of the record when the last minutes were made."""
        self._parts: list[Part] = [dict(message) for message in front]
        self._left_out: list[dict[str, Any]] = []
        self._digest = _RunningDigest().with_messages(front)

    def minutes(self, view: View, sent: View, positions: Sequence[int | None], front: Sequence[Message]) -> Minutes:
        if not self._is_continued_by(view, positions, front):
            self._reset(positions, front)
        start = 0 if self._view is None else len(self._view.curated)
        new = sent.curated[start:]
        for origin, message in zip(sent.curated.origins[start:], new, strict=True):
            self._add_part(sent.record, origin, message)
        for index, status, reason in changed_messages(view.record, view.curated, view.hidden, start=self._length):
            self._add_left_out(positions[index], status.value, reason)
        self._digest.with_messages(new)
        self._view, self._length = view, len(view.record)
        return Minutes(
            [part.copy() for part in self._parts],
            [left_out.copy() for left_out in self._left_out],
            sent.record.tokens,
            view.tokens,
            self._digest.hexdigest(),
        )

    def _is_continued_by(self, view: View, positions: Sequence[int | None], front: Sequence[Message]) -> bool:
        """Whether the view is the last one with messages appended that are new in the record, for the same reasons."""
        last = self._view
        if last is None or positions is not self._positions or list(front) != self._front:
            return False
        before, now = last.curated, view.curated
        return (
            len(before) <= len(now)
            and all(map(is_, before, now))
            and list(before.origins) == list(now.origins[: len(before)])
            and all(origin is None or origin >= self._length for origin in now.origins[len(before) :])
            and len(before.note_chains) == len(now.note_chains)
            and all(map(is_, before.note_chains, now.note_chains))
            and (last.hidden is view.hidden or not (last.hidden or view.hidden))
            and not view.record.repairs
        )

    def _add_part(self, record: Sequence[Message], origin: int | None, message: Message) -> None:
        position = None
        if origin is not None and (record[origin] is message or record[origin] == message):
            position = self._positions[origin]
        last = self._parts[-1] if self._parts else None
        if position is None:
            self._parts.append(dict(message))
        elif isinstance(last, list) and last[1] == position:
            last[1] = position + 1
        else:
            self._parts.append([position, position + 1])

    def _add_left_out(self, position: int | None, status: str, reason: str) -> None:
        if position is None:
            return
        last = self._left_out[-1] if self._left_out else None
        if last and last["stop"] == position and (last["status"], last["reason"]) == (status, reason):
            last["stop"] = position + 1
        else:
            self._left_out.append({"start": position, "stop": position + 1, "status": status, "reason": reason})
