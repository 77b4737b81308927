"""Where a response goes on: in a conversation, after another response, or in a conversation of its own."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from minutebook.errors import (
    ConversationBusy,
    ConversationNotFound,
    DocumentNotFound,
    RequestRefused,
)
from minutebook.record.exchange import safe_boundaries
from minutebook.record.message import Message
from minutebook.service.answer_run import AnswerRun
from minutebook.service.http.errors import RETRY_SOON
from minutebook.service.http.requests import require_access
from minutebook.service.http.responses import new_id, require_version
from minutebook.service.idempotency import RUN, UNFINISHED
from minutebook.service.responses.objects import found
from minutebook.service.responses.request import ResponseRequest
from minutebook.store.types import Lease, LoadedConversation


@dataclass(frozen=True, slots=True)
class Placed:
    """A conversation in which a response can be made, and who has it."""

    conversation: str
    loaded: LoadedConversation | None
    """What there is of it; None if it is yet to be made."""
    lease: Lease | None = None
    again: tuple[Message, ...] = ()
    """What has to be said again, since a fork cannot begin within an exchange."""
    forked: bool = False
    fresh: bool = True
    """Whether what the client sent is still to be appended; an earlier try may have done it."""
    start: int | None = None
    """Where what the client sent begins, if it is there already."""


@dataclass(slots=True, kw_only=True)
class PlacedAnswer(AnswerRun):
    """An answer to a request that says where it goes on."""

    asked: ResponseRequest
    expected_version: int | None = None
    earlier: str | None = None
    """The response that an earlier try of the same request began, and that failed."""

    async def place(self, stack: AsyncExitStack | None) -> Placed:
        """The place for a response. With a `stack` it is held for as long as that is open; without, it is only read.

        Raises:
            ConversationNotFound: there is no such conversation, or the caller may not see it.
            ConversationBusy: an answer is being made in it.
            VersionConflict: it is not at the version that the client expects.
        """
        if self.earlier is not None and stack is not None:
            again = await self._begun_before(stack)
            if again is not None:
                return again
        if self.asked.conversation_id is not None:
            return await self._in(stack, self.asked.conversation_id)
        if self.asked.previous_response_id is not None:
            return await self._after(stack, self.asked.previous_response_id)
        name = new_id("conv")
        return Placed(name, None, None if stack is None else await self._hold(stack, name))

    async def _in(self, stack: AsyncExitStack | None, name: str) -> Placed:
        require_access(self.caller, await self.store.header(name))
        lease = None if stack is None else await self._hold(stack, name)
        loaded = await self.store.load(name)
        require_version(loaded.conversation, self.expected_version)
        return Placed(name, loaded, lease)

    async def _after(self, stack: AsyncExitStack | None, previous: str) -> Placed:
        """After another response; in a fork, if the conversation went on from there by now, or is about to."""
        body = await self._previous(previous)
        name, at = body["conversation"], body["answer"] + 1
        if stack is None:
            return Placed(name, await self.store.load(name, since=0, limit=at))
        try:
            lease = await self._hold(stack, name)
        except ConversationBusy:
            lease = None
        loaded = await self.store.load(name)
        if lease is not None and loaded.conversation.length == at:
            return Placed(name, loaded, lease)
        messages = loaded.messages
        cut = max((place for place in safe_boundaries(messages) if place <= at - loaded.start), default=0)
        fork = new_id("conv")
        lease = await self._hold(stack, fork)
        await self.store.fork(name, fork, at=loaded.start + cut)
        return Placed(fork, await self.store.load(fork), lease, tuple(messages[cut : at - loaded.start]), forked=True)

    async def _previous(self, name: str) -> Any:
        try:
            body = (await found(self.service, self.caller, name)).body
        except DocumentNotFound:
            said = "There is no response of that id to go on from."
            raise RequestRefused(404, said, "previous_response_not_found", "previous_response_id") from None
        if body["status"] in UNFINISHED:
            said = "The response to go on from is still being made. Ask again when it is done."
            raise RequestRefused(409, said, "conversation_locked", "previous_response_id", tuple(RETRY_SOON.items()))
        if "answer" not in body:
            said = "The response to go on from has no answer: it failed or was cancelled. Go on from the one before it."
            raise RequestRefused(400, said, "previous_response_not_completed", "previous_response_id")
        return body

    async def _begun_before(self, stack: AsyncExitStack) -> Placed | None:
        """Where an earlier try of this request stored what the client said, if nothing was said there since."""
        assert self.earlier is not None
        try:
            body = (await self.store.document(RUN, self.earlier)).body
            name, (start, stop) = body["conversation"], body["input"]
            if (await self.store.header(name)).length != stop:
                return None
            lease = await self._hold(stack, name)
            loaded = await self.store.load(name)
        except (DocumentNotFound, ConversationNotFound):
            return None
        return Placed(name, loaded, lease, fresh=False, start=start) if loaded.conversation.length == stop else None

    async def _hold(self, stack: AsyncExitStack, name: str) -> Lease:
        return (await stack.enter_async_context(self.lease(name))).lease
