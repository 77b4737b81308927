"""A conversation as its client knows it, compared with the stored conversation."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from minutebook.errors import ConversationNotFound
from minutebook.record.finding import errors
from minutebook.record.validation import check
from minutebook.store.base import ConversationStore
from torture.checker import Violations

Message = dict[str, Any]
_PAGE_SIZE = 100


@dataclass
class ClientHistory:
    """The messages that a client has sent and received in one conversation, as chat completions. All are different."""

    name: str
    conversation: str = ""
    """The conversation's id; empty until the client knows it."""
    messages: list[Message] = field(default_factory=list)
    acknowledged: int = 0
    """Number of messages that the client knows to be stored: all up to the last complete answer."""
    is_stored: bool = True
    """Whether the client wants its messages stored. If not, none of them may be in the database."""

    def add(self, *messages: Message) -> None:
        self.messages += messages

    def add_answer(self, answer: Message) -> None:
        """Add a complete answer. It acknowledges all messages up to here, if they are stored."""
        self.messages.append(answer)
        if self.is_stored:
            self.acknowledged = len(self.messages)

    @property
    def keys(self) -> list[str]:
        return [_key(message) for message in self.messages]


async def check_running(store: ConversationStore, history: ClientHistory) -> Violations:
    """Check a conversation while its client runs. The record may have more than the acknowledged messages."""
    count = history.acknowledged  # read first: later messages may be acknowledged after the record is loaded
    conversation, expected = history.conversation, history.keys[:count]
    violations = Violations()
    if not count:
        return violations
    try:
        loaded = await store.load(conversation)
    except ConversationNotFound:
        violations.lost = count
        return violations
    stored = [_key(message) for message in loaded.messages]
    violations.lost = sum((Counter(expected) - Counter(stored)).values())
    violations.duplicates = len(stored) - len(set(stored))
    violations.out_of_order = int(stored[:count] != expected)
    violations.gaps = int(list(loaded.positions) != list(range(len(stored))))
    turns = _complete_turns(loaded.messages[:count])
    violations.partial = len(errors(check(turns))) if turns else 0
    return violations


async def check_finished(store: ConversationStore, history: ClientHistory) -> Violations:
    """Check a conversation whose client has stopped. The record must be exactly the client's messages."""
    violations = await check_running(store, history)
    if history.acknowledged and not violations.lost:
        stored = [_key(message) for message in (await store.load(history.conversation)).messages]
        duplicates = sum((Counter(stored) - Counter(history.keys)).values())
        violations.duplicates = max(violations.duplicates, duplicates)
        violations.out_of_order = int(stored != history.keys)
    return violations


class AbandonedConversations(NamedTuple):
    """Conversations that no client knows, left by requests that a kill has ended."""

    total: int
    mixed: int
    """How many of them are not the start of any client's history."""


async def find_abandoned(store: ConversationStore, histories: Sequence[ClientHistory]) -> AbandonedConversations:
    """Count the conversations that no client knows.

    They may be forks or unanswered questions, but must not mix clients or have messages of a client that stores nothing.
    """
    prefixes = {
        tuple(history.keys[:length])
        for history in histories
        if history.is_stored
        for length in range(len(history.messages) + 1)
    }
    known_ids = {history.conversation for history in histories}
    total = mixed = 0
    cursor = None
    while True:
        page = await store.list(cursor=cursor, limit=_PAGE_SIZE)
        for header in page.items:
            if header.id not in known_ids:
                total += 1
                messages = (await store.load(header.id)).messages
                mixed += tuple(_key(message) for message in messages) not in prefixes
        cursor = page.cursor
        if cursor is None:
            return AbandonedConversations(total, mixed)


def _complete_turns(messages: Sequence[Any]) -> Sequence[Any]:
    """The messages up to the last answer without tool calls: the client may not have sent the results of a call yet."""
    stops = [
        index
        for index, message in enumerate(messages, 1)
        if message["role"] == "assistant" and not message.get("tool_calls")
    ]
    return messages[: stops[-1]] if stops else ()


def _key(message: Any) -> str:
    call_ids = [call["id"] for call in message.get("tool_calls") or ()]
    return json.dumps([message["role"], message.get("content") or None, call_ids, message.get("tool_call_id")])
