"""One chat completion of a kept conversation, from the client's history to the stored answer."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.errors import ConversationNotFound, MinutebookError
from minutebook.record.message import Message, role_of
from minutebook.service.answers import Answer, pieces
from minutebook.service.auth import require_sight
from minutebook.service.branches import Story, chosen, forked, loaded_or_none, story_of
from minutebook.service.caller import Caller
from minutebook.service.failures import failure_of
from minutebook.service.identity import Identity
from minutebook.service.ids import new_id
from minutebook.service.pruned import HistoryPruned
from minutebook.service.reconcile import lead_of
from minutebook.service.replaying import as_stream, completion_of, earlier_completion
from minutebook.service.replies import Claim, earlier_run
from minutebook.service.runs import Hold, Run, held
from minutebook.service.state import Service, counter_of, info_of
from minutebook.service.turns import Call, Turn
from minutebook.service.wire import DONE, dumped, sse
from minutebook.store.contract import ConversationStore
from minutebook.store.leases import Lease
from minutebook.store.types import Loaded

OURS: Final = frozenset({"conversation", "metadata_recipient"})
"""Keys of the body that the provider does not know."""


@dataclass(slots=True, kw_only=True)
class Completing:
    """Makes the answer to one request, whoever still listens. What it says goes to its run."""

    service: Service
    caller: Caller
    identity: Identity
    body: Mapping[str, Any]
    claim: Claim
    authorization: str | None = None
    recipient: str | None = None
    policy: str | None = None
    auxiliary: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    """What the client is told about its history."""
    result: dict[str, Any] | None = None
    """The whole completion, where it was not to be streamed."""
    _begun: float = field(default_factory=time.monotonic)
    _last: Sequence[bytes] = ()
    """The end of what is told, which waits until the answer is stored."""

    async def make(self, run: Run) -> None:
        """Answer. The end is told when the conversation is free again: who has heard it may ask the next at once."""
        async with AsyncExitStack() as stack:
            await self._make(run, stack)
        for event in self._last:
            run.say(event)

    async def _make(self, run: Run, stack: AsyncExitStack) -> None:
        store = self.service.store_of(self.caller)
        root_id = self.identity.conversation
        waited = time.monotonic()
        hold = await stack.enter_async_context(held(store, root_id, run.id, seconds=self.service.lease_seconds))
        self.service.metrics.lock_waited(time.monotonic() - waited)
        earlier = await earlier_completion(store, self.claim)
        if earlier is not None:
            self._tell_again(run, earlier)
            return
        loaded, new, decision = await self._placed(store, root_id)
        if decision == "replayed":
            head = {"id": run.id, "created": int(time.time()), "model": self.body["model"]}
            self._tell_again(run, completion_of(new[0], head))
            return
        self.headers["x-conversation-id"] = root_id
        self.headers["x-history-reconcile"] = decision
        if decision == "auxiliary":
            await self._aside(run)
            return
        if loaded is not None and loaded.conversation.id != root_id:
            inner = held(store, loaded.conversation.id, run.id, seconds=self.service.lease_seconds)
            hold = await stack.enter_async_context(inner)
            self.headers["x-conversation-branch"] = loaded.conversation.id
        with self.service.telemetry.prepare(root_id) as span:
            turn = self._turn(store, loaded, new, hold.lease, run, decision)
            documents = [self.claim.document(turn.call.request_id)]
            if turn.call.conversation != root_id:  # a claim stays where the first try left it
                await store.put_document(root_id, documents.pop())
            await turn.begin(documents=documents, recipient=self.recipient)
            span.pruned(self._tell(turn))
        await self._answered(run, turn, hold)

    def _tell_again(self, run: Run, completion: dict[str, Any]) -> None:
        """The answer that the same request got before."""
        self.headers |= {"idempotent-replayed": "true", "x-history-reconcile": "replayed"}
        self.result = completion
        for event in as_stream(completion) if self.body.get("stream") else (b"",):
            run.say(event)

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

    def _turn(
        self,
        store: ConversationStore,
        loaded: Loaded | None,
        new: Sequence[Message],
        lease: Lease,
        run: Run,
        decision: str,
    ) -> Turn:
        model, messages = self.body["model"], self.body["messages"]
        counter = counter_of(model)
        lead = lead_of(messages)
        tools = self.body.get("tools")
        call = Call(
            conversation=self.identity.conversation if loaded is None else loaded.conversation.id,
            model=model,
            policy=self.service.policy(model, self.policy),
            counter=counter,
            run_id=run.id,
            request_id=new_id("req"),
            lease=lease,
            overhead_tokens=counter.count(dumped(tools).decode()) if tools else 0,
            instructions=messages[:lead] if lead and loaded is not None and loaded.conversation.length else None,
            facts={"surface": "chat.completions", "reconcile": decision},
        )
        return Turn(store, call, loaded, new)

    async def _answered(self, run: Run, turn: Turn, hold: Hold) -> None:
        """Ask until the view is short enough, and store what comes."""
        answer, most = Answer(), turn.minutes.tokens_after + self._longest_answer(turn.call.model)
        try:
            async with self.service.limiter.spending(self.caller, most) as spending:
                with self.service.telemetry.chat(turn.call.model, turn.call.conversation) as span:
                    await turn.until_it_fits(lambda: self._ask(run, turn, hold, answer), self._tell)
                    span.answered(answer.usage, finish=answer.finish, model=answer.head.get("model"))
                spending.tokens = answer.usage.input_tokens + answer.usage.output_tokens
        except BaseException as error:
            await self._note_failure(turn, answer, error)
            raise

    def _longest_answer(self, model: str) -> int:
        for name in ("max_completion_tokens", "max_tokens"):
            asked = self.body.get(name)
            if isinstance(asked, int):
                return max(0, asked)
        info = info_of(model)
        return info.max_output_tokens if info.is_known else 0

    async def _ask(self, run: Run, turn: Turn, hold: Hold, answer: Answer) -> None:
        body = self._upstream_body(turn.messages)
        if not self.body.get("stream"):
            completion = await self.service.upstream.ask(body, authorization=self.authorization)
            answer.take_whole(completion)
            await self._store(turn, hold, answer)
            self.result = completion
            self._last = [b""]
            return
        held_back: list[bytes] = []
        silent = True
        async with self.service.upstream.stream(body, authorization=self.authorization) as events:
            async for data, chunk in pieces(events):
                ending = answer.take(chunk)
                if chunk.get("usage") and not chunk.get("choices") and not self._wants_usage:
                    continue
                if ending:
                    held_back.append(b"data: %s\n\n" % data)
                    continue
                run.say(b"data: %s\n\n" % data)
                if silent and answer.has_words:
                    silent = False
                    await run.give_way()
                    self.service.metrics.first_token(time.monotonic() - self._begun)
        await self._store(turn, hold, answer)
        self._last = [*held_back, DONE]

    async def _store(self, turn: Turn, hold: Hold, answer: Answer) -> None:
        started = time.monotonic()
        outcome = {**answer.outcome(), "answer": turn.length, "head": answer.head}
        async with hold.given_back():
            await turn.finish([answer.message], outcome, release=True)
        self.service.metrics.appended(time.monotonic() - started)
        self.service.metrics.usage(turn.call.model, answer.usage)

    async def _aside(self, run: Run) -> None:
        """A job beside the conversation: it is answered, and leaves no trace in the record."""
        await passed_on(self.service, self.body, run, self, authorization=self.authorization)

    async def _note_failure(self, turn: Turn, answer: Answer, error: BaseException) -> None:
        """Say in the minutes how it ended; half an answer is kept there, since nobody can build on it."""
        failure = failure_of(error) if isinstance(error, MinutebookError) else None
        said = answer.message.get("content") or None
        outcome = {"failed": failure.code if failure else type(error).__name__, "partial": said}
        await turn.fail(outcome)

    def _tell(self, turn: Turn) -> HistoryPruned:
        self.headers |= turn.headers()
        return self.service.tell(turn)

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


async def passed_on(
    service: Service, body: Mapping[str, Any], run: Run, into: Completing, *, authorization: str | None
) -> None:
    """Ask as the client asked, record nothing."""
    sent = {key: value for key, value in body.items() if key not in OURS}
    if not body.get("stream"):
        into.result = await service.upstream.ask(sent, authorization=authorization)
        run.say(b"")
        return
    async with service.upstream.stream(sent, authorization=authorization) as events:
        async for data in events:
            run.say(b"data: %s\n\n" % data)
    run.say(DONE)


def told_in_stream(error: BaseException) -> bytes:
    """An error in the middle of a stream, in the form that both official clients raise."""
    return sse(failure_of(error).body())
