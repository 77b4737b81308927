"""Where the messages of a request belong: which conversation, which branch of it, and what of them is new.

A client names its conversation in one of many ways. Never the `user`, a cache key, or what the first message says:
strangers share those, and would share a history.

Clients of chat completions resend everything each time, and not always what we have: their copies lack details, they
edit an earlier message and go on from there, they keep only the end, or they send the last words alone. When a client
edits an earlier message, what came after stays in the record, and the conversation goes on in a fork. The client knows
one id; which fork it means is seen from what it sends.
"""

import re
from collections.abc import AsyncIterator, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from minutebook.conversation.trimming import is_trimmed
from minutebook.errors import ConversationErased, ConversationNotFound, RequestRefused
from minutebook.record.exchange import safe_boundaries
from minutebook.record.message import Message, call_ids, is_system, is_user, lead_of, result_id, role_of, text_of
from minutebook.service.http.responses import new_id
from minutebook.store.base import ConversationStore
from minutebook.store.types import Loaded, NewDocument

_VENDOR: Final = re.compile(r"^x-[a-z0-9-]+-session-id$")
_PLAIN: Final = re.compile(r"^[A-Za-z0-9_-]{8,}$")
_RESEND: Final = frozenset({"x-openwebui-chat-id"})
"""Clients that send their whole history each time, and other jobs under the same id."""
_METADATA: Final = ("conversation_id", "thread_id", "session_id")
LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """A conversation's id, and what is known about whoever gave it."""

    conversation: str
    resends_all: bool = False


def identity_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> Identity | None:
    """The conversation that a request names, in the order in which names are believed; None if it names none.

    Raises:
        RequestRefused: a name that is no name.
    """
    given = body.get("conversation")
    if isinstance(given, Mapping):
        given = given.get("id")
    if given is not None:
        return Identity(_name(given, "conversation"))
    for header in ("x-conversation-id", "x-openwebui-chat-id", "x-litellm-session-id"):
        if header in headers:
            return Identity(_name(headers[header], header), header in _RESEND)
    for header, value in headers.items():
        if _VENDOR.match(header) and _PLAIN.match(value):
            return Identity(_name(value, header))
    if "codex" in headers.get("user-agent", "").lower():
        for header in ("thread-id", "session-id"):
            if header in headers:
                return Identity(_name(headers[header], header))
    if "x-session-id" in headers:
        return Identity(_name(headers["x-session-id"], "x-session-id"))
    metadata = body.get("metadata")
    for key in _METADATA if isinstance(metadata, Mapping) else ():
        if metadata is not None and isinstance(metadata.get(key), str):
            return Identity(_name(metadata[key], f"metadata.{key}"))
    return None


def _name(value: object, where: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST or not value.isprintable():
        said = f"{where} must be 1 to {LONGEST} printable characters."
        raise RequestRefused(400, said, "invalid_conversation_id", where)
    return value


Decision = Literal["appended", "forked", "partial", "auxiliary", "replayed", "bypassed"]
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What to do with what a client sent."""

    decision: Decision
    shared: int
    """How many messages of the record, after its leading system messages, the client's story has in common with it."""
    new: tuple[Message, ...]
    """What is to be appended."""


def fingerprint(message: Message, trimmed: Collection[str] = ()) -> Hashable:
    """What makes two copies of a message the same: who speaks, the words, the calls. Not how they are spelled in JSON.

    Of the results in `trimmed` the record no longer has the words, so the id of the call is all that can be compared.
    """
    role = "system" if is_system(message) else role_of(message)
    answers = result_id(message) if role == "tool" else ""
    text = "" if answers in trimmed else _SPACE.sub(" ", text_of(message)).strip()
    return role, text, tuple(call_ids(message)), answers


def reconciled(sent: Sequence[Message], record: Sequence[Message], *, resends_all: bool = False) -> Reconciled:
    """How a client's messages continue a record. Neither holds its leading system messages.

    `resends_all` says that this client never sends the last words alone, so that words which share nothing with the
    record are not part of the conversation but a job beside it, such as finding a title.
    """
    trimmed = {result_id(message) for message in record if is_trimmed(message)}
    ours = [fingerprint(message, trimmed) for message in record]
    theirs = [fingerprint(message, trimmed) for message in sent]
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    if shared == len(ours):
        return Reconciled("appended", shared, tuple(sent[shared:]))
    if shared:
        return Reconciled("forked", shared, tuple(sent[shared:]))
    overlap = _overlap(ours, theirs)
    if overlap:
        return Reconciled("partial", len(ours), tuple(sent[overlap:]))
    if _only_the_end(sent):
        return Reconciled("auxiliary" if resends_all else "partial", len(ours), tuple(sent))
    return Reconciled("forked", 0, tuple(sent))


def _overlap(ours: list[Hashable], theirs: list[Hashable]) -> int:
    """How many of the client's first messages are the last ones of the record: it keeps only the end of it."""
    for start in range(max(1, len(ours) - len(theirs)), len(ours)):
        if ours[start] == theirs[0] and ours[start:] == theirs[: len(ours) - start]:
            return len(ours) - start
    return 0


def _only_the_end(sent: Sequence[Message]) -> bool:
    """Whether these can be the last words alone: results of calls, or one thing that the user says."""
    return all(role_of(message) == "tool" for message in sent) or (len(sent) == 1 and is_user(sent[0]))


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
