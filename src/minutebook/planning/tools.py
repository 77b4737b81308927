"""The tools by which a model manages its own context, step by step, and the checks that all planning tools share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

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
from minutebook.prompt.tools import AnyTool, RenderContext, Tool, ToolContext, ToolResult, tool
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


StepId: TypeAlias = Annotated[int, "ID of the step; 0 for what was said outside any step."]


@dataclass(frozen=True, slots=True)
class HistoryTools:
    """The tools of a history section. The handlers are async, so that the calls of one message take effect in order."""

    key: str
    """The section's."""
    own: Session | None
    model: ModelInfo | None
    in_view: bool
    """Whether an expanded step is shown in the view again."""
    at_once: bool
    """Whether a summary takes the place of its step at once."""
    keep_tokens: int

    def tools(self) -> list[AnyTool]:
        pressure = Tool[None, ContextPressure](
            name=CONTEXT_PRESSURE,
            description="Check current context utilization to decide if summarization is needed.",
            handler=self.pressure,
        )
        return [
            tool(
                self.summarize,
                name=SUMMARIZE_STEP,
                description="Compress a step's conversation history into a summary. Use this to free context space after "
                "completing a step or when the full history is no longer needed.",
            ),
            tool(
                self.expand,
                name=EXPAND_STEP,
                description="Restore full conversation history for a summarized step. Use when you need to review "
                "details that were compressed.",
            ),
            tool(self.pin, name=PIN_STEP),
            tool(self.reference, name=REFERENCE_STEP),
            *([pressure] if self.model else []),
        ]

    async def summarize(
        self,
        step_id: Annotated[int, "ID of the step to summarize."],
        summary: Annotated[str, "Concise summary of the step's conversation (1-3 sentences, at most 1000 characters)."],
        level: Annotated[
            Literal["condensed", "summary", "title"],
            "What to show: the most telling turns, the summary, or the title alone.",
        ] = "summary",
        *,
        context: ToolContext,
    ) -> ToolResult[None]:
        session = require_session(context, self.own)
        history, step = require_step(session, step_id)
        summary = require_summary(summary)
        if not history.turns_of(step_id):
            raise ToolValidationError(f"Nothing was said in step {step_id} yet; there is nothing to summarize.")
        if step.pinned:
            raise ToolValidationError(
                f"Step {step_id} is pinned. Call `{PIN_STEP}` with pinned=false first, if it may be summarized."
            )
        session.dispatch(SummarizeStep(step_id, summary, level if self.at_once else None, self.keep_tokens))
        later = "" if self.at_once else " It stays in the conversation while there is room."
        return ToolResult.ok(f"Step {step_id} summarized.{later}")

    async def expand(
        self,
        step_id: Annotated[int, "ID of the step to expand."],
        reason: Annotated[str, "Why the full history is needed."],
        *,
        context: ToolContext,
    ) -> ToolResult[StepHistory]:
        session = require_session(context, self.own)
        history, step = require_step(session, step_id)
        last = bound(history, step)
        turns = [turn for turn in history.turns_of(step_id) if (turn.turn_id or 0) <= last]
        if not history.turns_of(step_id):
            raise ToolValidationError(f"Nothing was said in step {step_id} yet.")
        if not turns:
            raise ToolValidationError(f"Step {step_id} is already shown in full; read it in the conversation.")
        if self.in_view:
            if step.level == "full":
                raise ToolValidationError(
                    f"Step {step_id} is part of step {step.parent_id}, which is summarized. Expand that one."
                )
            session.dispatch(ExpandStep(step_id, reason))
            path = (self.key, f"step-{step_id}")
            raise VisibilityExpansionRequired({path: SectionVisibility.FULL}, reason, [".".join(path)])
        text = f"Step {step_id}, {step.step_title}, in full:\n\n{_told(turns)}"
        return ToolResult.ok(text, step, show_value=False)

    async def pin(
        self, step_id: StepId, pinned: Annotated[bool, "false to unpin it."] = True, *, context: ToolContext
    ) -> ToolResult[None]:
        """Keep a step in full: it is not summarized until it is unpinned."""
        session = require_session(context, self.own)
        _, step = require_step(session, step_id)
        if step.pinned == pinned:
            raise ToolValidationError(f"Step {step_id} is {'already' if pinned else 'not'} pinned.")
        session.dispatch(PinStep(step_id, pinned))
        return ToolResult.ok(f"Step {step_id} {'stays in full' if pinned else 'may be summarized'} now.")

    async def reference(
        self,
        step_id: StepId,
        first_turn: Annotated[int, "The first turn to show, counted from 1.", {"ge": 1}] = 1,
        last_turn: Annotated[int | None, "The last turn to show.", {"ge": 1}] = None,
        *,
        context: ToolContext,
    ) -> ToolResult[None]:
        """Read some turns of a step once, without expanding it."""
        _, step = require_step(require_session(context, self.own), step_id)
        count = len(step.turns)
        last = count if last_turn is None else min(last_turn, count)
        if first_turn > last:
            raise ToolValidationError(f"Step {step_id} has {count} turns; there are none from {first_turn} to {last}.")
        text = _told(step.turns[first_turn - 1 : last])
        return ToolResult.ok(f"Step {step_id}, turns {first_turn} to {last} of {count}:\n\n{text}")

    async def pressure(self, params: None, *, context: ToolContext) -> ToolResult[ContextPressure]:  # noqa: ARG002
        assert self.model is not None
        if context.next_tokens is None:
            raise ToolValidationError(
                "Nobody here knows what the next call will send. Summarize finished steps anyway."
            )
        return ToolResult.ok("", ContextPressure(context.next_tokens(), self.model.room()))


def _told(turns: Sequence[Turn]) -> str:
    return "\n\n".join(turn.render() for turn in turns)
