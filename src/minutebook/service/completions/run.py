"""One chat completion of a kept conversation, from the client's history to the stored answer."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from minutebook.agent.providers.openai import Answer
from minutebook.conversation.minutes import REQUEST
from minutebook.conversation.model_call import ModelCall
from minutebook.errors import ConversationNotFound
from minutebook.record.message import Message, lead_of, role_of
from minutebook.service.answer_run import AnswerRun, failure_code, longest_answer, tool_tokens
from minutebook.service.completions.reconcile import Identity, Story, chosen, forked, loaded_or_none, story_of
from minutebook.service.http.errors import Failure
from minutebook.service.http.requests import require_sight
from minutebook.service.http.responses import DONE, sse
from minutebook.service.idempotency import Claim, earlier_run, find_earlier_answer
from minutebook.service.runs import Hold
from minutebook.service.upstream import pieces
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease, Loaded
from minutebook.wire.chat import entry_to_provider_message

SURFACE: Final = "chat.completions"
OURS: Final = frozenset({"conversation", "metadata_recipient"})
"""Keys of the body that the provider does not know."""


@dataclass(slots=True, kw_only=True)
class ChatAnswer(AnswerRun):
    """Makes a chat completion. What it says goes to its run."""

    surface: ClassVar[str] = SURFACE
    identity: Identity
    body: Mapping[str, Any]
    recipient: str | None = None
    auxiliary: bool = False
    recorded: bool = True
    result: dict[str, Any] | None = None
    """The whole completion, where it was not to be streamed."""
    _last: Sequence[bytes] = ()
    """The end of what is told, which waits until the answer is stored."""

    async def _make(self) -> None:
        """Answer. The end is told when the conversation is free again: who has heard it may ask the next at once."""
        if not self.recorded:
            await self._pass_on()
            return
        async with AsyncExitStack() as stack:
            await self._answer_recorded(stack)
        for event in self._last:
            self.run.say(event)

    def _tell_failure(self, failure: Failure) -> None:
        """An error in the middle of a stream, in the form that both official clients raise."""
        self.run.say(sse(failure.body()))

    async def _answer_recorded(self, stack: AsyncExitStack) -> None:
        store, root_id = self.store, self.identity.conversation
        hold = await stack.enter_async_context(self.lease(root_id))
        earlier = await earlier_completion(store, self.claim)
        if earlier is not None:
            self._tell_again(earlier)
            return
        loaded, new, decision = await self._placed(store, root_id)
        if decision == "replayed":
            head = {"id": self.run.id, "created": int(time.time()), "model": self.body["model"]}
            self._tell_again(completion_of(new[0], head))
            return
        self.headers["x-conversation-id"] = root_id
        self.headers["x-history-reconcile"] = decision
        if decision == "auxiliary":  # a job beside the conversation: it leaves no trace in the record
            await self._pass_on()
            return
        if loaded is not None and loaded.conversation.id != root_id:
            hold = await stack.enter_async_context(self.lease(loaded.conversation.id))
            self.headers["x-conversation-branch"] = loaded.conversation.id
        call = self._call(loaded, new, hold.lease, decision)
        documents = [self.claim.document(call.call.request_id)]
        if call.call.conversation != root_id:  # a claim stays where the first try left it
            await store.put_document(root_id, documents.pop())
        await self.begin(call, documents, recipient=self.recipient)
        await self._answer(call, hold)

    def _tell_again(self, completion: dict[str, Any]) -> None:
        """The answer that the same request got before."""
        self.headers |= {"idempotent-replayed": "true", "x-history-reconcile": "replayed"}
        self.result = completion
        for event in as_stream(completion) if self.body.get("stream") else (b"",):
            self.run.say(event)

    async def _placed(self, store: ConversationStore, root_id: str) -> tuple[Loaded | None, Sequence[Message], str]:
        """Where the client's messages belong, and which of them are new."""
        messages = self.body["messages"]
        root = await loaded_or_none(store, root_id)
        if root is not None:
            require_sight(self.caller, root.conversation)
        if self.auxiliary:
            return root, (), "auxiliary"
        if root is None:
            return None, messages, "appended"
        if self.recipient is not None and root.conversation.recipient not in {self.recipient, root_id}:
            raise ConversationNotFound(root_id)  # the client says whom it is with, and it is with somebody else
        if not root.conversation.length:
            return root, messages, "appended"
        sent = messages[lead_of(messages) :]
        story = await story_of(store, root, sent, resends_all=self.identity.resends_all)
        if story.told.decision == "forked":
            again = await self._answered_before(store, story)
            if again is not None:
                return story.loaded, (again,), "replayed"
            loaded, new = await forked(store, root_id, story)
            return loaded, new, "forked"
        if story.told.decision != "auxiliary":
            await chosen(store, root, story)
        return story.loaded, story.told.new, story.told.decision

    async def _answered_before(self, store: ConversationStore, story: Story) -> Message | None:
        """The record's answer to just this request, if this is a second try; whatever became of the first one's run."""
        if story.told.new or await earlier_run(store, self.claim) is None:
            return None
        messages = story.loaded.messages
        answer = messages[lead_of(messages) + story.told.shared]
        return answer if role_of(answer) == "assistant" else None

    def _call(self, loaded: Loaded | None, new: Sequence[Message], lease: Lease, decision: str) -> ModelCall:
        model, messages = self.body["model"], self.body["messages"]
        lead = lead_of(messages)
        settings = self.settings(
            self.identity.conversation if loaded is None else loaded.conversation.id,
            model,
            lease=lease,
            overhead_tokens=tool_tokens(model, self.body.get("tools")),
            instructions=messages[:lead] if lead and loaded is not None and loaded.conversation.length else None,
            reconcile=decision,
        )
        return ModelCall(self.store, settings, loaded, new)

    async def _answer(self, call: ModelCall, hold: Hold) -> None:
        """Ask until the view is short enough, and store what comes."""
        answer, longest = Answer(), longest_answer(call.call.model, self.body)
        try:
            last = await self.ask(call, answer, lambda: self._attempt(call, answer), max_answer_tokens=longest)
            await self.finish(
                call, call.entries([answer.message]), {**answer.outcome(), "head": answer.head}, hold=hold
            )
        except BaseException as error:
            # half an answer is kept in the minutes, since nobody can build on it
            said = answer.message.get("content") or None
            await call.fail({"failed": failure_code(error), "partial": said})
            raise
        self._last = last

    async def _attempt(self, call: ModelCall, answer: Answer) -> list[bytes]:
        """Tell what comes; return the end, which waits until the answer is stored."""
        body = self._upstream_body(call.messages)
        if not self.body.get("stream"):
            self.result = await self.service.upstream.ask(body, authorization=self.authorization)
            answer.take_whole(self.result)
            return [b""]
        last: list[bytes] = []
        silent = True
        async with self.service.upstream.stream(body, authorization=self.authorization) as events:
            async for data, chunk in pieces(events):
                ending = answer.take(chunk)
                if chunk.get("usage") and not chunk.get("choices") and not self._wants_usage:
                    continue
                if ending:
                    last.append(b"data: %s\n\n" % data)
                    continue
                self.run.say(b"data: %s\n\n" % data)
                if silent and answer.has_words:
                    silent = False
                    await self.run.give_way()
                    self.note_first_token()
        return [*last, DONE]

    async def _pass_on(self) -> None:
        """Ask as the client asked, record nothing."""
        sent = {key: value for key, value in self.body.items() if key not in OURS}
        if not self.body.get("stream"):
            self.result = await self.service.upstream.ask(sent, authorization=self.authorization)
            self.run.say(b"")
            return
        async with self.service.upstream.stream(sent, authorization=self.authorization) as events:
            async for data in events:
                self.run.say(b"data: %s\n\n" % data)
        self.run.say(DONE)

    @property
    def _wants_usage(self) -> bool:
        options = self.body.get("stream_options")
        return isinstance(options, Mapping) and bool(options.get("include_usage"))

    def _upstream_body(self, messages: Sequence[Message]) -> dict[str, Any]:
        body = {key: value for key, value in self.body.items() if key not in OURS} | {"messages": list(messages)}
        if body.get("stream"):
            options = body.get("stream_options")
            body["stream_options"] = {**(options if isinstance(options, Mapping) else {}), "include_usage": True}
        return body


async def earlier_completion(store: ConversationStore, claim: Claim) -> dict[str, Any] | None:
    """What the same request was answered before; None if it was not. Ask while you hold the conversation.

    Raises:
        IdempotencyConflict: the key came with another body.
    """
    request = await find_earlier_answer(store, claim, SURFACE, kind=REQUEST)
    if request is None or "answer" not in request.body:
        return None
    told = request.body
    loaded = await store.load(request.conversation, since=told["answer"], limit=1)
    usage = told["usage"] and dict(told["usage"])
    head = {"id": told["run"], "created": int(request.created_at.timestamp()), "model": told["model"], **told["head"]}
    return completion_of(entry_to_provider_message(loaded.entries[0]), head, usage, told["finish"])


def completion_of(
    message: Mapping[str, Any],
    head: Mapping[str, Any],
    usage: Mapping[str, Any] | None = None,
    finish: str | None = None,
) -> dict[str, Any]:
    """A message of the record as a completion."""
    finish = finish or ("tool_calls" if message.get("tool_calls") else "stop")
    return {
        **head,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": usage,
    }


def as_stream(completion: Mapping[str, Any]) -> list[bytes]:
    """The same answer as the events of a stream."""
    choice = completion["choices"][0]
    head = {key: completion[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    said = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    ended = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    return [sse(said), sse(ended), DONE]
