"""How a plan changes: the reducers of the slice `Plan`, whose newest value is the plan that stands."""

from collections.abc import Sequence
from dataclasses import replace

from minutebook.errors import InvalidSetting
from minutebook.planning.events import AddStep, SetupPlan, UpdateStep
from minutebook.planning.plan import Plan, PlanStep
from minutebook.session.reducer import Append, ReducerContext


def set_up(values: Sequence[Plan], event: SetupPlan, *, context: ReducerContext) -> Append[Plan]:  # noqa: ARG001
    if not event.objective.strip():
        raise InvalidSetting("objective", event.objective, "what the plan is to reach")
    taken = {step.step_id for plan in values for step in plan.steps}
    for step in event.steps:
        if step.step_id in taken:
            raise InvalidSetting("step_id", step.step_id, "one that no step of an earlier plan has")
    return Append(Plan(event.objective, event.steps))


def add(values: Sequence[Plan], event: AddStep, *, context: ReducerContext) -> Sequence[Plan]:  # noqa: ARG001
    *before, plan = _with_a_plan(values)
    return (*before, replace(plan, steps=(*plan.steps, *event.steps)))


def update(values: Sequence[Plan], event: UpdateStep, *, context: ReducerContext) -> Sequence[Plan]:  # noqa: ARG001
    *before, plan = _with_a_plan(values)
    if plan.step(event.step_id) is None:
        raise InvalidSetting("step_id", event.step_id, "the id of a step of the plan")
    return (*before, replace(plan, steps=tuple(_updated(step, event) for step in plan.steps)))


def next_step_id(plans: Sequence[Plan]) -> int:
    """The id of the next new step: one that none of these plans has had."""
    return 1 + max((step.step_id for plan in plans for step in plan.steps), default=0)


def _updated(step: PlanStep, event: UpdateStep) -> PlanStep:
    if step.step_id != event.step_id:
        return step
    return replace(step, status=event.status or step.status, title=event.title or step.title)


def _with_a_plan(values: Sequence[Plan]) -> Sequence[Plan]:
    if not values:
        raise InvalidSetting("the plan", None, "one first: dispatch SetupPlan")
    return values
