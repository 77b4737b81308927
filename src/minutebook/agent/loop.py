"""The agent loop: make a view, ask the model, run its tools, and so on until it answers. All that is said is recorded.

A run can end anywhere: a tool raises, time is up, somebody cancels. What was said until then is in the record, and no
call in it is left without a result, so the next run can go on from there.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from minutebook.agent.events import AnswerRestarted, Emit, ModelAnswered, ViewMade
from minutebook.agent.messages import Delta, ModelReply, ModelRequest, Offer, PromptResponse, TextDelta, Usage
from minutebook.agent.prompt_message import Opening
from minutebook.agent.recorder import Recorder, publish, sound
from minutebook.agent.retry import retry_overflow
from minutebook.agent.tools import Workbench, calls_of
from minutebook.errors import (
    CannotFit,
    ContextOverflow,
    MinutebookError,
    OutputParseError,
    PromptEvaluationError,
    ProviderFailed,
    TooManyCalls,
    VisibilityExpansionRequired,
)
from minutebook.history.compose import ObservableManager, PassthroughManager, strategy_name
from minutebook.history.overflow import Lens
from minutebook.history.protocol import HistoryCurated
from minutebook.history.view import View
from minutebook.prompt.tools import ToolContext
from minutebook.record.entry import ToolCall
from minutebook.record.fold import Fold
from minutebook.record.message import text_of

if TYPE_CHECKING:
    from minutebook.agent.runner import ConversationRunner

Out = TypeVar("Out")


class Run(Generic[Out]):
    """One run: what `ConversationRunner` was told, and how far it has come."""

    def __init__(self, runner: "ConversationRunner[Out]", emit: Emit, *, streaming: bool) -> None:
        assert runner.bus is not None
        assert runner.budget_tracker is not None
        self.runner, self.adapter = runner, runner.adapter
        self.emit, self.streaming = emit, streaming
        self.bus, self.tracker = runner.bus, runner.budget_tracker
        self.manager = runner.history_manager or PassthroughManager()
        self.opening = Opening(
            runner.prompt,
            session=runner.session,
            overrides=runner.visibility_overrides,
            native_output=self.adapter.native_output,
        )
        counts_with = getattr(self.manager, "counts_with", lambda: None)()
        conversation, self.first = self.opening.begin(
            runner.conversation, runner.request, counts_with or self.adapter.counter
        )
        self.recorder = Recorder(
            conversation=conversation,
            bus=self.bus,
            session_id=getattr(runner.session, "session_id", None),
            prompt_name=runner.prompt.name,
            evaluation_id=runner.new_id(),
            provider=self.adapter.name,
            model=self.adapter.model,
            clock=runner.clock,
        )
        self.lens = Lens(
            self.manager,
            session=runner.session,
            provider=self.adapter.provider,
            max_tokens=runner.max_tokens,
            prompt_name=runner.prompt.name,
        )
        self.workbench = Workbench(emit=emit, telemetry=self.adapter.telemetry)
        self.offer = Offer(self.opening.rendered, strict_tools=self.adapter.strict_tools)
        self.usage = Usage()
        self.calls = self.expansions = self.failed_outputs = 0
        self.compacted: Sequence[Fold] = ()
        """What the compactor had folded when it was last asked."""
        self.heard: list[str] = []
        """The words of an answer that is still coming."""

    async def to_the_end(self) -> PromptResponse[Out]:
        deadline = self.runner.deadline
        try:
            async with asyncio.timeout(None if deadline is None else deadline.remaining_seconds()) as limit:
                self.recorder.settle({})  # a conversation from elsewhere may end in calls that nobody will answer
                for message in self.first:
                    self.recorder.say(message, is_prompt=self.opening.is_prompt(message))
                while True:
                    view, reply = await self._ask()
                    self.recorder.say(reply.message)
                    if calls := calls_of(reply.message):
                        await self._use(calls)
                    elif response := self._response(view, reply):
                        with suppress(CannotFit):  # the next call's trouble, if there is one
                            await self._compacted()
                        return response
        except TimeoutError as error:
            if deadline is None or not limit.expired():
                raise
            raise deadline.exceeded(f"prompt {self.runner.prompt.name!r}") from error
        finally:
            self._settle()

    async def _ask(self) -> tuple[View, ModelReply]:
        """What the model is sent next, and what it answers; if that was too long, again with less."""
        if self.calls >= self.runner.max_calls:
            raise TooManyCalls(self.runner.prompt.name, self.calls)
        folds = await self._folds()
        view = self._view(folds)

        def shorten(overflow: ContextOverflow) -> None:
            nonlocal view
            self.lens.narrow(view, overflow)
            view = self._view(folds)

        try:
            reply = await retry_overflow(lambda: self._call(view), shorten)
        except ContextOverflow as overflow:
            raise self.lens.too_long(view) from overflow
        return view, reply

    async def _folds(self) -> Sequence[Fold]:
        """What is shown in place of parts of the conversation: the prompt as it is now, and old parts in short.

        The prompt comes after the compactor, for what that has changed in the session is for the prompt to show.
        """
        self.compacted = await self._compacted()
        if message := self.opening.changed():
            self.recorder.note(message)
            self.offer = Offer(self.opening.rendered, strict_tools=self.adapter.strict_tools)
        return (*self.opening.folds, *self.compacted)

    async def _compacted(self) -> Sequence[Fold]:
        """What the compactor has folded by now."""
        if self.runner.compactor is None:
            return ()
        conversation = self.recorder.conversation
        try:
            compaction = await self.runner.compactor.check_and_apply(
                conversation,
                session=self.runner.session,
                overhead_tokens=self._overhead(),
            )
        except MinutebookError:
            raise
        except Exception as error:  # a compactor is anybody's code
            problem = f"{type(error).__name__}: {error}"
            raise PromptEvaluationError(self.runner.prompt.name, "request", problem) from error
        if compaction.event is not None:
            self.emit(compaction.event)
        return compaction.folds

    def _overhead(self) -> int:
        """What a call sends besides the conversation: the tools, and what the prompt has gained since it was said."""
        conversation = self.recorder.conversation
        return self.offer.tokens(conversation.counter) + self.opening.growth(conversation)

    def _next_tokens(self) -> int:
        """What the next call would send, if it were made now."""
        conversation = self.recorder.conversation
        view = self.lens.view(conversation, (*self.opening.upcoming(), *self.compacted))
        return view.tokens + self.offer.tokens(conversation.counter)

    def _view(self, folds: Sequence[Fold]) -> View:
        view = self.lens.view(self.recorder.conversation, folds)
        if not isinstance(self.manager, ObservableManager):  # that one publishes the event itself
            event = HistoryCurated(
                prompt_name=self.runner.prompt.name,
                original_count=len(view.record),
                curated_count=len(view.messages),
                strategy=strategy_name(self.manager),
                session_id=getattr(self.runner.session, "session_id", None),
                created_at=self.runner.clock(),
                tokens_before=view.record.tokens,
                tokens_after=view.tokens,
            )
            publish(self.bus, event, self.runner.prompt.name, "request")
        self.emit(ViewMade(view))
        return view

    async def _call(self, view: View) -> ModelReply:
        """One call of the model; the same request is sent again for as long as the provider is busy."""
        self.tracker.check(Usage(input_tokens=view.tokens))
        choice = self.runner.tool_choice if not self.calls else "auto"
        request = ModelRequest(
            tuple(view.messages), self.offer.tools, choice if self.offer.tools else None, self.offer.output
        )
        sizes = {
            "tokens_before": view.record.tokens,
            "tokens_after": view.tokens,
            "messages_before": len(view.record),
            "messages_after": len(view.messages),
        }
        with self.adapter.telemetry.call(self.adapter.name, self.adapter.model, request, sizes) as span:
            reply = await self.adapter.throttle.persist(
                lambda: self.adapter.ask(request, on_delta=self._hear if self.streaming else None),
                on_retry=self._start_again,
            )
            span.answered(
                reply.usage,
                finish=reply.finish,
                model=reply.model,
                response_id=reply.response_id,
                message=reply.message,
            )
        self.heard.clear()
        self.calls += 1
        self.usage += reply.usage
        self.tracker.record(reply.usage)
        self.emit(ModelAnswered(reply.usage, reply.finish))
        return replace(reply, message=sound(reply.message))

    def _hear(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self.heard.append(delta.text)
        self.emit(delta)

    def _start_again(self, failure: ProviderFailed) -> None:
        self.heard.clear()
        self.emit(AnswerRestarted(str(failure)))

    async def _use(self, calls: Sequence[ToolCall]) -> None:
        """Run the tools at the same time, and record their results in the order of the calls."""
        runner = self.runner
        context = ToolContext(
            runner.prompt,
            self.opening.rendered,
            runner.session,
            deadline=runner.deadline,
            bus=self.bus,
            next_tokens=self._next_tokens,
        )
        await self.workbench.use(calls, context)
        outcomes = [self.workbench.outcomes[call.id] for call in calls]
        for outcome in outcomes:
            self.recorder.say(outcome.message)
        self.workbench.outcomes.clear()  # servers that count their calls anew use an id twice
        for error in [outcome.raised for outcome in outcomes if outcome.raised is not None]:
            if not isinstance(error, VisibilityExpansionRequired) or self.expansions >= runner.max_expansions:
                raise error
            self.expansions += 1
            self.opening.open(error.requested_overrides)

    def _response(self, view: View, reply: ModelReply) -> PromptResponse[Out] | None:
        """The answer as it was asked for; None where the model is told what is wrong with it and asked again."""
        refusal = reply.message.get("refusal")
        text = text_of(reply.message) or refusal or ""
        try:
            output = self.opening.rendered.parse(text)
        except OutputParseError as error:
            self.failed_outputs += 1
            if self.failed_outputs >= self.runner.max_output_attempts:
                raise
            self.recorder.say({"role": "user", "content": str(error)})
            return None
        return PromptResponse(
            prompt_name=self.runner.prompt.name,
            text=text,
            output=output,
            evaluation_id=self.recorder.evaluation_id,
            usage=self.usage,
            calls=self.calls,
            finish=reply.finish,
            refusal=refusal,
            conversation=self.recorder.conversation,
            view=view,
        )

    def _settle(self) -> None:
        """Leave nothing unsaid that was said: half an answer, results that were there already, calls without one."""
        if self.heard:
            said = "".join(self.heard)
            self.heard.clear()
            self.recorder.say({"role": "assistant", "content": said, "interrupted": True})
        self.recorder.settle({call_id: done.message for call_id, done in self.workbench.outcomes.items()})
