"""When a conversation is compacted by turns, and what is kept (document 003)."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final, Self, get_args

from minutebook.compaction.shown import SummaryRole
from minutebook.errors import InvalidSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryConfig:
    """The limits of turn-based compaction.

    Raises:
        InvalidSetting: a limit cannot be meant, or more turns would be kept than make compaction due.
    """

    max_turns_before_compaction: int = 10
    """So many turns may stand uncompacted; one more and compaction is due."""
    recent_turns_to_keep: int = 3
    """So many turns stay whole when the rest is summed up."""
    max_recent_turns: int = 10
    """The most turns that `get_history` gives."""
    summary_role: SummaryRole = "system"
    """Whose message shows the summary."""
    max_summary_tokens: int = 1_000
    purge_compacted: bool = False
    """Whether what was summed up is deleted from the record. It can then not be undone."""

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidSetting(name, value, "a whole number above 0")
        if self.recent_turns_to_keep > self.max_turns_before_compaction:
            expected = f"at most max_turns_before_compaction, which is {self.max_turns_before_compaction}"
            raise InvalidSetting("recent_turns_to_keep", self.recent_turns_to_keep, expected)
        if self.summary_role not in get_args(SummaryRole):
            raise InvalidSetting("summary_role", self.summary_role, "'system' or 'user'")
        if type(self.purge_compacted) is not bool:
            raise InvalidSetting("purge_compacted", self.purge_compacted, "True or False")

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> Self:
        """The config that settings spell, as `recentTurnsToKeep` or as `recent_turns_to_keep`.

        Raises:
            InvalidSetting: one is unknown, given twice, or cannot be meant.
        """
        known = {spelling: field.name for field in fields(cls) for spelling in (field.name, _camel(field.name))}
        given: dict[str, Any] = {}
        for spelling, value in settings.items():
            if spelling not in known:
                near = get_close_matches(str(spelling), known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                names = ", ".join(field.name for field in fields(cls))
                raise InvalidSetting("a setting of the history", spelling, f"one of {names}{hint}")
            if known[spelling] in given:
                raise InvalidSetting(known[spelling], value, "it once, in one spelling")
            given[known[spelling]] = value
        return cls(**given)


_NUMBERS: Final = (
    "max_turns_before_compaction",
    "recent_turns_to_keep",
    "max_recent_turns",
    "max_summary_tokens",
)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
