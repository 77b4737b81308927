"""Folds applied to the contents of a google-adk request.

google-adk decides what an agent sees: it selects branches, quotes the messages of other agents and inserts instructions.
So its contents are left unchanged, and only those that a fold covers are replaced. To find them, each content is matched
with the recorded event that it comes from.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minutebook.errors import MissingExtra
from minutebook.integrations.adk.contents import contents_of, messages_of, signature_of
from minutebook.record.fold import Fold, active_folds
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

try:
    from google.genai import types
except ImportError as error:
    raise MissingExtra("google-adk", "adk") from error


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of a google-adk session and the positions of its messages in the record."""

    conversation: str
    author: str
    signature: str
    positions: range


@dataclass(frozen=True, slots=True)
class RequestContent:
    """A content of a request and the recorded event that it comes from."""

    content: types.Content
    event: RecordedEvent | None = None
    """None for a content that google-adk inserted, and for the text of a fold."""
    exact: bool = False
    """Whether the content equals the recorded messages. It does not if google-adk quotes them as those of another agent."""

    def positions(self, conversation: str) -> range:
        """The positions of its messages in one record, empty if it comes from another record."""
        return self.event.positions if self.event is not None and self.event.conversation == conversation else range(0)


def with_folds(
    contents: Sequence[RequestContent], conversation: str, record: Transcript, folds: Sequence[Fold]
) -> list[RequestContent]:
    """The contents with the folds of one record applied; contents that no fold covers are the same objects."""
    fold_at = {position: fold for fold in active_folds(record, folds) for position in range(fold.start, fold.stop)}
    view: list[RequestContent] = []
    shown_folds: set[str] = set()
    for content in contents:
        positions = content.positions(conversation)
        covering = [fold_at[position] for position in positions if position in fold_at]
        if covering and covering[0].id not in shown_folds:
            shown_folds.add(covering[0].id)
            view += map(RequestContent, contents_of(covering[0].shown))
        if not covering:
            view.append(content)
        elif len(covering) < len(positions):
            uncovered = (record[position] for position in positions if position not in fold_at)
            view += map(RequestContent, contents_of(uncovered))
    return view


def record_as_sent(contents: Sequence[RequestContent], conversation: str, record: Transcript) -> tuple[Transcript, int]:
    """The record with the token counts of its messages in this request, and the tokens of all other contents.

    A message that the agent does not see counts zero tokens. A quoted message counts more than the recorded one.
    """
    token_counts = dict.fromkeys(range(len(record)), 0)
    other_tokens = 0
    for content in contents:
        positions = content.positions(conversation)
        if positions and content.exact:
            token_counts.update((position, record.tokens_of(position)) for position in positions)
        elif positions:
            token_counts[positions.start] = tokens_of(content.content, record.counter)
        else:
            other_tokens += tokens_of(content.content, record.counter)
    if all(tokens == record.tokens_of(position) for position, tokens in token_counts.items()):
        return record, other_tokens
    tokens_by_id = {id(record[position]): tokens for position, tokens in token_counts.items()}
    sent = Transcript(record, counter=RequestCounter(record.counter, tokens_by_id), broken="mark")
    for pin in record.pins:
        sent.pin(pin)
    return sent, other_tokens


class RequestCounter:
    """Counts the messages of one record by their tokens in a request, and all other messages with the inner counter."""

    def __init__(self, counter: TokenCounter, tokens_by_id: Mapping[int, int]) -> None:
        self.name = counter.name
        self.count = counter.count
        self._counter = counter
        self._tokens_by_id = tokens_by_id

    def message(self, message: Message) -> int:
        tokens = self._tokens_by_id.get(id(message))
        return self._counter.message(message) if tokens is None else tokens


def tokens_of(content: types.Content, counter: TokenCounter) -> int:
    return sum(map(counter.message, messages_of(content)))


def with_events(contents: Sequence[types.Content], events: Sequence[RecordedEvent], agent: str) -> list[RequestContent]:
    """The contents of a request to `agent`, each with the event that it comes from.

    A quoted message of another agent equals no event. Such contents between two exact matches are assigned to the events
    between these, in order; if there are more contents than events, google-adk inserted the last of them.
    """
    matches = _exact_matches(contents, events, agent)
    next_match = [len(events)] * (len(matches) + 1)
    for index in reversed(range(len(matches))):
        match = matches[index]
        next_match[index] = next_match[index + 1] if match is None else match
    request: list[RequestContent] = []
    candidate = 0
    for index, (content, match) in enumerate(zip(contents, matches, strict=True)):
        if match is None and candidate >= next_match[index]:
            request.append(RequestContent(content))
            continue
        candidate = candidate if match is None else match
        request.append(RequestContent(content, events[candidate], exact=match is not None))
        candidate += 1
    return request


def _exact_matches(contents: Sequence[types.Content], events: Sequence[RecordedEvent], agent: str) -> list[int | None]:
    """For each content the index of the equal event, or None.

    google-adk sends the events of the user and of the agent itself unchanged. The search starts at the end, because the newest events are always among the contents.
    """
    by_signature: Mapping[str, list[int]] = defaultdict(list)
    for index, event in enumerate(events):
        if event.author in {"user", agent}:
            by_signature[event.signature].append(index)
    matches: list[int | None] = [None] * len(contents)
    limit = len(events)
    for index in reversed(range(len(contents))):
        equal_events = by_signature.get(signature_of(messages_of(contents[index])), [])
        last = bisect_left(equal_events, limit) - 1
        if last >= 0:
            matches[index] = limit = equal_events[last]
    return matches
