"""Finds the conversation of a request, the branch of it that the request continues, and the messages that are new.

A client can name its conversation in several ways. The field `user`, a cache key or the text of the first message
do not identify a conversation, because unrelated clients can send the same values.

Clients resend their history with each request, see `history_match`. When an earlier message was edited, the record keeps
the messages after it, and the conversation continues in a fork. The client knows only the id of the first conversation, so
the fork is found by comparing messages.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, cast, get_args

from minutebook.conversation.record_cache import MAX_INLINE_MESSAGES, CachedRecord, compute
from minutebook.errors import ConversationNotFound, RequestRefused, VersionConflict
from minutebook.record.exchange import safe_boundaries
from minutebook.record.message import Message, leading_system_count
from minutebook.service.access.api_keys import Caller
from minutebook.service.completions.history_match import Decision, HistoryMatch, Resend, match_history
from minutebook.service.config.schema import LimitsConfig
from minutebook.service.http.requests import require_access
from minutebook.service.http.responses import new_id, require_version
from minutebook.service.responses.items import require_room
from minutebook.store.base import ConversationStore
from minutebook.store.types import NewDocument

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


def is_stored(headers: Mapping[str, str]) -> bool:
    """Whether a request is part of a conversation: it is not with `X-History: off` or as a side task of the client (`X-Task`).

    Raises:
        RequestRefused: `X-History` has an unknown value.
    """
    value = headers.get("x-history", "on").lower()
    if value not in {"on", "off"}:
        raise RequestRefused(400, "X-History must be on or off.", "invalid_history", "X-History")
    return value == "on" and "x-task" not in headers


def unstored_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The response headers of a request that is not stored."""
    decision: Decision = "auxiliary" if "x-task" in headers else "bypassed"
    return {"x-history": "unrecorded" if is_stored(headers) else "off", "x-history-reconcile": decision}


def _named_conversation(headers: Mapping[str, str], body: Mapping[str, Any]) -> Identity | None:
    conversation = body.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = conversation.get("id") or ""
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
        RequestRefused: the id is too long, not printable, or no segment of a path.
    """
    # Clients remove "." and ".." from paths, so such a conversation could not be read or erased.
    invalid_ids = {"", ".", ".."}
    if not isinstance(value, str) or value in invalid_ids or len(value) > MAX_ID_CHARACTERS or not value.isprintable():
        problem = f"{param} must be 1 to {MAX_ID_CHARACTERS} printable characters, and not '.' or '..'."
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
    record: CachedRecord | None
    """None if the conversation does not exist yet."""
    match: HistoryMatch
    copies: Mapping[int, Message] = field(default_factory=dict)
    """Position → the client's own copy of a message that it has resent."""

    @property
    def length(self) -> int:
        """The number of stored messages."""
        return 0 if self.record is None else len(self.record.messages)


RecordLoader: TypeAlias = Callable[[str], Awaitable[CachedRecord | None]]
"""Loads the record of a conversation; None if it does not exist."""


def require_root_access(
    root: CachedRecord | None,
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
    require_access(caller, root.header)
    if recipient is not None and root.header.recipient not in {recipient, conversation}:
        raise ConversationNotFound(conversation)
    require_version(root.header, expected_version)


def own_system_messages(messages: Sequence[Message], resend: Resend) -> Sequence[Message] | None:
    """The leading system messages of a request; None if those of the record apply, because the client need not resend them."""
    system_messages = messages[: leading_system_count(messages)]
    return system_messages if system_messages or resend == "all" else None


async def find_branch(
    store: ConversationStore,
    root: CachedRecord | None,
    messages: Sequence[Message],
    identity: Identity,
    load: RecordLoader,
) -> HistoryBranch:
    """The branch that a client's messages continue, else the one with the most messages in common.

    It becomes the current branch, unless it must be forked.
    """
    if root is None or not root.messages:
        return HistoryBranch(identity.conversation, root, HistoryMatch("appended", 0, tuple(messages)))
    branch = await _best_branch(store, root, messages, identity, load)
    if branch.match.decision not in {"forked", "auxiliary"}:
        await _mark_current_branch(store, root, branch)
    return branch


async def _best_branch(
    store: ConversationStore,
    root: CachedRecord,
    messages: Sequence[Message],
    identity: Identity,
    load: RecordLoader,
) -> HistoryBranch:
    candidates: list[HistoryBranch] = []
    system_count = leading_system_count(messages)
    async for record in _branches(store, root, load):
        stored_count = len(record.leading)
        start = record.first + stored_count
        find_match = partial(
            match_history,
            messages[system_count:],
            record.messages[start:],
            resend=identity.resend,
            has_system=bool(system_count and stored_count),
            may_be_auxiliary=identity.may_be_auxiliary,
            trimmed=record.trimmed_calls,
        )
        match = await compute(find_match, is_large=len(messages) > MAX_INLINE_MESSAGES)
        copies = {start + index: message for index, message in match.resent.items()}
        branch = HistoryBranch(record.header.id, record, match, copies)
        if match.decision != "forked":
            return branch
        candidates.append(branch)
    return max(candidates, key=lambda branch: branch.match.shared)


async def _branches(store: ConversationStore, root: CachedRecord, load: RecordLoader) -> AsyncIterator[CachedRecord]:
    """The current branch, then the root, then the other forks."""
    current_id = root.header.labels.get(BRANCH)
    if current_id is not None and (record := await load(current_id)) is not None:
        yield record
    yield root
    page = await store.documents(root.header.id, BRANCH, limit=MAX_BRANCHES, newest_first=True)
    for document in page.items:
        if document.id != current_id and (record := await load(document.id)) is not None:
            yield record


async def fork_branch(
    store: ConversationStore,
    root_id: str,
    branch: HistoryBranch,
    system_messages: Sequence[Message] | None,
    limits: LimitsConfig,
    load: RecordLoader,
) -> HistoryBranch:
    """Fork the branch where the request departs from it, and make the fork the current branch.

    A fork without earlier messages starts with the client's own `system_messages`; None for those of the branch.

    Raises:
        RequestRefused: the fork would have too many messages. Nothing is stored.
    """
    assert branch.record is not None
    first = branch.record.first
    messages = [
        branch.copies.get(first + index, message) for index, message in enumerate(branch.record.messages[first:])
    ]
    stored_count = leading_system_count(messages)
    shared = stored_count + branch.match.shared
    boundary = 0
    if branch.match.shared:
        # A fork cannot split an exchange. The messages between the last safe boundary and the edit are appended again.
        boundary = max((index for index in safe_boundaries(messages) if index <= shared), default=0)
    leading = messages[:stored_count] if system_messages is None else system_messages
    repeated = messages[max(boundary, stored_count) : shared]
    new_messages = (*(() if boundary else leading), *repeated, *branch.match.new_messages)
    require_room(first + boundary + len(new_messages) + 1, limits)
    fork_id = new_id(f"{root_id[:120]}.branch")
    await store.fork(branch.id, fork_id, at=first + boundary)
    await store.put_document(root_id, NewDocument(BRANCH, fork_id, {"of": branch.id, "at": boundary}))
    await store.set_labels(root_id, {BRANCH: fork_id})
    match = replace(branch.match, new_messages=new_messages)
    copies = {position: copy for position, copy in branch.copies.items() if position < first + boundary}
    return HistoryBranch(fork_id, await load(fork_id), match, copies)


async def _mark_current_branch(store: ConversationStore, root: CachedRecord, branch: HistoryBranch) -> None:
    """Store which branch the client continues, if it changed."""
    root_id = root.header.id
    if branch.id != root.header.labels.get(BRANCH, root_id):
        await store.set_labels(root_id, {BRANCH: None if branch.id == root_id else branch.id})
