"""google-adk agents with our record and our compaction: a plugin for its apps.

    app = App(name="shop", root_agent=agent, plugins=[AdkCompaction(store, model_info("gpt-4o"))])
    runner = Runner(app=app, session_service=sessions)

google-adk's session keeps its events as they are. What they say is appended to our store as well, a compaction is a fold
there, and only what the model is sent is shorter.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.registry import strategy_named
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.errors import CannotFit, FoldConflict, MissingExtra
from minutebook.history.protocol import EventBus
from minutebook.integrations.adk.record import AdkRecord
from minutebook.integrations.adk.view import Placed, placed_in, tokens_of
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
"""Where in an event's `custom_metadata` the notices stand."""

Scope = tuple[str | None, str | None]
"""What sets events apart that not every agent of a session sees: isolation scope and branch."""


@dataclass(frozen=True, slots=True)
class _Call:
    """The last call of one agent in a run, without any folds."""

    placed: list[Placed]
    fixed_tokens: int
    heard: int
    """How many events the agent had seen."""


class AdkCompaction(BasePlugin):  # type: ignore[misc]  # google-adk is not installed where types are checked
    """Keeps the record of every session in a store, and folds it before a call that the model has no room for.

    It is looked at after a run too, so that the next one need not begin with it. The notice of a compaction is on the
    next event of the run, under `custom_metadata["minutebook"]`, and on the bus; one after the run is on the bus alone.

    Raises:
        UnknownName: there is none of that name.
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
        self._compactor = partial(
            CompactionManager, self.strategy, model_info, summarizer, bus=bus, reply_tokens=reply_tokens
        )
        self._records: dict[str, AdkRecord] = {}
        """Those of the runs that are going on."""
        self._notices: dict[str, list[str]] = {}
        self._calls: dict[str, dict[Scope, _Call]] = {}
        """The last call in each place of each run that is going on."""

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> types.Content | None:
        """Put the new message in the record."""
        await self._recorded(invocation_context)
        return None

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Bring the record up to date, fold what must be folded, and have the model sent what the folds show.

        Raises:
            CannotFit: what must be sent is larger than the window. google-adk wraps it in a RuntimeError.
        """
        context = callback_context.get_invocation_context()
        here = (callback_context.isolation_scope, callback_context.branch)
        seen, events = await self._recorded(context)
        said = [seen[_scope(event)].said(event.id) for event in events if _sees(here, _scope(event))]
        placed = placed_in(said, llm_request.contents, callback_context.agent_name)
        made = _Call(placed, self._fixed_tokens(llm_request), len(said))
        self._calls.setdefault(context.invocation_id, {})[here] = made
        records = _giving_way(seen, here)
        await self._make_room(context.invocation_id, records, placed, made.fixed_tokens)
        for record in records:
            placed = await record.shown(placed)
        llm_request.contents = [one.content for one in placed]
        return None

    async def _make_room(self, run: str, records: Sequence[AdkRecord], placed: list[Placed], fixed: int) -> None:
        """Fold the first record with which the call fits."""
        for place, record in enumerate(records):
            others = placed
            for other in (*records[:place], *records[place + 1 :]):
                others = await other.shown(others)
            try:
                async with record.lock:
                    event = await record.compact(others, fixed)
            except CannotFit:
                if place == len(records) - 1:
                    raise
            else:
                if event is not None:
                    self._notices.setdefault(run, []).append(event.notice)
                return

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        """Have the notices reach whoever reads the run's events. The event is theirs: only its metadata grows."""
        if not event.partial and (notices := self._notices.pop(invocation_context.invocation_id, None)):
            event.custom_metadata = {**(event.custom_metadata or {}), NOTICE: notices}
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Put the last answer in the record, and fold what the next call would have no room for."""
        seen, events = await self._recorded(invocation_context)
        try:
            for here, last in self._calls.get(invocation_context.invocation_id, {}).items():
                await self._look_ahead(invocation_context.invocation_id, seen, events, here, last)
        finally:
            self._forget(invocation_context, seen)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:  # noqa: ARG002
        """Put what was said before the run broke in the record."""
        seen, _ = await self._recorded(invocation_context)
        self._forget(invocation_context, seen)

    async def _look_ahead(
        self, run: str, seen: dict[Scope, AdkRecord], events: Sequence[Event], here: Scope, last: _Call
    ) -> None:
        """Make room for what the agent would be sent next: what it was sent last, and what was said since."""
        new = [event for event in events if _sees(here, _scope(event))][last.heard :]
        since = [Placed(event.content, seen[_scope(event)].said(event.id), exact=True) for event in new]
        # A run that is over must not fail: what does not fit is the next call's trouble, and whoever folded it first
        # has made the room.
        with suppress(CannotFit, FoldConflict):
            await self._make_room(run, _giving_way(seen, here), [*last.placed, *since], last.fixed_tokens)

    async def _recorded(self, context: InvocationContext) -> tuple[dict[Scope, AdkRecord], list[Event]]:
        """The records of a session, up to date, and the events that say something, in their order.

        The session is read anew: the one at hand may be a stale copy.
        """
        at_hand = context.session
        session = await context.session_service.get_session(
            app_name=at_hand.app_name, user_id=at_hand.user_id, session_id=at_hand.id
        )
        spoken = [] if session is None else [event for event in session.events if _is_spoken(event)]
        said: dict[Scope, list[Event]] = {}
        for event in spoken:
            said.setdefault(_scope(event), []).append(event)
        records = {}
        for scope, events in said.items():
            record = records[scope] = self._record(conversation_of(at_hand, *scope), at_hand.user_id)
            async with record.lock:
                await record.add(events)
        return records, spoken

    def _forget(self, context: InvocationContext, seen: dict[Scope, AdkRecord]) -> None:
        """Let go of what was held for a run that is over."""
        for record in seen.values():
            self._records.pop(record.conversation, None)
        self._notices.pop(context.invocation_id, None)
        self._calls.pop(context.invocation_id, None)

    def _record(self, conversation: str, user: str) -> AdkRecord:
        if conversation not in self._records:
            self._records[conversation] = AdkRecord(
                self.store, conversation, user, compactor=self._compactor, counter=self._counter
            )
        return self._records[conversation]

    def _fixed_tokens(self, request: LlmRequest) -> int:
        """What a call sends besides contents: instructions and tools."""
        instruction = request.config.system_instruction
        text = instruction if isinstance(instruction, str) else ""
        others = [] if isinstance(instruction, str) or instruction is None else _as_contents(instruction)
        tools = [
            declared.model_dump(mode="json", exclude_none=True)
            for tool in request.config.tools or []
            for declared in getattr(tool, "function_declarations", None) or []
        ]
        fixed = self._counter.message({"role": "system", "content": text}) if text else 0
        fixed += sum(tokens_of(content, self._counter) for content in others)
        return fixed + (self._counter.count(json.dumps(tools)) if tools else 0)


def conversation_of(session: Any, isolation_scope: str | None = None, branch: str | None = None) -> str:
    """The id under which our store keeps a google-adk session, or the part of it that only some of its agents see."""
    parts = [session.app_name, session.user_id, session.id]
    if isolation_scope or branch:
        parts += [isolation_scope or "", branch or ""]
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


def _is_spoken(event: Event) -> bool:
    return not event.partial and event.content is not None and bool(event.content.parts)


def _scope(event: Event) -> Scope:
    return event.isolation_scope, event.branch


def _giving_way(seen: dict[Scope, AdkRecord], here: Scope) -> list[AdkRecord]:
    """The records that an agent sees: its own branch gives way first, then the ones around it."""
    records = [seen[scope] for scope in sorted(seen, key=_depth, reverse=True) if _sees(here, scope)]
    return sorted(records, key=lambda record: record is not seen.get(here))


def _depth(scope: Scope) -> int:
    return len(scope[1] or "")


def _sees(here: Scope, there: Scope) -> bool:
    """Whether google-adk shows one agent what was said in another place: in no branch, its own, or one around it."""
    mine, theirs = here[1], there[1]
    return here[0] == there[0] and (not mine or not theirs or f"{mine}.".startswith(f"{theirs}."))


def _as_contents(instruction: Any) -> Sequence[types.Content]:
    if isinstance(instruction, types.Content):
        return [instruction]
    parts = instruction if isinstance(instruction, list) else [instruction]
    return [types.Content(parts=[types.Part(text=part) if isinstance(part, str) else part for part in parts])]
