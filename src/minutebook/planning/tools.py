"""The tools with which a model manages its own context step by step, and the checks that all planning tools share."""

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
from minutebook.planning.folds import last_summarized_turn
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.reducers import history_with_step
from minutebook.planning.task_history import UNASSIGNED, StepHistory, TaskHistory, Turn
from minutebook.prompt.tools import AnyTool, RenderContext, Tool, ToolContext, ToolResult, tool
from minutebook.prompt.visibility import SectionVisibility
from minutebook.session.state import Session
from minutebook.tokens.models import ModelInfo

MAX_SUMMARY_CHARACTERS: Final = 1000
MAX_TITLE_CHARACTERS: Final = 200
NO_PLAN: Final = f"There is no plan yet. Call `{SETUP_PLAN}` with an objective and its steps first."


def session_of(context: RenderContext | ToolContext, default_session: Session | None) -> Session | None:
    """The session of the call or of the rendering, else the section's own session."""
    session: SessionProtocol | None = context.session
    return session if isinstance(session, Session) else default_session


def require_session(context: ToolContext, default_session: Session | None) -> Session:
    session = session_of(context, default_session)
    if session is None:
        raise ToolValidationError(
            "Planning is not available: there is no session to store a plan. Continue without a plan."
        )
    return session


def require_plan(session: Session) -> Plan:
    plan = session.query(Plan).latest()
    if plan is None:
        raise ToolValidationError(NO_PLAN)
    return plan


def require_plan_step(plan: Plan, step_id: int) -> PlanStep:
    step = plan.step(step_id)
    if step is None:
        raise ToolValidationError(
            f"The plan has no step {step_id}. {_step_list([step.step_id for step in plan.steps])}"
        )
    return step


def require_step(session: Session, step_id: int) -> tuple[TaskHistory, StepHistory]:
    """The step with that id and the history that contains it."""
    histories = session.query(TaskHistory).all()
    if not histories:
        raise ToolValidationError(f"There is no task history yet. {NO_PLAN}")
    history = history_with_step(histories, step_id)
    step = None if history is None else history.step(step_id)
    if history is None or step is None:
        if step_id == UNASSIGNED:
            raise ToolValidationError("There are no turns outside the steps.")
        step_ids = [step.step_id for history in histories for step in history.steps]
        raise ToolValidationError(f"There is no step {step_id}. {_step_list(step_ids) if step_ids else NO_PLAN}")
    return history, step


def require_line(name: str, text: str, max_characters: int) -> str:
    """The text without surrounding whitespace, if it is one line of at most `max_characters`."""
    line = text.strip()
    if not line:
        raise ToolValidationError(f"The {name} is empty. Write a few words.")
    if "\n" in line or "\r" in line:
        raise ToolValidationError(f"The {name} has several lines. Write one line.")
    if len(line) > max_characters:
        raise ToolValidationError(f"The {name} has {len(line)} characters. Use at most {max_characters}.")
    return line


def _require_summary(text: str) -> str:
    summary = text.strip()
    if not summary:
        raise ToolValidationError("Summary must not be empty. Write 1-3 sentences: what was done and what was found.")
    if len(summary) > MAX_SUMMARY_CHARACTERS:
        raise ToolValidationError(
            f"Summary must be <= {MAX_SUMMARY_CHARACTERS} characters, and has {len(summary)}. Write 1-3 sentences."
        )
    return summary


def _step_list(step_ids: list[int]) -> str:
    return f"Steps: {', '.join(map(str, step_ids))}." if step_ids else "It has no steps; add some first."


Recommendation: TypeAlias = Literal["ok", "consider_summarizing", "urgent"]

CONSIDER_SHARE: Final = 0.7
"""The share of the window from which `ContextPressure` recommends `consider_summarizing`."""
URGENT_SHARE: Final = 0.9
"""The share of the window from which it recommends `urgent`."""


@dataclass(frozen=True, slots=True)
class ContextPressure:
    """The share of the model's window that the next call would fill.

    Raises:
        InvalidSetting: `max_tokens` is less than 1.
    """

    used_tokens: int
    max_tokens: int

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidSetting("max_tokens", self.max_tokens, "1 or more")

    @property
    def raw(self) -> float:
        """The used share of the window; more than 1 if the call does not fit."""
        return self.used_tokens / self.max_tokens

    @property
    def utilization(self) -> float:
        """The used share, limited to the range from 0 to 1."""
        return min(1.0, max(0.0, self.raw))

    @property
    def recommendation(self) -> Recommendation:
        if self.raw < CONSIDER_SHARE:
            return "ok"
        return "consider_summarizing" if self.raw < URGENT_SHARE else "urgent"

    def render(self) -> str:
        """The tool result for the model."""
        return (
            f"used_tokens: {self.used_tokens}, max_tokens: {self.max_tokens}, utilization: {self.utilization:.2f}, "
            f"recommendation: {self.recommendation}"
        )


StepId: TypeAlias = Annotated[int, "ID of the step; 0 for turns outside any step."]


@dataclass(frozen=True, slots=True)
class HistoryTools:
    """The tools of a history section. The handlers are async, so that the calls of one message take effect in order."""

    key: str
    """The key of the section."""
    default_session: Session | None
    """The session of the section, used if the call has none."""
    model: ModelInfo | None
    expand_in_view: bool
    """Whether an expanded step is shown in the view again, instead of in the tool result."""
    fold_now: bool
    """Whether a summary replaces its step immediately."""
    keep_tokens: int

    def tools(self) -> list[AnyTool]:
        """The tools. They are idempotent: they change the session only, which is stored together with their results."""
        pressure = Tool[None, ContextPressure](
            name=CONTEXT_PRESSURE,
            description="Check current context utilization to decide if summarization is needed.",
            handler=self.pressure,
            idempotent=True,
        )
        return [
            tool(
                self.summarize,
                name=SUMMARIZE_STEP,
                idempotent=True,
                description="Compress a step's conversation history into a summary. Use this to free context space after "
                "completing a step or when the full history is no longer needed.",
            ),
            tool(
                self.expand,
                name=EXPAND_STEP,
                idempotent=True,
                description="Restore full conversation history for a summarized step. Use when you need to review "
                "details that were compressed.",
            ),
            tool(self.pin, name=PIN_STEP, idempotent=True),
            tool(self.reference, name=REFERENCE_STEP, idempotent=True),
            *([pressure] if self.model else []),
        ]

    async def summarize(
        self,
        step_id: Annotated[int, "ID of the step to summarize."],
        summary: Annotated[str, "Concise summary of the step's conversation (1-3 sentences, at most 1000 characters)."],
        level: Annotated[
            Literal["condensed", "summary", "title"],
            "What to show: the most informative turns, the summary, or only the title.",
        ] = "summary",
        *,
        context: ToolContext,
    ) -> ToolResult[None]:
        session = require_session(context, self.default_session)
        history, step = require_step(session, step_id)
        summary = _require_summary(summary)
        if not history.turns_of(step_id):
            raise ToolValidationError(f"Step {step_id} has no turns yet; there is nothing to summarize.")
        if step.pinned:
            raise ToolValidationError(
                f"Step {step_id} is pinned. Call `{PIN_STEP}` with pinned=false first, if it may be summarized."
            )
        session.dispatch(SummarizeStep(step_id, summary, level if self.fold_now else None, self.keep_tokens))
        hint = "" if self.fold_now else " It stays in the conversation while there is room."
        return ToolResult.ok(f"Step {step_id} summarized.{hint}")

    async def expand(
        self,
        step_id: Annotated[int, "ID of the step to expand."],
        reason: Annotated[str, "Why the full history is needed."],
        *,
        context: ToolContext,
    ) -> ToolResult[StepHistory]:
        session = require_session(context, self.default_session)
        history, step = require_step(session, step_id)
        turns = history.turns_of(step_id)
        if not turns:
            raise ToolValidationError(f"Step {step_id} has no turns yet.")
        last_id = last_summarized_turn(history, step)
        hidden_turns = [turn for turn in turns if (turn.turn_id or 0) <= last_id]
        if not hidden_turns:
            raise ToolValidationError(f"Step {step_id} is already shown in full; read it in the conversation.")
        if self.expand_in_view:
            if step.level == "full":
                raise ToolValidationError(
                    f"Step {step_id} is part of step {step.parent_id}, which is summarized. Expand step {step.parent_id}."
                )
            session.dispatch(ExpandStep(step_id, reason))
            path = (self.key, f"step-{step_id}")
            raise VisibilityExpansionRequired({path: SectionVisibility.FULL}, reason, [".".join(path)])
        text = f"Step {step_id}, {step.step_title}, in full:\n\n{_turns_text(hidden_turns)}"
        return ToolResult.ok(text, step, show_value=False)

    async def pin(
        self, step_id: StepId, pinned: Annotated[bool, "false to unpin it."] = True, *, context: ToolContext
    ) -> ToolResult[None]:
        """Keep a step in full: it is not summarized until it is unpinned."""
        session = require_session(context, self.default_session)
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
        _, step = require_step(require_session(context, self.default_session), step_id)
        count = len(step.turns)
        end = count if last_turn is None else min(last_turn, count)
        if first_turn > end:
            raise ToolValidationError(f"Step {step_id} has {count} turns; there are none from {first_turn} to {end}.")
        text = _turns_text(step.turns[first_turn - 1 : end])
        return ToolResult.ok(f"Step {step_id}, turns {first_turn} to {end} of {count}:\n\n{text}")

    async def pressure(self, params: None, *, context: ToolContext) -> ToolResult[ContextPressure]:  # noqa: ARG002
        assert self.model is not None
        if context.next_tokens is None:
            raise ToolValidationError("The size of the next call is not known here. Summarize finished steps anyway.")
        return ToolResult.ok("", ContextPressure(context.next_tokens(), self.model.room()))


def _turns_text(turns: Sequence[Turn]) -> str:
    return "\n\n".join(turn.render() for turn in turns)
