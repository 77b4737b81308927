"""The prompt section with the plan, and the tools with which the model maintains it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from minutebook.errors import InvalidSetting, MinutebookError, MissingSetting, ToolValidationError
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
from minutebook.planning.summaries import PromptEvaluator, auto_summarize_step
from minutebook.planning.task_history import DEFAULT_KEEP_TOKENS, TaskHistory, extractive_summary
from minutebook.planning.tools import (
    MAX_SUMMARY_CHARACTERS,
    MAX_TITLE_CHARACTERS,
    require_line,
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

MAX_OBJECTIVE_CHARACTERS: Final = 500
_GUIDE: Final = (
    f"Use a plan for work of several steps. Create it with `{SETUP_PLAN}`. Set a step to in_progress with `{UPDATE_STEP}` "
    "before you work on it, and to done when it is finished."
)
_OUTLINE: Final = "The plan, and the tools to change it."


class PlanningToolsSection(Section[None]):
    """Shows the plan of the session, with tools to create, extend, change and read it.

    `on_step_done` selects what happens when the model finishes a step: nothing, a suggestion to summarize it, an
    extractive summary, or a summary by the model of `adapter`. After either summary, the last `keep_tokens`
    tokens of the conversation stay in the prompt until the plan changes again.

    Raises:
        InvalidSetting: `on_step_done` is unknown, `keep_tokens` is negative, or `adapter` is passed and `on_step_done` is not "llm".
        MissingSetting: `on_step_done` is "llm" and there is no adapter.
    """

    reads_session = True

    def __init__(
        self,
        *,
        session: Session | None = None,
        title: str = "Plan",
        key: str = "plan",
        on_step_done: OnStepDone = "none",
        adapter: PromptEvaluator | None = None,
        keep_tokens: int = DEFAULT_KEEP_TOKENS,
        accepts_overrides: bool = False,
    ) -> None:
        if on_step_done not in get_args(OnStepDone):
            raise InvalidSetting("on_step_done", on_step_done, f"one of {', '.join(get_args(OnStepDone))}")
        if on_step_done == "llm" and adapter is None:
            raise MissingSetting(
                "adapter", 'pass the adapter whose model writes the summaries, or on_step_done="extractive"'
            )
        if on_step_done != "llm" and adapter is not None:
            raise InvalidSetting("adapter", adapter, f"None with on_step_done={on_step_done!r}; only 'llm' uses it")
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
            SETUP_PLAN: self._set_up_plan,
            ADD_STEP: self._add_steps,
            UPDATE_STEP: self._update_step,
        }
        return [
            # `tool` names the class of the parameters after the tool, and errors show that name: create it without the prefix.
            *(
                replace(tool(handler, name=name.removeprefix("planning_"), idempotent=True), name=name)
                for name, handler in handlers.items()
            ),
            Tool[None, Plan](
                name=READ_PLAN, description="Read the current plan.", handler=self._read_plan, idempotent=True
            ),
        ]

    async def _set_up_plan(
        self,
        objective: Annotated[str, "The goal, in one sentence."],
        steps: Annotated[tuple[str, ...], "The titles of the steps, in order.", {"min_length": 1}],
        *,
        context: ToolContext,
    ) -> ToolResult[Plan]:
        """Create a plan: an objective and its steps. It replaces the previous plan, which becomes history."""
        session = require_session(context, self._session)
        objective = require_line("objective", objective, MAX_OBJECTIVE_CHARACTERS)
        session.dispatch(SetupPlan(objective, _new_steps(session, steps, None)))
        return _result("Plan created.", session)

    async def _add_steps(
        self,
        steps: Annotated[tuple[str, ...], "The titles of the new steps, in order.", {"min_length": 1}],
        parent_id: Annotated[int | None, "ID of the parent step, to add substeps."] = None,
        *,
        context: ToolContext,
    ) -> ToolResult[Plan]:
        """Add steps at the end of the plan, or substeps to a step."""
        session = require_session(context, self._session)
        plan = require_plan(session)
        if parent_id is not None:
            require_plan_step(plan, parent_id)
            if plan.depth_of(parent_id) >= MAX_DEPTH:
                raise ToolValidationError(
                    f"Step {parent_id} is {MAX_DEPTH} levels deep and cannot have substeps. Add them to its parent."
                )
        session.dispatch(AddStep(_new_steps(session, steps, parent_id)))
        return _result("Steps added.", session)

    async def _update_step(
        self,
        step_id: Annotated[int, "ID of the step."],
        status: Annotated[StepStatus | None, "Its new status."] = None,
        title: Annotated[str | None, "Its new title."] = None,
        *,
        context: ToolContext,
    ) -> ToolResult[Plan]:
        """Change the status or the title of a step."""
        session = require_session(context, self._session)
        step = require_plan_step(require_plan(session), step_id)
        title = None if title is None else require_line("title", title, MAX_TITLE_CHARACTERS)
        if status is None and title is None:
            raise ToolValidationError("Pass a new status (pending, in_progress or done), a new title, or both.")
        session.dispatch(UpdateStep(step_id, status, title))
        follow_up = await self._after_step_done(session, step_id) if status == "done" and step.status != "done" else ""
        return _result(f"Step {step_id} is {status or step.status}.{follow_up}", session)

    async def _read_plan(self, params: None, *, context: ToolContext) -> ToolResult[Plan]:  # noqa: ARG002 - no parameters
        return ToolResult.ok("", require_plan(require_session(context, self._session)))

    async def _after_step_done(self, session: Session, step_id: int) -> str:
        """Do what `on_step_done` selects for a finished step, and return the sentence that reports it to the model."""
        history = session.query(TaskHistory).latest()
        step = None if history is None else history.step(step_id)
        if step is None or not step.turns or step.pinned:
            return ""
        match self._on_step_done:
            case "suggest":
                return f" When its details are no longer needed, call `{SUMMARIZE_STEP}` with step_id={step_id}."
            case "extractive":
                summary = extractive_summary(step, max_characters=MAX_SUMMARY_CHARACTERS)
                session.dispatch(SummarizeStep(step_id, summary, keep_tokens=self._keep_tokens))
                return " It was summarized."
            case "llm":
                assert self._adapter is not None
                try:
                    await auto_summarize_step(session, step_id, self._adapter, keep_tokens=self._keep_tokens)
                except MinutebookError as error:  # the step is done even without a summary
                    return f" It could not be summarized ({error}); call `{SUMMARIZE_STEP}` yourself."
                return " It was summarized."
        return ""


def _new_steps(session: Session, titles: tuple[str, ...], parent_id: int | None) -> tuple[PlanStep, ...]:
    lines = [require_line("title of a step", title, MAX_TITLE_CHARACTERS) for title in titles]
    first_id = next_step_id(session.query(Plan).all())
    return tuple(PlanStep(step_id, title, parent_id=parent_id) for step_id, title in enumerate(lines, first_id))


def _result(message: str, session: Session) -> ToolResult[Plan]:
    """The result of a change. It lists only ids and statuses, because the plan itself is in the prompt."""
    plan = require_plan(session)
    steps = ", ".join(f"{step.step_id} {step.status}" for step in plan.steps)
    return ToolResult.ok(f"{message} Steps: {steps}.", plan, show_value=False)
