"""What one request was sent, written down beside the record: which of its messages, which were changed, which left out.

Messages that were sent as they are in the record are named by their positions; only what the record does not hold is
written out. So the minutes of a request are short, and build it again word by word for as long as the record lasts.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

from minutebook.history.curated import Status
from minutebook.history.view import View
from minutebook.record.frozen import thawed
from minutebook.record.message import Message
from minutebook.service.wire import dumped

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
        return {
            "parts": self.parts,
            "left_out": self.left_out,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "sha256": self.sha256,
        }


def minutes_of(view: View, sent: View, positions: Sequence[int | None], front: Sequence[Message] = ()) -> Minutes:
    """The minutes of a request that was sent `sent`: the view, or everything where nothing is pruned.

    `positions` says where each message of the view's record stands in the store's; `front` was sent before the rest.
    """
    record = sent.record
    parts: list[Part] = [thawed(message) for message in front]
    for origin, message in zip(sent.messages.origins, sent.messages, strict=True):
        place = positions[origin] if origin is not None and record[origin] == message else None
        if place is None:
            parts.append(thawed(message))
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
