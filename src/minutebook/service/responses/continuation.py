"""The conversation that a response continues: a named one, the one of an earlier response, or a new one."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from minutebook.conversation.record_cache import CachedRecord
from minutebook.errors import (
    ConversationBusy,
    ConversationNotFound,
    DocumentNotFound,
    RequestRefused,
    VersionConflict,
)
from minutebook.record.exchange import safe_boundaries
from minutebook.record.message import Message
from minutebook.service.access.api_keys import Caller
from minutebook.service.answer_job import AnswerJob
from minutebook.service.completions.reconcile import (
    Identity,
    find_branch,
    fork_branch,
    own_system_messages,
    require_root_access,
)
from minutebook.service.http.errors import RETRY_SOON
from minutebook.service.http.requests import require_access
from minutebook.service.http.responses import new_id, require_version
from minutebook.service.idempotency import RUN_KIND, UNFINISHED
from minutebook.service.responses.items import Item, missing_input
from minutebook.service.responses.objects import find_response
from minutebook.service.responses.request import InputRequest, ResponseRequest
from minutebook.service.state import Service
from minutebook.store.types import Lease


@dataclass(frozen=True, slots=True)
class ContinuedConversation:
    """The conversation that a response continues."""

    conversation: str
    record: CachedRecord | None = None
    """None if the conversation does not exist yet."""
    lease: Lease | None = None
    """None if the conversation is only read."""
    is_fork: bool = False
    repeated: tuple[Message, ...] = ()
    """The first messages to append to a fork: the start of an exchange, which a fork cannot split."""
    new_messages: tuple[Message, ...] | None = None
    """The client's messages that the record does not have yet; None if all are new."""
    stored_input: int | None = None
    """Position of the client's messages, if an earlier attempt has stored them."""
    copies: Mapping[int, Message] = field(default_factory=dict)
    """Position → the client's own copy of a message that it has resent."""

    @property
    def length(self) -> int:
        """The number of stored messages."""
        return 0 if self.record is None else len(self.record.messages)


async def load_continued(service: Service, caller: Caller, request: InputRequest) -> ContinuedConversation:
    """Load the conversation that a request continues, without a lease. Nothing can be stored there.

    Raises:
        ConversationNotFound: the conversation does not exist, or the caller has no access.
        RequestRefused: the previous response cannot be continued.
    """
    store = service.store_of(caller)
    if request.conversation_id is not None:
        require_access(caller, await store.header(request.conversation_id))
        loaded = await store.load(request.conversation_id)
        return ContinuedConversation(request.conversation_id, CachedRecord(loaded))
    if request.previous_response_id is not None:
        previous = await _find_previous(service, caller, request.previous_response_id)
        loaded = await store.load(previous["conversation"], since=0, limit=previous["answer"] + 1)
        return ContinuedConversation(previous["conversation"], CachedRecord(loaded))
    return ContinuedConversation(new_id("conv"))


@dataclass(slots=True, kw_only=True)
class ConversationJob(AnswerJob):
    """An answer that is stored in the conversation that its request continues."""

    request: ResponseRequest
    items: Sequence[Item]
    messages: Sequence[Message]
    """The messages of the items."""
    recipient: str | None = None
    identity: Identity | None = None
    """The conversation that a header names: the client resends its history, as in chat completions."""
    expected_version: int | None = None
    failed_attempt: str | None = None
    """Id of the response of an earlier attempt, if that failed."""
    conversation_named: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the response header with the conversation is set, if the request does not name the conversation."""

    async def lease_continued(self, leases: AsyncExitStack) -> ContinuedConversation:
        """Load the conversation that the request continues, and hold its lease until `leases` is closed.

        A response that is not the last one of its conversation is continued in a fork.

        Raises:
            ConversationNotFound: the conversation does not exist, or the caller has no access.
            ConversationBusy: another holder has the lease.
            VersionConflict: the conversation is not at the expected version.
        """
        if self.failed_attempt is not None:
            continued = await self._hold_failed_attempt(leases, self.failed_attempt)
            if continued is not None:
                return continued
        if self.request.conversation_id is not None:
            return await self._hold_conversation(leases, self.request.conversation_id)
        if self.request.previous_response_id is not None:
            return await self._hold_previous(leases, self.request.previous_response_id)
        if self.identity is not None:
            return await self._hold_reconciled(leases, self.identity)
        if self.expected_version:
            raise VersionConflict("", 0, self.expected_version)
        conversation = self._name_conversation(new_id("conv"))
        lease = await leases.enter_async_context(self.lease(conversation))
        return ContinuedConversation(conversation, lease=lease.lease)

    def _name_conversation(self, conversation: str) -> str:
        """Set the response header with a conversation that the request does not name. The response starts only after that."""
        self.headers["x-conversation-id"] = conversation
        self.conversation_named.set()
        return conversation

    async def _hold_conversation(self, leases: AsyncExitStack, conversation: str) -> ContinuedConversation:
        require_access(self.caller, await self.store.header(conversation))
        lease, record = await self.lease_record(leases, conversation)
        if record is None:
            raise ConversationNotFound(conversation)
        require_version(record.header, self.expected_version)
        return ContinuedConversation(conversation, record, lease.lease)

    async def _hold_reconciled(self, leases: AsyncExitStack, identity: Identity) -> ContinuedConversation:
        """The branch of the conversation that the resent items continue; a fork if an earlier item was edited."""
        store, root_id, messages = self.store, identity.conversation, self.messages
        lease, root = await self.lease_record(leases, root_id)
        require_root_access(
            root, self.caller, root_id, recipient=self.recipient, expected_version=self.expected_version
        )
        identity = replace(identity, may_be_auxiliary=False)
        branch = await find_branch(store, root, messages, identity, self.load_record)
        is_fork = branch.match.decision == "forked"
        if is_fork:
            if not messages:
                raise missing_input()
            system_messages, limits = own_system_messages(messages, identity.resend), self.service.config.limits
            branch = await fork_branch(store, root_id, branch, system_messages, limits, self.load_record)
        if branch.id != root_id:
            lease = await leases.enter_async_context(self.lease(branch.id))
            self.headers["x-conversation-branch"] = branch.id
        self.headers["x-history-reconcile"] = branch.match.decision
        return ContinuedConversation(
            branch.id,
            branch.record,
            lease.lease,
            is_fork=is_fork,
            new_messages=branch.match.new_messages,
            copies=branch.copies,
        )

    async def _hold_previous(self, leases: AsyncExitStack, previous_id: str) -> ContinuedConversation:
        previous = await _find_previous(self.service, self.caller, previous_id)
        conversation, stop = previous["conversation"], previous["answer"] + 1
        record: CachedRecord | None = None
        try:
            lease, record = await self.lease_record(leases, conversation, wait=False)
        except ConversationBusy:
            lease = None
        if record is None:
            record = await self.load_record(conversation)
        if record is None:
            raise ConversationNotFound(conversation)
        require_version(record.header, self.expected_version)
        if lease is not None and len(record.messages) == stop:
            return ContinuedConversation(self._name_conversation(conversation), record, lease.lease)
        messages, shared = record.messages[record.first :], stop - record.first
        # A fork cannot split an exchange. The messages after the last safe boundary are appended again.
        boundary = max((index for index in safe_boundaries(messages) if index <= shared), default=0)
        fork_id = self._name_conversation(new_id("conv"))
        fork_lease = (await leases.enter_async_context(self.lease(fork_id))).lease
        await self.store.fork(conversation, fork_id, at=record.first + boundary)
        fork = await self.load_record(fork_id)
        repeated = tuple(messages[boundary:shared])
        return ContinuedConversation(fork_id, fork, fork_lease, is_fork=True, repeated=repeated)

    async def _hold_failed_attempt(self, leases: AsyncExitStack, response_id: str) -> ContinuedConversation | None:
        """The conversation in which an earlier attempt stored the client's messages, if it ends with them."""
        try:
            body = (await self.store.document(RUN_KIND, response_id)).body
            conversation, (start, stop) = body["conversation"], body["input"]
            if (await self.store.header(conversation)).length != stop:
                return None
            lease, record = await self.lease_record(leases, conversation)
        except (DocumentNotFound, ConversationNotFound):
            return None
        if record is None or len(record.messages) != stop:
            return None
        return ContinuedConversation(self._name_conversation(conversation), record, lease.lease, stored_input=start)


async def _find_previous(service: Service, caller: Caller, response_id: str) -> Any:
    """The stored body of the response to continue."""
    try:
        body = (await find_response(service, caller, response_id)).body
    except DocumentNotFound:
        problem = "The previous response does not exist."
        raise RequestRefused(404, problem, "previous_response_not_found", "previous_response_id") from None
    if body["status"] in UNFINISHED:
        problem = "The previous response is in progress. Retry when it has finished."
        raise RequestRefused(409, problem, "conversation_locked", "previous_response_id", tuple(RETRY_SOON.items()))
    if "answer" not in body:
        problem = "The previous response failed or was cancelled and has no answer. Continue from the one before it."
        raise RequestRefused(400, problem, "previous_response_not_completed", "previous_response_id")
    return body
