"""The plan in the prompt, and the tools by which the model keeps it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from minutebook.errors import InvalidSetting, MinutebookError, ToolValidationError
from minutebook.planning.events import (
    ADD_STEP,
    READ_PLAN,
    SETUP_PLAN,
    SUMMARIZE_STEP,
    UPDATE_STEP,
    AddStep,
    SetupPlan,
    SummarizeStep,
    UpdateStep,
)
from minutebook.planning.plan import MAX_DEPTH, Plan, PlanStep, StepStatus
from minutebook.planning.reducers import next_step_id
from minutebook.planning.setup import install_plan
from minutebook.planning.summaries import Evaluates, auto_summarize_step
from minutebook.planning.task_history import KEEP, TaskHistory, extractive_summary
from minutebook.planning.tools import (
    MAX_SUMMARY,
    MAX_TITLE,
    one_line,
    require_plan,
    require_plan_step,
    require_session,
    session_of,
)
from minutebook.prompt.section import Section
from minutebook.prompt.tools import AnyTool, RenderContext, Tool, ToolContext, ToolResult, tool
from minutebook.prompt.visibility import SectionPath
from minutebook.session.state import Session

OnStepDone: TypeAlias = Literal["none", "suggest", "extractive", "llm"]

MAX_OBJECTIVE: Final = 500
_GUIDE: Final = (
    f"Work of several steps goes by a plan. Make one with `{SETUP_PLAN}`. Set a step to in_progress with "
    f"`{UPDATE_STEP}` before you work on it, and to done when it is finished."
)
_OUTLINE: Final = "The plan, and the tools to change it."


class PlanningToolsSection(Section[None]):
    """Shows the plan of the session, and offers the tools to make it, add to it, change it and read it.

    `on_step_done` says what happens when the model finishes a step: nothing, a word that it could be summarised, or a
    summary by extraction or by the model of `adapter`. With such a summary the last `keep_tokens` of the conversation stay,
    until the plan changes again.

    Raises:
        InvalidSetting: `on_step_done` is none of these, or is "llm" and there is no adapter; `keep_tokens` is negative.
    """

    reads_session = True

    def __init__(
        self,
        *,
        session: Session | None = None,
        title: str = "Plan",
        key: str = "plan",
        on_step_done: OnStepDone = "none",
        adapter: Evaluates | None = None,
        keep_tokens: int = KEEP,
        accepts_overrides: bool = False,
    ) -> None:
        if on_step_done not in get_args(OnStepDone):
            raise InvalidSetting("on_step_done", on_step_done, f"one of {', '.join(get_args(OnStepDone))}")
        if (adapter is None) == (on_step_done == "llm"):
            raise InvalidSetting(
                "adapter", adapter, 'the one whose model sums up, with on_step_done="llm" and only then'
            )
        if keep_tokens < 0:
            raise InvalidSetting("keep_tokens", keep_tokens, "0 or more")
        self._session, self._on_step_done, self._adapter = session, on_step_done, adapter
        self._keep_tokens = keep_tokens
        if session is not None:
            install_plan(session)
        super().__init__(
            title=title, key=key, summary=_OUTLINE, tools=self._tools(), accepts_overrides=accepts_overrides
        )

    def body(self, params: None, depth: int, number: str, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        plan = self._plan(context)
        return f"{_GUIDE}\n\n{'There is no plan yet.' if plan is None else plan.render()}"

    def outline(self, params: None, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        plan = self._plan(context)
        return _OUTLINE if plan is None else plan.render()

    def _plan(self, context: RenderContext) -> Plan | None:
        session = session_of(context, self._session)
        if session is None:
            return None
        install_plan(session)
        return session.query(Plan).latest()

    def _tools(self) -> list[AnyTool]:
        handlers: dict[str, Callable[..., Any]] = {
            SETUP_PLAN: self._set_up,
            ADD_STEP: self._add,
            UPDATE_STEP: self._update,
        }
        return [
            # The short name becomes that of the parameters, which errors mention.
            *(replace(tool(each, name=name.removeprefix("planning_")), name=name) for name, each in handlers.items()),
            Tool[None, Plan](name=READ_PLAN, description="Read the plan as it is now.", handler=self._read),
        ]

    async def _set_up(
        self,
        objective: Annotated[str, "What is to be reached, in one sentence."],
        steps: Annotated[tuple[str, ...], "The titles of the steps, in order.", {"min_length": 1}],
        *,
        context: ToolContext,
    ) -> ToolResult[Plan]:
        """Make a plan: an objective and its steps. A plan that was there before becomes history."""
        session = require_session(context, self._session)
        objective = one_line("objective", objective, MAX_OBJECTIVE)
        session.dispatch(SetupPlan(objective, _steps(session, steps, None)))
        return _told("There is a new plan.", session)

    async def _add(
        self,
        steps: Annotated[tuple[str, ...], "The titles of the new steps, in order.", {"min_length": 1}],
        parent_id: Annotated[int | None, "ID of the step that they are parts of, if they are."] = None,
        *,
        context: ToolContext,
    ) -> ToolResult[Plan]:
        """Add steps at the end of the plan, or parts to a step."""
        session = require_session(context, self._session)
        plan = require_plan(session)
        if parent_id is not None:
            require_plan_step(plan, parent_id)
            if plan.depth_of(parent_id) >= MAX_DEPTH:
                raise ToolValidationError(
                    f"Step {parent_id} lies {MAX_DEPTH} levels deep and can have no parts. Add them beside it."
                )
        session.dispatch(AddStep(_steps(session, steps, parent_id)))
        return _told("The plan has more steps.", session)

    async def _update(
        self,
        step_id: Annotated[int, "ID of the step."],
        status: Annotated[StepStatus | None, "Its new status."] = None,
        title: Annotated[str | None, "Its new title."] = None,
        *,
        context: ToolContext,
    ) -> ToolResult[Plan]:
        """Change the status or the title of a step."""
        session = require_session(context, self._session)
        before = require_plan_step(require_plan(session), step_id)
        title = None if title is None else one_line("title", title, MAX_TITLE)
        if status is None and title is None:
            raise ToolValidationError("Give a new status (pending, in_progress or done), a new title, or both.")
        session.dispatch(UpdateStep(step_id, status, title))
        more = await self._summed_up(session, step_id) if status == "done" and before.status != "done" else ""
        return _told(f"Step {step_id} is {status or before.status}.{more}", session)

    async def _read(self, params: None, *, context: ToolContext) -> ToolResult[Plan]:  # noqa: ARG002 - it takes none
        return ToolResult.ok("", require_plan(require_session(context, self._session)))

    async def _summed_up(self, session: Session, step_id: int) -> str:
        """What becomes of a step's history when it is finished, and what the model is told of it."""
        history = session.query(TaskHistory).latest()
        step = None if history is None else history.step(step_id)
        if step is None or not step.turns or step.pinned:
            return ""
        match self._on_step_done:
            case "suggest":
                return f" When its details are no longer needed, call `{SUMMARIZE_STEP}` with step_id={step_id}."
            case "extractive":
                summary = extractive_summary(step, max_characters=MAX_SUMMARY)
                session.dispatch(SummarizeStep(step_id, summary, keep_tokens=self._keep_tokens))
                return " It was summarized."
            case "llm":
                assert self._adapter is not None
                try:
                    await auto_summarize_step(session, step_id, self._adapter, keep_tokens=self._keep_tokens)
                except MinutebookError as error:  # the step is finished all the same
                    return f" It could not be summarized ({error}); call `{SUMMARIZE_STEP}` yourself."
                return " It was summarized."
        return ""


def _steps(session: Session, titles: tuple[str, ...], parent_id: int | None) -> tuple[PlanStep, ...]:
    first = next_step_id(session.query(Plan).all())
    named = [one_line("title of a step", title, MAX_TITLE) for title in titles]
    return tuple(PlanStep(first + place, title, parent_id=parent_id) for place, title in enumerate(named))


def _told(message: str, session: Session) -> ToolResult[Plan]:
    """The result of a change. The plan itself stands in the prompt; its ids are told, for the next call."""
    plan = require_plan(session)
    steps = ", ".join(f"{step.step_id} {step.status}" for step in plan.steps)
    return ToolResult.ok(f"{message} Steps: {steps}.", plan, show_value=False)
