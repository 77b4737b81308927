"""The story that a client goes on with, among all that grew from one conversation.

When a client edits an earlier message, what came after stays in the record, and the conversation goes on in a fork. The
client knows one id; which fork it means is seen from what it sends.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from minutebook.errors import ConversationErased, ConversationNotFound
from minutebook.record.exchange import safe_boundaries
from minutebook.record.message import Message
from minutebook.service.ids import new_id
from minutebook.service.reconcile import Reconciled, lead_of, reconciled
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import NewDocument
from minutebook.store.types import Loaded

BRANCH: Final = "branch"
"""The kind of document that names a fork, and the label that names the newest."""
MOST: Final = 50
"""So many forks of one conversation are looked through, the newest first."""


@dataclass(frozen=True, slots=True)
class Story:
    """A conversation or a fork of it, and how what the client sent goes on from there."""

    loaded: Loaded
    told: Reconciled

    @property
    def id(self) -> str:
        return self.loaded.conversation.id


async def loaded_or_none(store: ConversationStore, conversation: str) -> Loaded | None:
    """All of a conversation; None if there is none yet.

    Raises:
        ConversationErased: there was one.
    """
    try:
        return await store.load(conversation)
    except ConversationErased:
        raise
    except ConversationNotFound:
        return None


async def story_of(store: ConversationStore, root: Loaded, sent: Sequence[Message], *, resends_all: bool) -> Story:
    """Where the client's messages belong: the story they continue, or else the one that they share most with."""
    told: list[Story] = []
    async for loaded in _stories(store, root):
        story = Story(loaded, _told(loaded, sent, resends_all=resends_all))
        if story.told.decision != "forked":
            return story
        told.append(story)
    return max(told, key=lambda story: story.told.shared)


async def forked(store: ConversationStore, root: str, story: Story) -> tuple[Loaded, tuple[Message, ...]]:
    """A fork in which the client's story can go on, and what is new in it."""
    messages = story.loaded.messages
    start = story.loaded.start + lead_of(messages)
    at = max(
        (place for place in safe_boundaries(messages) if place <= lead_of(messages) + story.told.shared), default=0
    )
    again = messages[at : lead_of(messages) + story.told.shared]  # of an exchange that cannot be cut
    name = new_id(f"{root[:120]}.branch")
    await store.fork(story.id, name, at=start - lead_of(messages) + at)
    await store.put_document(root, NewDocument(BRANCH, name, {"of": story.id, "at": at}))
    await store.set_labels(root, {BRANCH: name})
    return await store.load(name), (*again, *story.told.new)


async def chosen(store: ConversationStore, root: Loaded, story: Story) -> None:
    """Remember which story the client went on with."""
    current = root.conversation.labels.get(BRANCH, root.conversation.id)
    if story.id != current:
        await store.set_labels(root.conversation.id, {BRANCH: None if story.id == root.conversation.id else story.id})


def _told(loaded: Loaded, sent: Sequence[Message], *, resends_all: bool) -> Reconciled:
    messages = loaded.messages
    return reconciled(sent, messages[lead_of(messages) :], resends_all=resends_all)


async def _stories(store: ConversationStore, root: Loaded) -> AsyncIterator[Loaded]:
    """The one that the client went on with last, then the first, then the others."""
    newest = root.conversation.labels.get(BRANCH)
    if newest is not None and (loaded := await loaded_or_none(store, newest)) is not None:
        yield loaded
    yield root
    page = await store.documents(root.conversation.id, BRANCH, limit=MOST, newest_first=True)
    for document in page.items:
        if document.id != newest and (loaded := await loaded_or_none(store, document.id)) is not None:
            yield loaded
