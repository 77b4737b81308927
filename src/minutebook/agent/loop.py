"""The agent loop: build a view, call the model, run its tools, and repeat until it gives a final answer.

Every message is recorded. A run can end anywhere: a tool raises, the deadline passes, the task is cancelled. The messages
up to then are in the record, and every tool call in it has a result, so the next run can continue from there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from uuid import UUID

from minutebook.agent.events import AnswerRestarted, Emit, ModelAnswered, ViewBuilt
from minutebook.agent.messages import Delta, ModelReply, ModelRequest, PromptResponse, TextDelta, ToolsAndSchema, Usage
from minutebook.agent.prompt_message import PromptMessage
from minutebook.agent.recorder import Recorder, raise_handler_error, with_valid_tool_calls
from minutebook.agent.retry import retry_overflow
from minutebook.agent.tools import ToolRunner, tool_calls_of
from minutebook.compaction.manager import CompactionManager, CompactionResult
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
from minutebook.history.compose import ObservableManager, PassthroughManager
from minutebook.history.overflow import AdaptiveViewBuilder
from minutebook.history.protocol import SessionProtocol
from minutebook.history.view import View
from minutebook.prompt.tools import ToolContext
from minutebook.record.entry import ToolCall
from minutebook.record.fold import Fold
from minutebook.record.message import Message, role_of, text_of
from minutebook.record.transcript import Transcript

if TYPE_CHECKING:
    from minutebook.agent.runner import ConversationRunner, StoredRecord

Out = TypeVar("Out")
_LOG: Final = logging.getLogger("minutebook.agent")


class AgentRun(Generic[Out]):
    """The state of one run of a `ConversationRunner`, whose fields are its settings."""

    def __init__(
        self,
        runner: "ConversationRunner[Out]",
        emit: Emit,
        *,
        evaluation_id: UUID,
        session: SessionProtocol,
        streaming: bool,
        record: "Transcript | StoredRecord | None",
    ) -> None:
        """`session` is the runner's session, or a nested session if another evaluation is in progress in that one.

        `record` is the conversation to continue. If it is a `StoredRecord`, new messages are saved to it.
        """
        assert runner.bus is not None
        assert runner.budget_tracker is not None
        self.runner, self.adapter, self.session = runner, runner.adapter, session
        self.emit, self.streaming = emit, streaming
        self.bus, self.tracker = runner.bus, runner.budget_tracker
        self.stored_record = None if record is None or isinstance(record, Transcript) else record
        stored_manager = None if self.stored_record is None else self.stored_record.manager
        self.manager = runner.history_manager or stored_manager or PassthroughManager()
        for section in runner.prompt.template.sections:
            section.check_run(session, self.manager)
        self.prompt_message = PromptMessage(
            runner.prompt,
            session=session,
            overrides=runner.visibility_overrides,
            native_output=self.adapter.native_output,
        )
        manager_counter = getattr(self.manager, "default_counter", lambda: None)()
        conversation, self.first_messages = self.prompt_message.start(
            record if isinstance(record, Transcript) or record is None else record.record,
            runner.request,
            manager_counter or self.adapter.counter,
            resume=runner.resume,
            is_stored=self.stored_record is not None,
            is_recorded=runner.is_prompt_recorded,
            start=0 if self.stored_record is None else self.stored_record.start,
        )
        self.recorder = Recorder(
            conversation=conversation,
            bus=self.bus,
            session_id=getattr(session, "session_id", None),
            scope=getattr(session, "scope", None),
            prompt_name=runner.prompt.name,
            evaluation_id=evaluation_id,
            provider=self.adapter.name,
            model=self.adapter.model,
            clock=runner.clock,
        )
        self.observer = (
            self.manager
            if isinstance(self.manager, ObservableManager)
            else ObservableManager(self.manager, self.bus, runner.prompt.name, clock=runner.clock)
        )
        self.view_builder = AdaptiveViewBuilder(
            self.observer.inner,
            session=session,
            provider=self.adapter.provider,
            max_tokens=runner.max_tokens if self.stored_record is None else self.stored_record.max_tokens,
            prompt_name=runner.prompt.name,
            strict=runner.strict,
        )
        self.tool_runner = ToolRunner(emit=emit, telemetry=self.adapter.telemetry)
        self.tools_and_schema = self._tools_and_schema()
        self.usage = Usage()
        self.model_calls = self.expansions = self.failed_outputs = 0
        self.compactor_folds: Sequence[Fold] = ()
        """The folds that the compactors returned before the last model call."""
        self.partial_text: list[str] = []
        """The text deltas of an answer that is still streaming."""

    async def run(self) -> PromptResponse[Out]:
        """Run until the model gives a final answer."""
        deadline = self.runner.deadline
        try:
            async with asyncio.timeout(None if deadline is None else deadline.remaining_seconds()) as timeout:
                if self.stored_record is not None and (message := await self.stored_record.find_interrupted_message()):
                    self.recorder.record(message)
                self.recorder.close_open_calls({})  # the given conversation may end with unanswered tool calls
                for message in self.first_messages:
                    self.recorder.record(message, is_prompt=self.prompt_message.is_prompt(message))
                if self.runner.resume and (response := await self._find_answer()):
                    return response
                while True:
                    await self._save()
                    view, reply = await self._call_model()
                    self.recorder.record(reply.message)
                    if calls := tool_calls_of(reply.message):
                        await self._run_tools(reply.message, calls)
                    elif response := self._parse_answer(view, reply):
                        await self._save()
                        with suppress(CannotFit):  # this run has its answer; the next one raises it again
                            await self._compact()
                        return response
        except TimeoutError as error:
            if deadline is None or not timeout.expired():
                raise
            raise deadline.exceeded_error(f"prompt {self.runner.prompt.name!r}") from error
        finally:
            try:
                self._close_record()
            finally:
                await self._save()

    async def _save(self) -> None:
        """Store the messages that were recorded since the last call, if the conversation is stored."""
        entries, self.recorder.unsaved_entries = self.recorder.unsaved_entries, []
        if self.stored_record is not None:
            await self.stored_record.save(entries, session=self.session)
            # Another process may have appended, and `save` has then loaded the record again.
            self.recorder.conversation = self.stored_record.record

    async def _find_answer(self) -> PromptResponse[Out] | None:
        """The response for the final answer at the end of the conversation; None if the model must be called."""
        conversation = self.recorder.conversation
        message = conversation[-1] if conversation else {}
        if role_of(message) != "assistant" or tool_calls_of(message) or message.get("interrupted"):
            return None
        view = self.view_builder.view(conversation, await self._update_folds())
        return self._parse_answer(view, ModelReply(dict(message)))

    async def _call_model(self) -> tuple[View, ModelReply]:
        """Send the next view to the model. After a context overflow, retry with a shorter view."""
        if self.model_calls >= self.runner.max_calls:
            raise TooManyCalls(self.runner.prompt.name, self.model_calls)
        folds = await self._update_folds()
        view = self._build_view(folds)

        async def shorten(overflow: ContextOverflow) -> None:
            nonlocal view
            self.view_builder.lower_limit(view, overflow)
            view = self._build_view(folds)

        async def send() -> ModelReply:
            nonlocal view
            if self.stored_record is not None:
                view = replace(view, number=await self.stored_record.begin_request(view))
            self.emit(ViewBuilt(view))
            return await self._send(view)

        try:
            reply = await retry_overflow(send, shorten)
        except ContextOverflow as overflow:
            self.view_builder.require_shorter_view(view, overflow, folds)
            raise
        return view, reply

    async def _update_folds(self) -> Sequence[Fold]:
        """Run the compactors and refresh the prompt; return the folds of both.

        The compactors run first: they may change the session's state, which the prompt shows.
        """
        self.compactor_folds = await self._compact()
        if message := self.prompt_message.refresh():
            self.recorder.record_changed_prompt(message)
            self.tools_and_schema = self._tools_and_schema()
        return self.prompt_message.folds_with(self.compactor_folds)

    def _tools_and_schema(self) -> ToolsAndSchema:
        return ToolsAndSchema(self.prompt_message.rendered, strict_tools=self.adapter.strict_tools)

    async def _compact(self) -> Sequence[Fold]:
        """Let the stored conversation's strategy and the runner's compactor fold old messages, and return all folds."""
        folds: list[Fold] = []
        for compactor in (self.stored_record, self.runner.compactor):
            if compactor is None:
                continue
            check_and_apply: Callable[..., Awaitable[CompactionResult]] = compactor.check_and_apply
            if isinstance(compactor, CompactionManager):
                check_and_apply = partial(check_and_apply, manager=self.observer.inner)
            try:
                compaction = await check_and_apply(
                    self.recorder.conversation, session=self.session, overhead_tokens=self._overhead_tokens()
                )
            except MinutebookError:
                raise
            except Exception as error:  # a compactor may be user code
                problem = f"{type(error).__name__}: {error}"
                raise PromptEvaluationError(self.runner.prompt.name, "request", problem) from error
            if compaction.event is not None:
                self.emit(compaction.event)
            folds += compaction.folds
        return folds

    def _overhead_tokens(self) -> int:
        """The tokens of a request that are not in the conversation: the tools, and the growth of the prompt's text."""
        conversation = self.recorder.conversation
        return self.tools_and_schema.tokens(conversation.counter) + self.prompt_message.added_tokens(conversation)

    def _next_tokens(self) -> int:
        """The tokens of a request that would be sent now."""
        conversation = self.recorder.conversation
        view = self.view_builder.view(conversation, self.prompt_message.folds_with(self.compactor_folds, is_next=True))
        return view.tokens + self.tools_and_schema.tokens(conversation.counter)

    def _build_view(self, folds: Sequence[Fold]) -> View:
        """Build the view that is sent next, publish its sizes, and log what was repaired."""
        view = self.view_builder.view(self.recorder.conversation, folds)
        for violation in view.violations:
            _LOG.warning("prompt %s: the view was repaired: %s", self.runner.prompt.name, violation)
        result = self.observer.publish(
            len(view.record),
            len(view.curated),
            self.session,
            tokens_before=view.record.tokens,
            tokens_after=view.tokens,
            violations=view.violations,
        )
        raise_handler_error(result, self.runner.prompt.name, "request")
        return view

    async def _send(self, view: View) -> ModelReply:
        """Send one request to the model, with the adapter's retries, and count its usage."""
        self.tracker.check(Usage(input_tokens=view.tokens))
        tools = self.tools_and_schema.tools
        tool_choice = self.runner.tool_choice if not self.model_calls else "auto"
        request = ModelRequest(tuple(view.curated), tools, tool_choice if tools else None, self.tools_and_schema.output)
        sizes = {
            "tokens_before": view.record.tokens,
            "tokens_after": view.tokens,
            "messages_before": len(view.record),
            "messages_after": len(view.curated),
        }
        with self.adapter.telemetry.call(self.adapter.name, self.adapter.model, request, sizes) as span:
            reply = await self.adapter.retry_policy.call(
                lambda: self.adapter.ask(request, on_delta=self._on_delta if self.streaming else None),
                on_retry=self._on_retry,
            )
            span.set_answer(
                reply.usage,
                finish=reply.finish,
                model=reply.model,
                response_id=reply.response_id,
                message=reply.message,
            )
        self.partial_text.clear()
        self.model_calls += 1
        self.usage += reply.usage
        self.tracker.record(reply.usage)
        if self.stored_record is not None:
            self.stored_record.end_request(reply.usage, reply.finish)
        self.emit(ModelAnswered(reply.usage, reply.finish))
        return replace(reply, message=with_valid_tool_calls(reply.message))

    def _on_delta(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self.partial_text.append(delta.text)
        self.emit(delta)

    def _on_retry(self, failure: ProviderFailed) -> None:
        self.partial_text.clear()
        self.emit(AnswerRestarted(str(failure)))

    async def _run_tools(self, message: Message, calls: Sequence[ToolCall]) -> None:
        """Run the tools in parallel, and record their results in the order of the calls."""
        runner = self.runner
        context = ToolContext(
            runner.prompt,
            self.prompt_message.rendered,
            self.session,
            deadline=runner.deadline,
            bus=self.bus,
            next_tokens=self._next_tokens,
            record=self.recorder.conversation,
        )
        tools = [self.prompt_message.rendered.tool(call.name) for call in calls]
        if self.stored_record is not None and any(tool is not None and not tool.idempotent for tool in tools):
            await self.stored_record.begin_tools(message)
        await self.tool_runner.run(calls, context)
        outcomes = [self.tool_runner.outcomes[call.id] for call in calls]
        for outcome in outcomes:
            self.recorder.record(outcome.message)
        self.tool_runner.outcomes.clear()  # some servers use the same call ids again in their next answer
        for error in [outcome.error for outcome in outcomes if outcome.error is not None]:
            if not isinstance(error, VisibilityExpansionRequired) or self.expansions >= runner.max_expansions:
                raise error
            self.expansions += 1
            self.prompt_message.override_visibility(error.requested_overrides)

    def _parse_answer(self, view: View, reply: ModelReply) -> PromptResponse[Out] | None:
        """Parse the final answer. If it is invalid and attempts are left, record the problem for the model and return None."""
        refusal = reply.message.get("refusal")
        text = text_of(reply.message) or refusal or ""
        try:
            output = self.prompt_message.rendered.parse(text)
        except OutputParseError as error:
            self.failed_outputs += 1
            if self.failed_outputs >= self.runner.max_output_attempts:
                raise
            self.recorder.record({"role": "user", "content": str(error)})
            return None
        return PromptResponse(
            prompt_name=self.runner.prompt.name,
            text=text,
            output=output,
            evaluation_id=self.recorder.evaluation_id,
            usage=self.usage,
            calls=self.model_calls,
            finish=reply.finish,
            refusal=refusal,
            conversation=self.recorder.conversation,
            view=view,
        )

    def _close_record(self) -> None:
        """Record the text of a partial answer and a result for every open call. A finished run has neither."""
        if self.partial_text:
            text = "".join(self.partial_text)
            self.partial_text.clear()
            self.recorder.record({"role": "assistant", "content": text, "interrupted": True})
        outcomes = self.tool_runner.outcomes
        self.recorder.close_open_calls({call_id: outcome.message for call_id, outcome in outcomes.items()})
