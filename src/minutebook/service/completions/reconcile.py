"""Finds the conversation of a request, the branch of it that the request continues, and the messages that are new.

A client can name its conversation in several ways. The field `user`, a cache key or the text of the first message
do not identify a conversation, because unrelated clients can send the same values.

Clients of chat completions resend their history with each request, and it may differ from the record: details are
missing, an earlier message was edited, only the last messages are sent, or only the new one. When an earlier message was
edited, the record keeps the messages after it, and the conversation continues in a fork. The client knows only the id of
the first conversation, so the fork is found by comparing messages.
"""

import re
from collections.abc import AsyncIterator, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from minutebook.conversation.trimming import is_trimmed
from minutebook.errors import ConversationErased, ConversationNotFound, RequestRefused
from minutebook.record.exchange import safe_boundaries
from minutebook.record.message import (
    Message,
    call_ids,
    is_system,
    is_user,
    leading_system_count,
    result_id,
    role_of,
    text_of,
)
from minutebook.service.http.responses import new_id
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation, NewDocument

_VENDOR_HEADER: Final = re.compile(r"^x-[a-z0-9-]+-session-id$")
_VENDOR_ID: Final = re.compile(r"^[A-Za-z0-9_-]{8,}$")
_RESENDING_HEADERS: Final = frozenset({"x-openwebui-chat-id"})
"""Headers of clients that always send their whole history, and send auxiliary requests with the same id."""
_METADATA_KEYS: Final = ("conversation_id", "thread_id", "session_id")
MAX_ID_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """The conversation that a request names."""

    conversation: str
    resends_all: bool = False
    """The client always sends its whole history."""


def identity_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> Identity | None:
    """The conversation that a request names; None if it names none. The most specific name wins.

    Raises:
        RequestRefused: the id is too long or not printable.
    """
    conversation = body.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = conversation.get("id")
    if conversation is not None:
        return Identity(_valid_id(conversation, "conversation"))
    for header in ("x-conversation-id", "x-openwebui-chat-id", "x-litellm-session-id"):
        if header in headers:
            return Identity(_valid_id(headers[header], header), header in _RESENDING_HEADERS)
    for header, value in headers.items():
        if _VENDOR_HEADER.match(header) and _VENDOR_ID.match(value):
            return Identity(_valid_id(value, header))
    if "codex" in headers.get("user-agent", "").lower():
        for header in ("thread-id", "session-id"):
            if header in headers:
                return Identity(_valid_id(headers[header], header))
    if "x-session-id" in headers:
        return Identity(_valid_id(headers["x-session-id"], "x-session-id"))
    metadata = body.get("metadata")
    for key in _METADATA_KEYS if isinstance(metadata, Mapping) else ():
        if metadata is not None and isinstance(metadata.get(key), str):
            return Identity(_valid_id(metadata[key], f"metadata.{key}"))
    return None


def _valid_id(value: object, param: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARACTERS or not value.isprintable():
        problem = f"{param} must be 1 to {MAX_ID_CHARACTERS} printable characters."
        raise RequestRefused(400, problem, "invalid_conversation_id", param)
    return value


Decision = Literal["appended", "forked", "partial", "auxiliary", "replayed", "bypassed"]
"""Values of the header `X-History-Reconcile`."""
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class HistoryMatch:
    """How the messages of a request continue a record."""

    decision: Decision
    shared: int
    """Number of messages that both begin with if the decision is `appended` or `forked`, else the length of the record.
    Leading system messages are not counted."""
    new_messages: tuple[Message, ...]
    """The messages to append."""


def fingerprint(message: Message, trimmed: Collection[str] = ()) -> Hashable:
    """A key that is equal for two copies of a message: its role, its text and the ids of its calls, but not the JSON form.

    `trimmed` are the ids of calls whose results the record no longer has in full: their text is not part of the key.
    """
    role = "system" if is_system(message) else role_of(message)
    call_id = result_id(message) if role == "tool" else ""
    text = "" if call_id in trimmed else _SPACE.sub(" ", text_of(message)).strip()
    return role, text, tuple(call_ids(message)), call_id


def match_history(sent: Sequence[Message], record: Sequence[Message], *, resends_all: bool = False) -> HistoryMatch:
    """How the sent messages continue a record, both without their leading system messages.

    With `resends_all` the client never sends the newest message alone, so a message that is not in the record is an
    auxiliary request, such as one for a title.
    """
    trimmed = {result_id(message) for message in record if is_trimmed(message)}
    recorded = [fingerprint(message, trimmed) for message in record]
    received = [fingerprint(message, trimmed) for message in sent]
    shared = 0
    while shared < min(len(recorded), len(received)) and recorded[shared] == received[shared]:
        shared += 1
    if shared == len(recorded):
        return HistoryMatch("appended", shared, tuple(sent[shared:]))
    if shared:
        return HistoryMatch("forked", shared, tuple(sent[shared:]))
    overlap = _overlap(recorded, received)
    if overlap:
        return HistoryMatch("partial", len(recorded), tuple(sent[overlap:]))
    if _may_be_only_new_messages(sent):
        return HistoryMatch("auxiliary" if resends_all else "partial", len(recorded), tuple(sent))
    return HistoryMatch("forked", 0, tuple(sent))


def _overlap(recorded: list[Hashable], received: list[Hashable]) -> int:
    """The number of messages with which the record ends and the request begins."""
    for start in range(max(1, len(recorded) - len(received)), len(recorded)):
        if recorded[start] == received[0] and recorded[start:] == received[: len(recorded) - start]:
            return len(recorded) - start
    return 0


def _may_be_only_new_messages(sent: Sequence[Message]) -> bool:
    """Whether the client may have sent only new messages: tool results, or one user message."""
    return all(role_of(message) == "tool" for message in sent) or (len(sent) == 1 and is_user(sent[0]))


BRANCH: Final = "branch"
"""Kind of the document that lists a fork, and key of the label with the current branch."""
MAX_BRANCHES: Final = 50
"""Maximum number of forks that are compared with a request, newest first."""


@dataclass(frozen=True, slots=True)
class HistoryBranch:
    """A conversation or a fork of it, and how the messages of a request continue it."""

    id: str
    loaded: LoadedConversation | None
    """None if the conversation does not exist yet."""
    match: HistoryMatch


async def load_or_none(store: ConversationStore, conversation: str) -> LoadedConversation | None:
    """Load a conversation in full; None if it does not exist.

    Raises:
        ConversationErased: it was erased.
    """
    try:
        return await store.load(conversation)
    except ConversationErased:
        raise
    except ConversationNotFound:
        return None


async def find_branch(
    store: ConversationStore, root: LoadedConversation, sent: Sequence[Message], *, resends_all: bool
) -> HistoryBranch:
    """The branch that the sent messages continue, else the one with the most messages in common."""
    candidates: list[HistoryBranch] = []
    async for loaded in _branches(store, root):
        record = loaded.messages[leading_system_count(loaded.messages) :]
        match = match_history(sent, record, resends_all=resends_all)
        branch = HistoryBranch(loaded.conversation.id, loaded, match)
        if match.decision != "forked":
            return branch
        candidates.append(branch)
    return max(candidates, key=lambda branch: branch.match.shared)


async def _branches(store: ConversationStore, root: LoadedConversation) -> AsyncIterator[LoadedConversation]:
    """The current branch, then the root, then the other forks."""
    current_id = root.conversation.labels.get(BRANCH)
    if current_id is not None and (loaded := await load_or_none(store, current_id)) is not None:
        yield loaded
    yield root
    page = await store.documents(root.conversation.id, BRANCH, limit=MAX_BRANCHES, newest_first=True)
    for document in page.items:
        if document.id != current_id and (loaded := await load_or_none(store, document.id)) is not None:
            yield loaded


async def fork_branch(store: ConversationStore, root_id: str, branch: HistoryBranch) -> HistoryBranch:
    """Fork the branch where the request departs from it, and make the fork the current branch."""
    assert branch.loaded is not None
    messages = branch.loaded.messages
    shared = leading_system_count(messages) + branch.match.shared
    # A fork cannot split an exchange. The messages between the last safe boundary and the edit are appended again.
    boundary = max((index for index in safe_boundaries(messages) if index <= shared), default=0)
    fork_id = new_id(f"{root_id[:120]}.branch")
    await store.fork(branch.id, fork_id, at=branch.loaded.start + boundary)
    await store.put_document(root_id, NewDocument(BRANCH, fork_id, {"of": branch.id, "at": boundary}))
    await store.set_labels(root_id, {BRANCH: fork_id})
    new_messages = (*messages[boundary:shared], *branch.match.new_messages)
    return HistoryBranch(fork_id, await store.load(fork_id), HistoryMatch("forked", branch.match.shared, new_messages))


async def mark_current_branch(store: ConversationStore, root: LoadedConversation, branch: HistoryBranch) -> None:
    """Store which branch the client continues, if it changed."""
    root_id = root.conversation.id
    if branch.id != root.conversation.labels.get(BRANCH, root_id):
        await store.set_labels(root_id, {BRANCH: None if branch.id == root_id else branch.id})
