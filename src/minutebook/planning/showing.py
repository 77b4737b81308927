"""What the section says of each step: everything that the messages do not show, and nothing that they do."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from minutebook.planning.extract import clipped, key_turns
from minutebook.planning.folding import bound
from minutebook.planning.level import StepVisibility, StepVisibilityResolver
from minutebook.planning.task import StepFold, StepHistory, TaskHistory, expand_hint
from minutebook.planning.turn import Turn

_CONDENSED = 500
"""Characters of a turn where only the most telling ones are shown."""


class Shown:
    """The histories of a session at one moment, as text."""

    def __init__(self, histories: Sequence[TaskHistory], resolver: StepVisibilityResolver) -> None:
        self._histories = histories
        self._resolver = resolver
        self._folds = histories[-1].folds if histories else ()

    def steps(self, history: TaskHistory) -> Iterator[tuple[StepHistory, str]]:
        """The steps, each with what is to be said of it; those within a folded one only where they have more to say."""
        for step in history.in_order():
            above = [one for one in history.chain(step.step_id) if one is not step]
            text = "\n\n".join(self._parts(history, step))
            is_active = step.step_id == history.active_step_id
            if text or is_active or (step.step_id and not any(self._level(one) != "full" for one in above)):
                yield step, text

    def left_out(self) -> list[Turn]:
        """The turns that something shorter stands for, and that no message shows."""
        return [
            turn
            for history in self._histories
            for step in history.steps
            if (through := bound(history, step))
            for turn in self._only_here(step.turns)
            if _number(turn) <= through
        ]

    def _parts(self, history: TaskHistory, step: StepHistory) -> Iterator[str]:
        level, through = self._level(step), bound(history, step)
        later = [turn for turn in step.turns if turn.position is None and _number(turn) > through] if step.apart else []
        is_within = any(one.level != "full" for one in history.chain(step.step_id) if one is not step)
        if is_within:
            yield from map(told, later)
        elif level == "full":
            yield from map(told, self._only_here(step.turns) if through else later)
        elif through:
            yield from self._instead(step, level, step.covered())
            yield from map(told, later)
        elif later:
            yield from self._instead(step, level, later)

    def _instead(self, step: StepHistory, level: StepVisibility, turns: Sequence[Turn]) -> Iterator[str]:
        """What stands for turns that the messages do not show."""
        if level == "summary" and step.summary:
            yield step.summary
        elif level == "condensed":
            yield from (clipped(told(turn), _CONDENSED) for turn in key_turns(self._only_here(turns)))
        yield f"_{expand_hint(step.step_id)}_"

    def _only_here(self, turns: Sequence[Turn]) -> list[Turn]:
        """Those of the turns that no message shows."""
        return [turn for turn in turns if turn.position is None or is_folded(self._folds, turn.position)]

    def _level(self, step: StepHistory) -> StepVisibility:
        level = self._resolver.resolve(step.step_id, step.visibility if step.summary is not None else None)
        return "full" if level == "summary" and not step.summary else level


def told(turn: Turn) -> str:
    """A turn as the section shows it."""
    who = f"[{turn.tool_name or 'tool'}]" if turn.role == "tool" else turn.role.title()
    return f"**{who}**: {turn.told}"


def is_folded(folds: Sequence[StepFold], position: int) -> bool:
    """Whether a message is one of those that folds hide; the folds stand in order."""
    at = bisect_right(folds, position, key=lambda fold: fold.start) - 1
    return at >= 0 and position < folds[at].stop


def _number(turn: Turn) -> int:
    return turn.turn_id or 0
