"""Finds the conversation of a request, the branch of it that the request continues, and the messages that are new.

A client can name its conversation in several ways. The field `user`, a cache key or the text of the first message
do not identify a conversation, because unrelated clients can send the same values.

Clients resend their history with each request, see `history_match`. When an earlier message was edited, the record keeps
the messages after it, and the conversation continues in a fork. The client knows only the id of the first conversation, so
the fork is found by comparing messages.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast, get_args

from minutebook.errors import ConversationErased, ConversationNotFound, RequestRefused, VersionConflict
from minutebook.record.exchange import safe_boundaries
from minutebook.record.message import Message, leading_system_count
from minutebook.service.access.api_keys import Caller
from minutebook.service.completions.history_match import HistoryMatch, Resend, match_history
from minutebook.service.http.requests import require_access
from minutebook.service.http.responses import new_id, require_version
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation, NewDocument
from minutebook.wire.chat import provider_message_to_entry

_VENDOR_HEADER: Final = re.compile(r"^x-[a-z0-9-]+-session-id$")
_VENDOR_ID: Final = re.compile(r"^[A-Za-z0-9_-]{8,}$")
_AUXILIARY_HEADERS: Final = frozenset({"x-openwebui-chat-id"})
"""Headers of clients that send auxiliary requests, such as one for a title, with the same id."""
_RESENDING_AGENTS: Final = re.compile(r"^(?:agents/|pydantic-ai/|langchainjs-)", re.IGNORECASE)
"""User agents of clients that always send their whole history: openai-agents, pydantic-ai and LangChain.js.

LangChain for Python has the user agent of OpenAI's client, which may send either.
"""
_METADATA_KEYS: Final = ("conversation_id", "thread_id", "session_id")
MAX_ID_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """The conversation that a request names."""

    conversation: str
    resend: Resend = "auto"
    """How much of its history the client sends with each request."""
    may_be_auxiliary: bool = False
    """The client sends auxiliary requests with the id of a conversation."""


def identity_of(
    headers: Mapping[str, str], body: Mapping[str, Any], default_resend: Resend = "auto"
) -> Identity | None:
    """The conversation that a request names; None if it names none. The most specific name wins.

    Raises:
        RequestRefused: the id is too long or not printable, or `X-History-Resend` has an unknown value.
    """
    identity = _named_conversation(headers, body)
    return None if identity is None else replace(identity, resend=resend_of(headers, default_resend))


def resend_of(headers: Mapping[str, str], default: Resend = "auto") -> Resend:
    """How much of its history the client sends: by `X-History-Resend`, else the default, else by its user agent.

    Raises:
        RequestRefused: the header has an unknown value.
    """
    value = headers.get("x-history-resend")
    if value is None:
        sends_all = "x-openwebui-chat-id" in headers or _RESENDING_AGENTS.match(headers.get("user-agent", ""))
        return "all" if default == "auto" and sends_all else default
    if value not in get_args(Resend):
        problem = f"X-History-Resend must be one of {', '.join(get_args(Resend))}."
        raise RequestRefused(400, problem, "invalid_resend", "X-History-Resend")
    return cast("Resend", value)


def _named_conversation(headers: Mapping[str, str], body: Mapping[str, Any]) -> Identity | None:
    conversation = body.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = conversation.get("id")
    if conversation is not None:
        return Identity(valid_id(conversation, "conversation"))
    for header in ("x-conversation-id", "x-openwebui-chat-id", "x-litellm-session-id"):
        if header in headers:
            return Identity(valid_id(headers[header], header), may_be_auxiliary=header in _AUXILIARY_HEADERS)
    for header, value in headers.items():
        if _VENDOR_HEADER.match(header) and _VENDOR_ID.match(value):
            return Identity(valid_id(value, header))
    if "codex" in headers.get("user-agent", "").lower():
        for header in ("thread-id", "session-id"):
            if header in headers:
                return Identity(valid_id(headers[header], header))
    if "x-session-id" in headers:
        return Identity(valid_id(headers["x-session-id"], "x-session-id"))
    metadata = body.get("metadata")
    for key in _METADATA_KEYS if isinstance(metadata, Mapping) else ():
        if metadata is not None and isinstance(metadata.get(key), str):
            return Identity(valid_id(metadata[key], f"metadata.{key}"))
    return None


def valid_id(value: object, param: str) -> str:
    """Return a conversation id that a client sent. `param` is the field or header with the id.

    Raises:
        RequestRefused: the id is too long or not printable.
    """
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARACTERS or not value.isprintable():
        problem = f"{param} must be 1 to {MAX_ID_CHARACTERS} printable characters."
        raise RequestRefused(400, problem, "invalid_conversation_id", param)
    return value


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


def require_root_access(
    root: LoadedConversation | None,
    caller: Caller,
    conversation: str,
    *,
    recipient: str | None,
    expected_version: int | None,
) -> None:
    """Check the conversation that a request names, which need not exist.

    Raises:
        ConversationNotFound: the caller or the recipient may not access it.
        VersionConflict: it is not at the expected version.
    """
    if root is None:
        if expected_version:
            raise VersionConflict(conversation, 0, expected_version)
        return
    require_access(caller, root.conversation)
    if recipient is not None and root.conversation.recipient not in {recipient, conversation}:
        raise ConversationNotFound(conversation)
    require_version(root.conversation, expected_version)


async def find_branch(
    store: ConversationStore, root: LoadedConversation | None, messages: Sequence[Message], identity: Identity
) -> HistoryBranch:
    """The branch that a client's messages continue, else the one with the most messages in common.

    It becomes the current branch, unless it must be forked.
    """
    if root is None or not root.conversation.length:
        return HistoryBranch(identity.conversation, root, HistoryMatch("appended", 0, tuple(messages)))
    branch = await _best_branch(store, root, messages, identity)
    if branch.match.decision not in {"forked", "auxiliary"}:
        await _mark_current_branch(store, root, branch)
    return branch


async def _best_branch(
    store: ConversationStore, root: LoadedConversation, messages: Sequence[Message], identity: Identity
) -> HistoryBranch:
    candidates: list[HistoryBranch] = []
    system_count = leading_system_count(messages)
    async for loaded in _branches(store, root):
        record = loaded.messages
        stored_count = leading_system_count(record)
        match = match_history(
            messages[system_count:],
            record[stored_count:],
            resend=identity.resend,
            has_system=bool(system_count and stored_count),
            may_be_auxiliary=identity.may_be_auxiliary,
        )
        branch = HistoryBranch(loaded.conversation.id, _with_copies(loaded, match, stored_count), match)
        if match.decision != "forked":
            return branch
        candidates.append(branch)
    return max(candidates, key=lambda branch: branch.match.shared)


def _with_copies(loaded: LoadedConversation, match: HistoryMatch, system_count: int) -> LoadedConversation:
    """The loaded conversation with the client's own copy of each message that it resent."""
    if not match.resent:
        return loaded
    entries = list(loaded.entries)
    for index, message in match.resent.items():
        entry = entries[system_count + index]
        entries[system_count + index] = provider_message_to_entry(
            message,
            evaluation_id=entry.evaluation_id,
            sequence=entry.sequence,
            created_at=entry.created_at,
            provider=entry.provider,
            model=entry.model,
        )
    return replace(loaded, entries=tuple(entries))


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


async def fork_branch(
    store: ConversationStore, root_id: str, branch: HistoryBranch, system_messages: Sequence[Message]
) -> HistoryBranch:
    """Fork the branch where the request departs from it, and make the fork the current branch.

    A fork without earlier messages starts with the client's own `system_messages`.
    """
    assert branch.loaded is not None
    messages = branch.loaded.messages
    stored_count = leading_system_count(messages)
    shared = stored_count + branch.match.shared
    boundary = 0
    if branch.match.shared:
        # A fork cannot split an exchange. The messages between the last safe boundary and the edit are appended again.
        boundary = max((index for index in safe_boundaries(messages) if index <= shared), default=0)
    fork_id = new_id(f"{root_id[:120]}.branch")
    await store.fork(branch.id, fork_id, at=branch.loaded.start + boundary)
    await store.put_document(root_id, NewDocument(BRANCH, fork_id, {"of": branch.id, "at": boundary}))
    await store.set_labels(root_id, {BRANCH: fork_id})
    leading_messages = () if boundary else system_messages or messages[:stored_count]
    repeated_messages = messages[max(boundary, stored_count) : shared]
    match = replace(branch.match, new_messages=(*leading_messages, *repeated_messages, *branch.match.new_messages))
    fork = await store.load(fork_id)
    return HistoryBranch(fork_id, replace(fork, entries=branch.loaded.entries[: len(fork.entries)]), match)


async def _mark_current_branch(store: ConversationStore, root: LoadedConversation, branch: HistoryBranch) -> None:
    """Store which branch the client continues, if it changed."""
    root_id = root.conversation.id
    if branch.id != root.conversation.labels.get(BRANCH, root_id):
        await store.set_labels(root_id, {BRANCH: None if branch.id == root_id else branch.id})
