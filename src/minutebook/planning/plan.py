"""A plan: what is to be reached, and the steps that lead there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from minutebook.errors import InvalidSetting

StepStatus: TypeAlias = Literal["pending", "in_progress", "done"]

MAX_DEPTH: Final = 3
"""How deep steps may lie within steps."""
_MARKS: Final[dict[str, str]] = {"pending": " ", "in_progress": ">", "done": "x"}


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan. Its id is its own for as long as the session lasts, also when another plan takes over."""

    step_id: int
    title: str
    status: StepStatus = "pending"
    parent_id: int | None = None
    """The step that it is a part of."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An objective and its steps, in order; the parts of a step stand after it.

    Raises:
        InvalidSetting: two steps have one id, or a step is part of one that is not there or lies too deep.
    """

    objective: str
    steps: tuple[PlanStep, ...] = ()

    def __post_init__(self) -> None:
        known: dict[int, int] = {}
        for step in self.steps:
            if step.step_id in known or step.step_id < 1:
                raise InvalidSetting("step_id", step.step_id, "a number above 0 that no other step has")
            if step.parent_id is not None and step.parent_id not in known:
                raise InvalidSetting("parent_id", step.parent_id, "the id of a step that stands before it")
            known[step.step_id] = 1 if step.parent_id is None else known[step.parent_id] + 1
            if known[step.step_id] > MAX_DEPTH:
                raise InvalidSetting("parent_id", step.parent_id, f"a step at most {MAX_DEPTH - 1} levels deep")

    def step(self, step_id: int) -> PlanStep | None:
        """The step of that id, if it is one of these."""
        return next((step for step in self.steps if step.step_id == step_id), None)

    @property
    def is_done(self) -> bool:
        """Whether every step is done; a plan without steps is not."""
        return bool(self.steps) and all(step.status == "done" for step in self.steps)

    def depth_of(self, step_id: int) -> int:
        """How deep a step lies; 1 for a step that is part of no other."""
        step = self.step(step_id)
        return 0 if step is None else 1 + (0 if step.parent_id is None else self.depth_of(step.parent_id))

    def render(self) -> str:
        """The objective, and a line for each step: its id, its status, its title."""
        return "\n".join([f"**Objective**: {self.objective}", "", *self._lines()])

    def _lines(self) -> Iterator[str]:
        if not self.steps:
            yield "<no steps yet>"
        for step in in_order(self.steps):
            yield f"{'  ' * (self.depth_of(step.step_id) - 1)}- [{_MARKS[step.status]}] {step.step_id}. {step.title}"


def in_order(steps: tuple[PlanStep, ...], parent_id: int | None = None) -> Iterator[PlanStep]:
    """The steps with the parts of each right after it."""
    for step in steps:
        if step.parent_id == parent_id:
            yield step
            yield from in_order(steps, step.step_id)
