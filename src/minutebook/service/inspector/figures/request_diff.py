"""The differences between two requests: which messages only one of them sends, or in another form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from minutebook.history.names import full_text
from minutebook.record.message import Message
from minutebook.service.inspector.content import ContentBlock, code_block
from minutebook.service.inspector.conversation import InspectedConversation, run_at
from minutebook.service.inspector.heads import MessageHead, head_of
from minutebook.service.inspector.requests import NOT_SENT, InspectedRequest

DiffKind = Literal["equal", "absent", "left", "right", "changed"]
MAX_SPANS: Final = 200
MAX_HEADS: Final = 40
MAX_TEXT: Final = 100_000


class Side(NamedTuple):
    """A request of a conversation. Both sides have the same record."""

    conversation: InspectedConversation
    request: InspectedRequest

    def form(self, position: int) -> Message | None:
        """The form in which the request sends a message; None if it does not."""
        if self.request.base is None or position >= self.request.length:
            return None
        run = run_at(self.request, position)
        if run is None:
            return self.conversation.messages[position]
        part = None if run.status in NOT_SENT else self.conversation.sent_part(self.request, position)
        return None if part is None else part.message

    def tokens(self, start: int, stop: int) -> int:
        """Tokens of messages in the form in which they are sent."""
        return sum(self.conversation.sent_tokens(self.request, position) for position in range(start, stop))

    def edges(self) -> Iterator[int]:
        """The positions at which the form of messages may change."""
        yield self.request.length
        base = self.request.base
        if base is not None:
            yield from base.edges(0, self.request.length)
            for part in base.parts:
                yield from (part.start, part.stop) if part.message is not None else ()

    def added(self) -> dict[int, list[Message]]:
        """Messages that are not in the record, by the position before which they are sent."""
        found: dict[int, list[Message]] = {}
        for part in self.request.base.parts if self.request.base else ():
            if part.is_added and part.message is not None:
                found.setdefault(part.start, []).append(part.message)
        return found


@dataclass(frozen=True, slots=True)
class DiffSpan:
    """Neighbouring messages with the same difference. `left` and `right`: only that request sends them."""

    start: int
    stop: int
    kind: DiffKind
    tokens: int
    """As they are sent; in the record, if neither request sends them."""
    heads: Sequence[tuple[int | None, MessageHead]] = ()
    """Position and head of the messages that only one request sends, at most `MAX_HEADS`."""
    block: ContentBlock | None = None
    """Of a changed message: the lines that differ."""

    @property
    def count(self) -> int:
        return max(1, self.stop - self.start)


def request_differences(left: Side, right: Side) -> list[DiffSpan]:
    """All messages of the record and of the requests, in spans."""
    end = max(left.request.length, right.request.length)
    edges = sorted({edge for side in (left, right) for edge in side.edges() if edge <= end} | {0, end})
    added = left.added(), right.added()
    spans: list[DiffSpan] = []
    sums = left.conversation.series.token_sums
    pending: tuple[int, int, DiffKind] | None = None

    def close() -> None:
        nonlocal pending
        if pending is not None:
            start, stop, kind = pending
            side = right if kind == "right" else left
            heads = _heads(side, start, stop) if kind in {"left", "right"} else ()
            tokens = sums[stop] - sums[start] if kind == "absent" else side.tokens(start, stop)
            spans.append(DiffSpan(start, stop, kind, tokens, heads))
            pending = None

    for start, stop in [*pairwise(edges), (end, end)]:
        for item in _added_spans(added[0].get(start, []), added[1].get(start, []), start, left.conversation):
            close()
            spans.append(item)
        if start == stop:
            continue
        kind = _kind(left.form(start), right.form(start))
        if pending is not None and pending[2] == kind != "changed":
            pending = pending[0], stop, kind
            continue
        close()
        if kind == "changed":
            block = _changes(left.form(start), right.form(start))
            spans.append(DiffSpan(start, stop, kind, right.tokens(start, stop), block=block))
        else:
            pending = start, stop, kind
    close()
    return spans


def _kind(left: Message | None, right: Message | None) -> DiffKind:
    if left is None or right is None:
        return "absent" if left is right else "right" if left is None else "left"
    return "equal" if left is right or left == right else "changed"


def _heads(side: Side, start: int, stop: int) -> list[tuple[int | None, MessageHead]]:
    forms = ((position, side.form(position)) for position in range(start, min(stop, start + MAX_HEADS)))
    return [(position, head_of(form)) for position, form in forms if form is not None]


def _added_spans(
    left: Sequence[Message], right: Sequence[Message], position: int, conversation: InspectedConversation
) -> Iterator[DiffSpan]:
    sides: tuple[tuple[DiffKind, Sequence[Message]], ...] = (
        (("equal", left),) if left == right else (("left", left), ("right", right))
    )
    for kind, messages in sides:
        for message in messages:
            tokens = conversation.record.counter.message(message)
            yield DiffSpan(position, position, kind, tokens, [(None, head_of(message))])


def _changes(left: Message | None, right: Message | None) -> ContentBlock:
    before, after = (full_text(message)[:MAX_TEXT].split("\n") if message else [] for message in (left, right))
    lines = list(unified_diff(before, after, lineterm="", n=2))[2:]
    return code_block("\n".join(lines) or "Only fields other than the text differ.", is_diff=True)
