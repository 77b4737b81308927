"""A google-adk plugin that records sessions in a conversation store and compacts them.

    app = App(name="shop", root_agent=agent, plugins=[AdkCompaction(store, model_info("gpt-4o"))])
    runner = Runner(app=app, session_service=sessions)

The events of google-adk's session stay unchanged. Their messages are appended to the store as well, a compaction is a fold
there, and only the requests to the model become shorter.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.registry import strategy_named
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.errors import CannotFit, FoldConflict, MissingExtra
from minutebook.history.protocol import EventBus
from minutebook.integrations.adk.record import AdkRecord
from minutebook.integrations.adk.view import RequestContent, tokens_of, with_events
from minutebook.store.base import ConversationStore
from minutebook.tokens import TokenCounter, counter_for
from minutebook.tokens.models import ModelInfo

try:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.plugins.base_plugin import BasePlugin
    from google.genai import types
except ImportError as error:
    raise MissingExtra("google-adk", "adk") from error

NOTICE: Final = "minutebook"
"""The key of the compaction notices in an event's `custom_metadata`."""


class EventScope(NamedTuple):
    """The part of a session that an event belongs to, which decides which agents see it. Each scope has a separate record."""

    isolation: str | None
    branch: str | None

    def sees(self, other: "EventScope") -> bool:
        """Whether google-adk shows an agent in this scope the events of another one.

        It does so within one isolation scope, for events without a branch, of the same branch, or of an enclosing one.
        """
        if self.isolation != other.isolation:
            return False
        return not self.branch or not other.branch or f"{self.branch}.".startswith(f"{other.branch}.")


Records = Mapping[EventScope, AdkRecord]


@dataclass(frozen=True, slots=True)
class _LastCall:
    """The last model call in one scope of a run, before folds are applied."""

    contents: list[RequestContent]
    fixed_tokens: int
    event_count: int
    """The number of events that the agent had seen."""


class AdkCompaction(BasePlugin):  # type: ignore[misc]  # google-adk is not installed where types are checked
    """Records every session in a store, and folds the record before a request that would not fit the model's window.

    After a run it also compacts the record if the next request would not fit, so that the next run does not start with a
    compaction. The notice of a compaction is in the next event of the run, under `custom_metadata["minutebook"]`, and on
    the bus; the notice of a compaction after the run is on the bus only.

    Raises:
        UnknownName: no strategy has that name.
    """

    def __init__(
        self,
        store: ConversationStore,
        model_info: ModelInfo,
        strategy: HistoryStrategy | str = "summarize",
        summarizer: Summarizer | None = None,
        *,
        counter: TokenCounter | None = None,
        bus: EventBus | None = None,
        reply_tokens: int | None = None,
        name: str = "minutebook",
    ) -> None:
        super().__init__(name=name)
        self.store = store
        self.strategy = strategy_named(strategy) if isinstance(strategy, str) else strategy
        self._counter = counter or counter_for(model_info.name)
        self._create_manager = partial(
            CompactionManager, self.strategy, model_info, summarizer, bus=bus, reply_tokens=reply_tokens
        )
        self._records: dict[str, AdkRecord] = {}
        """The records of the active runs, by conversation id."""
        self._notices: dict[str, list[str]] = {}
        """The notices that no event has yet, by run."""
        self._last_calls: dict[str, dict[EventScope, _LastCall]] = {}
        """The last call in each scope, by run."""

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> types.Content | None:
        """Append the new user message to the record."""
        await self._update_records(invocation_context)
        return None

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Update the record, fold it if the request does not fit, and apply the folds to the request.

        Raises:
            CannotFit: the messages that must be sent need more tokens than the window. google-adk wraps it in a
                RuntimeError.
        """
        context = callback_context.get_invocation_context()
        scope = EventScope(callback_context.isolation_scope, callback_context.branch)
        records, events = await self._update_records(context)
        visible = [records[_scope_of(event)].event(event.id) for event in events if scope.sees(_scope_of(event))]
        contents = with_events(llm_request.contents, visible, callback_context.agent_name)
        call = _LastCall(contents, self._fixed_tokens(llm_request), len(visible))
        self._last_calls.setdefault(context.invocation_id, {})[scope] = call
        visible_records = _records_in_folding_order(records, scope)
        await self._compact_to_fit(context.invocation_id, visible_records, contents, call.fixed_tokens)
        for record in visible_records:
            contents = await record.apply_folds(contents)
        llm_request.contents = [content.content for content in contents]
        return None

    async def _compact_to_fit(
        self, run: str, records: Sequence[AdkRecord], contents: list[RequestContent], fixed_tokens: int
    ) -> None:
        """Compact the first record whose compaction makes the request fit."""
        for index, record in enumerate(records):
            shortened = contents
            for other in (*records[:index], *records[index + 1 :]):
                shortened = await other.apply_folds(shortened)
            try:
                async with record.lock:
                    event = await record.compact(shortened, fixed_tokens)
            except CannotFit:
                if index == len(records) - 1:
                    raise
            else:
                if event is not None:
                    self._notices.setdefault(run, []).append(event.notice)
                return

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        """Add the pending notices to the event's metadata. The rest of the event stays unchanged."""
        if not event.partial and (notices := self._notices.pop(invocation_context.invocation_id, None)):
            event.custom_metadata = {**(event.custom_metadata or {}), NOTICE: notices}
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Append the last answer to the record, and compact it if the next request would not fit."""
        records, events = await self._update_records(invocation_context)
        run = invocation_context.invocation_id
        try:
            for scope, last_call in self._last_calls.get(run, {}).items():
                await self._compact_for_next_call(run, records, events, scope, last_call)
        finally:
            self._remove_run(run, records)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:  # noqa: ARG002
        """Append the messages from before the error to the record."""
        records, _ = await self._update_records(invocation_context)
        self._remove_run(invocation_context.invocation_id, records)

    async def _compact_for_next_call(
        self, run: str, records: Records, events: Sequence[Event], scope: EventScope, last_call: _LastCall
    ) -> None:
        """Compact if the expected next request in a scope would not fit: the last contents and the events since then."""
        new_events = [event for event in events if scope.sees(_scope_of(event))][last_call.event_count :]
        new_contents = [
            RequestContent(event.content, records[_scope_of(event)].event(event.id), exact=True) for event in new_events
        ]
        contents = [*last_call.contents, *new_contents]
        # The run has succeeded and must not fail here. If the contents do not fit, the next call raises that; after a
        # conflict, the fold of the other process has made room.
        with suppress(CannotFit, FoldConflict):
            await self._compact_to_fit(run, _records_in_folding_order(records, scope), contents, last_call.fixed_tokens)

    async def _update_records(self, context: InvocationContext) -> tuple[Records, list[Event]]:
        """Append new events, and return the records of the session and its events that have content.

        The session is loaded again, because the one in the context may be a stale copy.
        """
        app_name, user_id, session_id = context.session.app_name, context.session.user_id, context.session.id
        session = await context.session_service.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
        events = [] if session is None else [event for event in session.events if _has_content(event)]
        by_scope: dict[EventScope, list[Event]] = {}
        for event in events:
            by_scope.setdefault(_scope_of(event), []).append(event)
        records = {}
        for scope, scope_events in by_scope.items():
            record = records[scope] = self._record(conversation_of(context.session, *scope), user_id)
            async with record.lock:
                await record.add(scope_events)
        return records, events

    def _remove_run(self, run: str, records: Records) -> None:
        for record in records.values():
            self._records.pop(record.conversation, None)
        self._notices.pop(run, None)
        self._last_calls.pop(run, None)

    def _record(self, conversation: str, user: str) -> AdkRecord:
        if conversation not in self._records:
            self._records[conversation] = AdkRecord(
                self.store, conversation, user, create_manager=self._create_manager, counter=self._counter
            )
        return self._records[conversation]

    def _fixed_tokens(self, request: LlmRequest) -> int:
        """The tokens of instructions and tools, which a request has in addition to its contents."""
        instruction = request.config.system_instruction
        text = instruction if isinstance(instruction, str) else ""
        instruction_contents = (
            [] if isinstance(instruction, str) or instruction is None else _instruction_contents(instruction)
        )
        tools = [
            declaration.model_dump(mode="json", exclude_none=True)
            for tool in request.config.tools or []
            for declaration in getattr(tool, "function_declarations", None) or []
        ]
        tokens = self._counter.message({"role": "system", "content": text}) if text else 0
        tokens += sum(tokens_of(content, self._counter) for content in instruction_contents)
        return tokens + (self._counter.count(json.dumps(tools)) if tools else 0)


def conversation_of(session: Any, isolation_scope: str | None = None, branch: str | None = None) -> str:
    """The conversation id of a google-adk session in our store, or of one scope of it that only some agents see."""
    parts = [session.app_name, session.user_id, session.id]
    if isolation_scope or branch:
        parts += [isolation_scope or "", branch or ""]
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _has_content(event: Event) -> bool:
    return not event.partial and event.content is not None and bool(event.content.parts)


def _scope_of(event: Event) -> EventScope:
    return EventScope(event.isolation_scope, event.branch)


def _records_in_folding_order(records: Records, scope: EventScope) -> list[AdkRecord]:
    """The records that an agent sees, in the order in which they are folded: its own branch, then the enclosing ones."""
    visible = [other for other in records if scope.sees(other)]
    visible.sort(key=lambda other: (other != scope, -len(other.branch or "")))
    return [records[other] for other in visible]


def _instruction_contents(instruction: Any) -> Sequence[types.Content]:
    if isinstance(instruction, types.Content):
        return [instruction]
    parts = instruction if isinstance(instruction, list) else [instruction]
    return [types.Content(parts=[types.Part(text=part) if isinstance(part, str) else part for part in parts])]
