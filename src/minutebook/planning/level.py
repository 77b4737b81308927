"""How much of a step is shown."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from minutebook.errors import InvalidSetting
from minutebook.tokens.models import ModelInfo

StepVisibility: TypeAlias = Literal["full", "condensed", "summary", "title"]
"""All that was said; the turns that tell most; the summary; nothing but the title."""

KEEP: Final = 4_000
"""Tokens at the end of the conversation that summaries leave alone, where nobody says how many."""
_OF_WINDOW: Final = 8
LEVELS: Final[tuple[StepVisibility, ...]] = get_args(StepVisibility)


def kept_of(model: ModelInfo | None) -> int:
    """How much of the end of a conversation stays by default; no more than a small share of the model's window."""
    return KEEP if model is None else min(KEEP, model.room() // _OF_WINDOW)


def require_level(name: str, level: object) -> None:
    if level not in LEVELS:
        raise InvalidSetting(name, level, f"one of {', '.join(LEVELS)}")


class StepVisibilityResolver:
    """Resolves visibility for individual history steps: what is asked for here, else what the history says.

    It decides what the section shows. What the messages show is the history's alone, so nothing is lost: a step that is
    folded there and `full` here is told in the section, word for word.

    Raises:
        InvalidSetting: there is no such level.
    """

    def __init__(
        self, *, default: StepVisibility = "full", overrides: Mapping[int, StepVisibility] | None = None
    ) -> None:
        require_level("default", default)
        self._default: StepVisibility = default
        self._overrides = dict(overrides or {})
        for step_id, level in self._overrides.items():
            require_level(f"the override of step {step_id}", level)

    def resolve(self, step_id: int, stored: StepVisibility | None) -> StepVisibility:
        """The override of the step, or what is stored for it, or the default where nothing is."""
        return self._overrides.get(step_id) or stored or self._default

    def with_overrides(self, more: Mapping[int, StepVisibility]) -> "StepVisibilityResolver":
        """The same with these overrides too; they win over those that are there."""
        return StepVisibilityResolver(default=self._default, overrides={**self._overrides, **more})
