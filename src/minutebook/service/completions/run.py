"""One chat completion of a stored conversation, from the client's messages to the stored answer."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from minutebook.agent.providers.openai import CompletionAccumulator
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.record_cache import CachedRecord, are_large, compute
from minutebook.errors import InvalidMessage
from minutebook.record.message import Message, role_of
from minutebook.service.answer_job import AnswerJob, failure_fields, max_answer_tokens, message_tokens, tool_tokens
from minutebook.service.completions.history_match import HistoryMatch, equal_prefix_length
from minutebook.service.completions.reconcile import (
    HistoryBranch,
    Identity,
    find_branch,
    fork_branch,
    own_system_messages,
    require_root_access,
)
from minutebook.service.http.errors import Failure
from minutebook.service.http.responses import DONE, sse
from minutebook.service.idempotency import IdempotencyKey, find_earlier_answer, find_earlier_result_id
from minutebook.service.responses.items import require_item_sizes, require_room
from minutebook.service.runs import RenewedLease
from minutebook.service.upstream import parse_chunks
from minutebook.store.base import ConversationStore
from minutebook.store.types import REQUEST_KIND, Lease
from minutebook.wire.chat import entry_to_provider_message
from minutebook.wire.read import read

API_NAME: Final = "chat.completions"
_OWN_FIELDS: Final = frozenset({"conversation", "metadata_recipient"})
"""Fields of the body that are not sent to the provider."""


@dataclass(slots=True, kw_only=True)
class ChatJob(AnswerJob):
    """Answers a request for a chat completion."""

    api_name: ClassVar[str] = API_NAME
    identity: Identity
    body: Mapping[str, Any]
    unchanged_body: bytes | None = None
    """The body as the client sent it; None if the provider cannot get it unchanged."""
    recipient: str | None = None
    expected_version: int | None = None
    """The version of the conversation that the client expects; None for any."""
    recorded: bool = True
    """Whether the messages and the answer are stored."""
    result: dict[str, Any] | None = None
    """The completion, if it is not streamed. Set when the run has ended."""

    async def _execute(self) -> None:
        """Answer the request.

        The last events are sent after the leases are released: a client that has read them may send its next request at
        once, which would fail with `ConversationBusy` while a lease is held.
        """
        last_events: Sequence[bytes] | None = None
        if self.recorded:
            async with AsyncExitStack() as leases:
                last_events = await self._answer_recorded(leases)
        if last_events is None:
            await self._pass_through()
            return
        for event in last_events:
            self.run.send(event)

    def _send_failure(self, failure: Failure) -> None:
        """Send an error within the stream, in the form that OpenAI's Python and JavaScript clients raise."""
        self.run.send(sse(failure.event()))

    async def _answer_recorded(self, leases: AsyncExitStack) -> Sequence[bytes] | None:
        """Answer the request, and return the events to send once the leases are released.

        None if the request is not part of the conversation: it is passed through without a lease.
        """
        store, root_id = self.store, self.identity.conversation
        lease, root = await self.lease_record(leases, root_id)
        completion = await find_earlier_completion(store, self.idempotency_key)
        if completion is not None:
            return self._replay(completion)
        limits = self.service.config.limits
        branch = await self._find_branch(store, root_id, root)
        self._require_item_sizes(branch.match)
        if branch.match.decision == "forked":
            message = await self._answer_of_first_attempt(store, branch)
            if message is not None:
                head = {"id": self.run.id, "created": int(time.time()), "model": self.body["model"]}
                return self._replay(completion_of(message, head))
            branch = await fork_branch(store, root_id, branch, self._system_messages, limits, self.load_record)
        self.headers |= {"x-conversation-id": root_id, "x-history-reconcile": branch.match.decision}
        if branch.match.decision == "auxiliary":
            return None
        if branch.id != root_id:
            lease = await leases.enter_async_context(self.lease(branch.id))
            self.headers["x-conversation-branch"] = branch.id
        require_room(branch.length + len(branch.match.new_messages) + 1, limits)
        call = await self._call(branch, lease.lease)
        documents = [self.idempotency_key.document(call.settings.request_id)]
        if branch.id != root_id:  # the key is always stored with the root, where other attempts find it
            await store.put_document(root_id, documents.pop())
        await self.begin(call, documents, recipient=self.recipient)
        return await self._answer(call, lease)

    @property
    def _system_messages(self) -> Sequence[Message] | None:
        """The client's own system messages at the start; None if those of the record apply."""
        return own_system_messages(self.body["messages"], self.identity.resend)

    def _require_item_sizes(self, match: HistoryMatch) -> None:
        """Raises `RequestRefused` if a message that would be stored is too large."""
        if match.decision == "auxiliary":
            return
        messages = match.new_messages
        if match.decision == "forked" and not match.shared:
            messages = (*(self._system_messages or ()), *messages)
        first = max(0, len(self.body["messages"]) - len(messages))
        require_item_sizes(messages, "messages", self.service.config.limits, first=first)

    def _replay(self, completion: dict[str, Any]) -> Sequence[bytes]:
        """Answer with the completion of an earlier attempt."""
        self.headers |= {"idempotent-replayed": "true", "x-history-reconcile": "replayed"}
        self.result = completion
        return stream_events(completion) if self.body.get("stream") else ()

    async def _find_branch(self, store: ConversationStore, root_id: str, root: CachedRecord | None) -> HistoryBranch:
        """The branch that the request continues, which becomes the current branch unless it must be forked."""
        require_root_access(
            root, self.caller, root_id, recipient=self.recipient, expected_version=self.expected_version
        )
        messages = await compute(self._read_messages, root, is_large=are_large(self.body["messages"]))
        return await find_branch(store, root, messages, self.identity, self.load_record)

    def _read_messages(self, root: CachedRecord | None) -> list[Message]:
        """The messages of the request. Those at the start that are equal to the record's need not be read again."""
        sent, stored = self.body["messages"], [] if root is None else root.messages[root.first :]
        shared = equal_prefix_length(sent, stored)
        try:
            return [*sent[:shared], *read(sent[shared:])]
        except InvalidMessage:
            return read(sent)  # the error has the index of the message in the whole list

    async def _answer_of_first_attempt(self, store: ConversationStore, branch: HistoryBranch) -> Message | None:
        """The recorded answer to these messages, if the request is a retry.

        It is found even if the minutes of the first attempt are lost.
        """
        if (
            branch.record is None
            or branch.match.new_messages
            or await find_earlier_result_id(store, self.idempotency_key) is None
        ):
            return None
        record = branch.record
        message = record.messages[record.first + len(record.leading) + branch.match.shared]
        return message if role_of(message) == "assistant" else None

    async def _call(self, branch: HistoryBranch, lease: Lease) -> ModelCall:
        model = self.body["model"]
        settings = self.settings(
            branch.id,
            model,
            lease=lease,
            overhead_tokens=await tool_tokens(model, self.body.get("tools")),
            instructions=self._system_messages if branch.length else None,
            reconcile=branch.match.decision,
        )
        return await self.new_call(settings, branch.record, branch.match.new_messages, branch.copies)

    async def _answer(self, call: ModelCall, lease: RenewedLease) -> list[bytes]:
        """Call the model and store its answer; return the last events."""
        completion, max_tokens = (
            CompletionAccumulator(),
            max_answer_tokens(self.service, call.settings.model, self.body),
        )
        try:
            last_events = await self.call_model(
                call, completion, lambda: self._attempt(call, completion), max_output_tokens=max_tokens
            )
            outcome = {**completion.outcome(), "head": completion.head}
            await self.finish(call, completion.message, outcome, lease=lease)
        except BaseException as error:
            # A partial answer is stored in the minutes only: the conversation cannot continue from it.
            partial_text = completion.message.get("content") or None
            await call.fail({**failure_fields(error), "partial": partial_text})
            raise
        return last_events

    async def _attempt(self, call: ModelCall, completion: CompletionAccumulator) -> list[bytes]:
        """Send the events of the answer, and return the last ones, which must wait until the answer is stored."""
        body = self._upstream_body(call.messages)
        if not self.body.get("stream"):
            self.result = await self.service.upstream.complete(body, authorization=self.authorization)
            completion.add_completion(self.result)
            return []
        last_events: list[bytes] = []
        has_text = False
        async with self.service.upstream.stream(body, authorization=self.authorization) as events:
            async for data, chunk in parse_chunks(events):
                is_last = completion.add_chunk(chunk)
                if chunk.get("usage") and not chunk.get("choices") and not self._wants_usage:
                    continue
                if is_last:
                    last_events.append(b"data: %s\n\n" % data)
                    continue
                self.run.send(b"data: %s\n\n" % data)
                if not has_text and completion.has_output:
                    has_text = True
                    await self.run.yield_to_readers()
                    self.note_first_token()
        completion.require_answer()
        return [*last_events, DONE]

    async def _pass_through(self) -> None:
        """Pass the request to the provider and its answer to the client, and record nothing."""
        body: Mapping[str, Any] | bytes = self._provider_fields()
        if self.unchanged_body is not None and len(body) == len(self.body):
            body = self.unchanged_body
        model, completion = self.body["model"], CompletionAccumulator()
        sent_tokens = 0
        if self.service.limiter.limits_tokens(self.caller):
            sent_tokens = await message_tokens(model, self.body["messages"])
            sent_tokens += await tool_tokens(model, self.body.get("tools"))
        max_tokens = max_answer_tokens(self.service, model, self.body)
        async with self.spend_tokens(model, completion, lambda: sent_tokens, max_tokens):
            if not self.body.get("stream"):
                self.result = await self.service.upstream.complete(body, authorization=self.authorization)
                completion.add_completion(self.result)
                return
            async with self.service.upstream.stream(body, authorization=self.authorization) as events:
                async for data, chunk in parse_chunks(events):
                    completion.add_chunk(chunk)
                    self.run.send(b"data: %s\n\n" % data)
                    if not self.recorded:  # the wait needs no limit, because a disconnect cancels such a run
                        await self.run.wait_for_reader()
            completion.require_answer()
        self.run.send(DONE)

    @property
    def _wants_usage(self) -> bool:
        options = self.body.get("stream_options")
        return isinstance(options, Mapping) and bool(options.get("include_usage"))

    def _provider_fields(self) -> dict[str, Any]:
        return {key: value for key, value in self.body.items() if key not in _OWN_FIELDS}

    def _upstream_body(self, messages: Sequence[Message]) -> dict[str, Any]:
        body = self._provider_fields() | {"messages": list(messages)}
        if body.get("stream"):
            options = body.get("stream_options")
            body["stream_options"] = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
        return body


async def find_earlier_completion(store: ConversationStore, idempotency_key: IdempotencyKey) -> dict[str, Any] | None:
    """The completion that an earlier attempt of the request stored; None if there is none. Call it with the lease held.

    Raises:
        IdempotencyConflict: the key was used with another body.
    """
    request = await find_earlier_answer(store, idempotency_key, API_NAME, kind=REQUEST_KIND)
    if request is None or "answer" not in request.body:
        return None
    body, created = request.body, int(request.created_at.timestamp())
    loaded = await store.load(request.conversation, since=body["answer"], limit=1)
    usage = body["usage"] and dict(body["usage"])
    head = {"id": body["run"], "created": created, "model": body["model"], **body["head"]}
    return completion_of(entry_to_provider_message(loaded.entries[0]), head, usage, body["finish"])


def completion_of(
    message: Mapping[str, Any],
    head: Mapping[str, Any],
    usage: Mapping[str, Any] | None = None,
    finish: str | None = None,
) -> dict[str, Any]:
    """A recorded message as a chat completion. `head` has its id, creation time and model."""
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    return {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": usage,
    }


def stream_events(completion: Mapping[str, Any]) -> list[bytes]:
    """A completion as the events of a stream."""
    choice = completion["choices"][0]
    head = {key: completion[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    content_chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    final_chunk = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    return [sse(content_chunk), sse(final_chunk), DONE]
