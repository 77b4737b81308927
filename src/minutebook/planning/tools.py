"""The tools by which a model manages its own context, step by step.

What the handlers of the planning tools share: the session, and what to say when a call cannot be meant.

How full the context is: what the next call would send, beside what the model can read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NoReturn, TypeAlias

from minutebook.errors import InvalidSetting, ToolValidationError, VisibilityExpansionRequired
from minutebook.history.protocol import SessionProtocol
from minutebook.planning.events import (
    CONTEXT_PRESSURE,
    EXPAND_STEP,
    PIN_STEP,
    REFERENCE_STEP,
    SETUP_PLAN,
    SUMMARIZE_STEP,
    ExpandStep,
    PinStep,
    SummarizeStep,
)
from minutebook.planning.folds import bound
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.reducers import find_history
from minutebook.planning.task_history import UNASSIGNED, StepHistory, TaskHistory, Turn
from minutebook.prompt.tools import AnyTool, RenderContext, Tool, ToolContext, ToolResult
from minutebook.prompt.visibility import SectionVisibility
from minutebook.session.state import Session
from minutebook.tokens.models import ModelInfo

MAX_SUMMARY: Final = 1000
MAX_TITLE: Final = 200
NO_PLAN: Final = f"There is no plan yet. Call `{SETUP_PLAN}` with an objective and its steps first."


def session_of(context: RenderContext | ToolContext, own: Session | None) -> Session | None:
    """The session that a rendering or a call is for, or else the one that the section was made with."""
    found: SessionProtocol | None = context.session
    return found if isinstance(found, Session) else own


def require_session(context: ToolContext, own: Session | None) -> Session:
    session = session_of(context, own)
    if session is None:
        raise ToolValidationError("There is no session here that could keep a plan; go on without one.")
    return session


def require_plan(session: Session) -> Plan:
    plan = session.query(Plan).latest()
    if plan is None:
        raise ToolValidationError(NO_PLAN)
    return plan


def require_plan_step(plan: Plan, step_id: int) -> PlanStep:
    step = plan.step(step_id)
    if step is None:
        raise ToolValidationError(f"The plan has no step {step_id}. {_ids([one.step_id for one in plan.steps])}")
    return step


def require_step(session: Session, step_id: int) -> tuple[TaskHistory, StepHistory]:
    """The step that a call names, and the history it is in."""
    histories = session.query(TaskHistory).all()
    if not histories:
        raise ToolValidationError(f"There is no task history yet. {NO_PLAN}")
    history = find_history(histories, step_id)
    step = None if history is None else history.step(step_id)
    if history is None or step is None:
        if step_id == UNASSIGNED:
            raise ToolValidationError("Nothing was said outside of the steps.")
        known = [one.step_id for history in histories for one in history.steps]
        raise ToolValidationError(f"There is no step {step_id}. {_ids(known) if known else NO_PLAN}")
    return history, step


def one_line(name: str, text: str, longest: int) -> str:
    """A title or an objective, if it is one line of a bearable length."""
    stripped = text.strip()
    if not stripped:
        raise ToolValidationError(f"The {name} is empty. Say in a few words what it is.")
    if "\n" in stripped or "\r" in stripped:
        raise ToolValidationError(f"The {name} has several lines. Give one.")
    if len(stripped) > longest:
        raise ToolValidationError(f"The {name} has {len(stripped)} characters. Give at most {longest}.")
    return stripped


def require_summary(text: str) -> str:
    """A summary of 1 to 1,000 characters."""
    summary = text.strip()
    if not summary:
        raise ToolValidationError("Summary must not be empty. Say in 1-3 sentences what was done and what was found.")
    if len(summary) > MAX_SUMMARY:
        raise ToolValidationError(
            f"Summary must be <= {MAX_SUMMARY} characters, and has {len(summary)}. Say it in 1-3 sentences."
        )
    return summary


def _ids(known: list[int]) -> str:
    return f"Steps: {', '.join(map(str, known))}." if known else "It has no steps; add some first."


Recommendation: TypeAlias = Literal["ok", "consider_summarizing", "urgent"]

CONSIDER: Final = 0.7
URGENT: Final = 0.9


@dataclass(frozen=True, slots=True)
class ContextPressure:
    """How much of the model's window the next call would fill.

    Raises:
        InvalidSetting: there is no window.
    """

    used_tokens: int
    max_tokens: int

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidSetting("max_tokens", self.max_tokens, "a number above 0")

    @property
    def raw(self) -> float:
        """The share that is used; above 1 where it is too much."""
        return self.used_tokens / self.max_tokens

    @property
    def utilization(self) -> float:
        """The same, from 0 to 1."""
        return min(1.0, max(0.0, self.raw))

    @property
    def recommendation(self) -> Recommendation:
        if self.raw < CONSIDER:
            return "ok"
        return "consider_summarizing" if self.raw < URGENT else "urgent"

    def render(self) -> str:
        """What the model is told."""
        return (
            f"used_tokens: {self.used_tokens}, max_tokens: {self.max_tokens}, utilization: {self.utilization:.2f}, "
            f"recommendation: {self.recommendation}"
        )


_STEP_ID: Final = {"description": "ID of the step; 0 for what was said outside any step."}


@dataclass(frozen=True)
class SummarizeStepParams:
    step_id: int = field(metadata={"description": "ID of the step to summarize."})
    summary: str = field(
        metadata={"description": "Concise summary of the step's conversation (1-3 sentences, at most 1000 characters)."}
    )
    level: Literal["condensed", "summary", "title"] = field(
        default="summary",
        metadata={"description": "What to show: the most telling turns, the summary, or the title alone."},
    )


@dataclass(frozen=True)
class ExpandStepParams:
    step_id: int = field(metadata={"description": "ID of the step to expand."})
    reason: str = field(metadata={"description": "Why the full history is needed."})


@dataclass(frozen=True)
class PinStepParams:
    step_id: int = field(metadata=_STEP_ID)
    pinned: bool = field(default=True, metadata={"description": "false to unpin it."})


@dataclass(frozen=True)
class ReferenceStepParams:
    step_id: int = field(metadata=_STEP_ID)
    first_turn: int = field(default=1, metadata={"description": "The first turn to show, counted from 1.", "ge": 1})
    last_turn: int | None = field(default=None, metadata={"description": "The last turn to show.", "ge": 1})


def history_tools(
    key: str, own: Session | None, model: ModelInfo | None, *, in_view: bool, at_once: bool, keep_tokens: int
) -> list[AnyTool]:
    """The tools of a section of this key."""
    tools = _Tools(key, own, model, in_view=in_view, at_once=at_once, keep_tokens=keep_tokens)
    return [
        Tool[SummarizeStepParams, None](
            name=SUMMARIZE_STEP,
            description=(
                "Compress a step's conversation history into a summary. Use this to free context space after completing "
                "a step or when the full history is no longer needed."
            ),
            handler=tools.summarize,
        ),
        Tool[ExpandStepParams, StepHistory](
            name=EXPAND_STEP,
            description=(
                "Restore full conversation history for a summarized step. Use when you need to review details that were "
                "compressed."
            ),
            handler=tools.expand,
        ),
        Tool[PinStepParams, None](
            name=PIN_STEP,
            description="Keep a step in full: it is not summarized until it is unpinned.",
            handler=tools.pin,
        ),
        Tool[ReferenceStepParams, None](
            name=REFERENCE_STEP,
            description="Read some turns of a step once, without expanding it.",
            handler=tools.reference,
        ),
        *tools.pressure_tools(),
    ]


class _Tools:
    """The handlers. They are async, so that the calls of one message take effect in their order."""

    def __init__(
        self,
        key: str,
        own: Session | None,
        model: ModelInfo | None,
        *,
        in_view: bool,
        at_once: bool,
        keep_tokens: int,
    ) -> None:
        self._key, self._own, self._model = key, own, model
        self._in_view, self._at_once, self._keep_tokens = in_view, at_once, keep_tokens

    def pressure_tools(self) -> list[AnyTool]:
        if self._model is None:
            return []
        return [
            Tool[None, ContextPressure](
                name=CONTEXT_PRESSURE,
                description="Check current context utilization to decide if summarization is needed.",
                handler=self.pressure,
            )
        ]

    async def summarize(self, params: SummarizeStepParams, *, context: ToolContext) -> ToolResult[None]:
        session = require_session(context, self._own)
        history, step = require_step(session, params.step_id)
        summary = require_summary(params.summary)
        if not history.turns_of(params.step_id):
            raise ToolValidationError(f"Nothing was said in step {params.step_id} yet; there is nothing to summarize.")
        if step.pinned:
            raise ToolValidationError(
                f"Step {params.step_id} is pinned. Call `{PIN_STEP}` with pinned=false first, if it may be summarized."
            )
        level = params.level if self._at_once else None
        session.dispatch(SummarizeStep(params.step_id, summary, level, self._keep_tokens))
        later = "" if self._at_once else " It stays in the conversation while there is room."
        return ToolResult.ok(f"Step {params.step_id} summarized.{later}")

    async def expand(self, params: ExpandStepParams, *, context: ToolContext) -> ToolResult[StepHistory]:
        session = require_session(context, self._own)
        history, step = require_step(session, params.step_id)
        last = bound(history, step)
        turns = [turn for turn in history.turns_of(params.step_id) if (turn.turn_id or 0) <= last]
        if not history.turns_of(params.step_id):
            raise ToolValidationError(f"Nothing was said in step {params.step_id} yet.")
        if not turns:
            raise ToolValidationError(f"Step {params.step_id} is already shown in full; read it in the conversation.")
        if self._in_view:
            if step.level == "full":
                raise ToolValidationError(
                    f"Step {params.step_id} is part of step {step.parent_id}, which is summarized. Expand that one."
                )
            self._open(session, params)
        text = f"Step {params.step_id}, {step.step_title}, in full:\n\n{_told(turns)}"
        return ToolResult.ok(text, step, show_value=False)

    def _open(self, session: Session, params: ExpandStepParams) -> NoReturn:
        session.dispatch(ExpandStep(params.step_id, params.reason))
        path = (self._key, f"step-{params.step_id}")
        raise VisibilityExpansionRequired({path: SectionVisibility.FULL}, params.reason, [".".join(path)])

    async def pin(self, params: PinStepParams, *, context: ToolContext) -> ToolResult[None]:
        session = require_session(context, self._own)
        _, step = require_step(session, params.step_id)
        if step.pinned == params.pinned:
            raise ToolValidationError(f"Step {params.step_id} is {'already' if params.pinned else 'not'} pinned.")
        session.dispatch(PinStep(params.step_id, params.pinned))
        return ToolResult.ok(f"Step {params.step_id} {'stays in full' if params.pinned else 'may be summarized'} now.")

    async def reference(self, params: ReferenceStepParams, *, context: ToolContext) -> ToolResult[None]:
        _, step = require_step(require_session(context, self._own), params.step_id)
        count = len(step.turns)
        last = count if params.last_turn is None else min(params.last_turn, count)
        if params.first_turn > last:
            raise ToolValidationError(
                f"Step {params.step_id} has {count} turns; there are none from {params.first_turn} to {last}."
            )
        text = _told(step.turns[params.first_turn - 1 : last])
        return ToolResult.ok(f"Step {params.step_id}, turns {params.first_turn} to {last} of {count}:\n\n{text}")

    async def pressure(self, params: None, *, context: ToolContext) -> ToolResult[ContextPressure]:  # noqa: ARG002
        assert self._model is not None
        if context.next_tokens is None:
            raise ToolValidationError(
                "Nobody here knows what the next call will send. Summarize finished steps anyway."
            )
        return ToolResult.ok("", ContextPressure(context.next_tokens(), self._model.room()))


def _told(turns: Sequence[Turn]) -> str:
    return "\n\n".join(turn.render() for turn in turns)
