"""A conversation as its client knows it, beside what the store has of it."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from minutebook.errors import ConversationNotFound
from minutebook.record.finding import errors
from minutebook.record.validation import check
from minutebook.store.base import ConversationStore
from torture.ledger import Found

Message = dict[str, Any]
_PAGE = 100


@dataclass
class Story:
    """What a client said and heard in one conversation, in the words of chat completions. Nothing in it comes twice."""

    name: str
    conversation: str = ""
    """Its id; nothing until somebody is told it."""
    told: list[Message] = field(default_factory=list)
    acknowledged: int = 0
    """How many of them the client knows to be kept: all up to the last answer that it heard to its end."""

    def say(self, *messages: Message) -> None:
        self.told += messages

    def hear(self, *messages: Message) -> None:
        """The end of an answer: everything up to here is acknowledged."""
        self.told += messages
        self.acknowledged = len(self.told)

    @property
    def keys(self) -> list[str]:
        return [_key(message) for message in self.told]


async def found_now(store: ConversationStore, story: Story) -> Found:
    """What is wrong in the middle of it. The record may have more than was acknowledged, and never less."""
    known = story.acknowledged  # first: what is acknowledged later may come after what we read
    conversation, wanted = story.conversation, story.keys[:known]
    found = Found()
    if not known:
        return found
    try:
        loaded = await store.load(conversation)
    except ConversationNotFound:
        found.lost = known
        return found
    kept = [_key(message) for message in loaded.messages]
    found.lost = sum((Counter(wanted) - Counter(kept)).values())
    found.doubled = len(kept) - len(set(kept))
    found.disordered = int(kept[:known] != wanted)
    found.gaps = int(list(loaded.positions) != list(range(len(kept))))
    whole = _whole_turns(loaded.messages[:known])
    found.halves = len(errors(check(whole))) if whole else 0
    return found


async def found_at_the_end(store: ConversationStore, story: Story) -> Found:
    """What is wrong when all is said: the record must be what the client said and heard, no more and no less."""
    found = await found_now(store, story)
    if story.acknowledged and not found.lost:
        kept = [_key(message) for message in (await store.load(story.conversation)).messages]
        found.doubled = max(found.doubled, sum((Counter(kept) - Counter(story.keys)).values()))
        found.disordered = int(kept != story.keys)
    return found


async def strays(store: ConversationStore, stories: Sequence[Story]) -> tuple[int, int]:
    """How many conversations nobody was told of, and how many of those are no beginning of what somebody said.

    A try that died may leave a fork, or a question to which nobody will come back. What it may not do is to mix stories.
    """
    beginnings = {tuple(story.keys[:length]) for story in stories for length in range(len(story.told) + 1)}
    named = {story.conversation for story in stories}
    unnamed = mixed = 0
    cursor = None
    while True:
        page = await store.list(cursor=cursor, limit=_PAGE)
        for conversation in page.items:
            if conversation.id not in named:
                unnamed += 1
                messages = (await store.load(conversation.id)).messages
                mixed += tuple(_key(message) for message in messages) not in beginnings
        cursor = page.cursor
        if cursor is None:
            return unnamed, mixed


def _whole_turns(messages: Sequence[Any]) -> Sequence[Any]:
    """The messages up to the last answer that asks for nothing: a call may still wait for its client."""
    ends = [at for at, each in enumerate(messages) if each["role"] == "assistant" and not each.get("tool_calls")]
    return messages[: ends[-1] + 1] if ends else ()


def _key(message: Any) -> str:
    calls = [each["id"] for each in message.get("tool_calls") or ()]
    return json.dumps([message["role"], message.get("content") or None, calls, message.get("tool_call_id")])
