"""The turns of a step that tell most, without a model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minutebook.compaction.sentence import facts_of
from minutebook.errors import InvalidSetting
from minutebook.planning.turn import Turn

if TYPE_CHECKING:
    from minutebook.planning.task import StepHistory


def extractive_summary(step: "StepHistory", max_turns: int = 3, *, max_characters: int | None = None) -> str:
    """The first turn, the last one, and the most telling between them, in their order.

    With `max_characters` each turn is cut to its share of them.

    Raises:
        InvalidSetting: a number is not above 0.
    """
    if max_characters is not None and max_characters < 1:
        raise InvalidSetting("max_characters", max_characters, "a number above 0, or None for no limit")
    turns = key_turns(step.turns, max_turns)
    texts = [turn.render() for turn in turns]
    if max_characters is not None and len("\n".join(texts)) > max_characters:
        share = max(1, max_characters // len(texts) - 1)
        texts = [clipped(text, share) for text in texts]
    return "\n".join(texts)[:max_characters]


def key_turns(turns: Sequence[Turn], max_turns: int = 3) -> list[Turn]:
    """At most so many of the turns: the last, the first, then results before words, those with most facts before others.

    Raises:
        InvalidSetting: `max_turns` is not above 0.
    """
    if max_turns < 1:
        raise InvalidSetting("max_turns", max_turns, "1 or more")
    if len(turns) <= max_turns:
        return list(turns)
    last = len(turns) - 1
    between = sorted(range(1, last), key=lambda place: _telling(turns[place], place), reverse=True)
    chosen = sorted([last, 0, *between][:max_turns])
    return [turns[place] for place in chosen]


def clipped(text: str, length: int) -> str:
    """The text, or its beginning and a mark."""
    return text if len(text) <= length else f"{text[: max(0, length - 1)]}…"


def _telling(turn: Turn, place: int) -> tuple[bool, int, int]:
    return turn.role == "tool", len(facts_of(turn.content[:5_000])), place
