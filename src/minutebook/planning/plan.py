"""A plan: an objective and the steps to reach it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from minutebook.errors import InvalidSetting

StepStatus: TypeAlias = Literal["pending", "in_progress", "done"]

MAX_DEPTH: Final = 3
"""The maximum nesting of steps; a step without a parent has depth 1."""
_STATUS_MARKS: Final[dict[str, str]] = {"pending": " ", "in_progress": ">", "done": "x"}


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan. Its id is unique within the session, across all plans."""

    step_id: int
    title: str
    status: StepStatus = "pending"
    parent_id: int | None = None
    """The id of the parent step; None for a step without a parent."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An objective and its steps in order. Substeps come after their parent.

    Raises:
        InvalidSetting: two steps have the same id, a parent is not before its substep, or steps are nested too deeply.
    """

    objective: str
    steps: tuple[PlanStep, ...] = ()

    def __post_init__(self) -> None:
        depths: dict[int, int] = {}
        for step in self.steps:
            if step.step_id in depths or step.step_id < 1:
                raise InvalidSetting("step_id", step.step_id, "a unique number, 1 or more")
            if step.parent_id is not None and step.parent_id not in depths:
                raise InvalidSetting("parent_id", step.parent_id, "the id of an earlier step of the plan")
            depths[step.step_id] = 1 if step.parent_id is None else depths[step.parent_id] + 1
            if depths[step.step_id] > MAX_DEPTH:
                raise InvalidSetting("parent_id", step.parent_id, f"a step at most {MAX_DEPTH - 1} levels deep")

    def step(self, step_id: int) -> PlanStep | None:
        """The step with that id, or None."""
        return next((step for step in self.steps if step.step_id == step_id), None)

    @property
    def is_done(self) -> bool:
        """Whether there are steps and all of them are done."""
        return bool(self.steps) and all(step.status == "done" for step in self.steps)

    def depth_of(self, step_id: int) -> int:
        """The depth of a step: 1 without a parent, 0 if the plan does not have the step."""
        step = self.step(step_id)
        return 0 if step is None else 1 + (0 if step.parent_id is None else self.depth_of(step.parent_id))

    def render(self) -> str:
        """The objective, and one line per step with its status, id and title."""
        return "\n".join([f"**Objective**: {self.objective}", "", *self._lines()])

    def _lines(self) -> Iterator[str]:
        if not self.steps:
            yield "<no steps yet>"
        for step in in_order(self.steps):
            yield f"{'  ' * (self.depth_of(step.step_id) - 1)}- [{_STATUS_MARKS[step.status]}] {step.step_id}. {step.title}"


def in_order(steps: tuple[PlanStep, ...], parent_id: int | None = None) -> Iterator[PlanStep]:
    """The steps, each followed by its substeps."""
    for step in steps:
        if step.parent_id == parent_id:
            yield step
            yield from in_order(steps, step.step_id)
