"""The recommended manager: a view within a token budget that is cut rarely, the oldest and cheapest messages first.

The messages are processed from left to right. When the view would exceed `max_tokens`, it is cut to the share `target`
in one step. So cuts are rare, new messages never move an earlier cut, and between two cuts each view is the previous one
with messages appended, as prompt caches require.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from minutebook.errors import InvalidSetting, one_of
from minutebook.history.budget.view import BudgetView
from minutebook.history.incremental import IncrementalManager, IncrementalView, PreservedMessages
from minutebook.history.scores import BM25Scorer, Scorer
from minutebook.history.window import require_count
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter, counter_for

Preset: TypeAlias = Literal["balanced", "economy", "quality"]


class PresetSettings(NamedTuple):
    """The settings of a preset. Those that are also settings of the manager can be set there."""

    target: float
    """Maximum share of the limit that a cut leaves."""
    names: float
    """Share of the limit for the list of names."""
    clear_all: bool
    """Whether a cut clears all old results, not only as many as necessary."""
    early: float
    """After a cut, the next one is made when the view has grown by this multiple of the cheapest growth; 0 for at the limit."""
    clip: float
    """Share of the limit above which the output of a command or a search is clipped; 0 for never."""
    never_dearer: bool
    """Whether a cut leaves only as much as the savings so far can pay for."""


PRESETS: Final[Mapping[str, PresetSettings]] = {
    "balanced": PresetSettings(target=0.5, names=0.065, clear_all=True, early=0.0, clip=0.03, never_dearer=True),
    "economy": PresetSettings(target=0.14, names=0.05, clear_all=True, early=1.0, clip=0.02, never_dearer=True),
    "quality": PresetSettings(target=0.7, names=0.08, clear_all=False, early=0.0, clip=0.0, never_dearer=False),
}
"""Measured by replaying recorded sessions: see docs/decisions/0004-what-to-cut-first.md."""


@dataclass(slots=True, frozen=True)
class TokenBudgetManager(IncrementalManager):
    """Keep the view within a token budget.

    Over budget, old tool results are cleared first, then the oldest whole turns are dropped, then the oldest exchanges of
    the current turn, until the view has at most `target`. With a `scorer`, the exchanges with the lowest scores go first,
    instead of the oldest. The names in what is left out are listed in one message. Leading system messages, pins, the
    newest user message and the exchange that the model is about to answer always stay. If the view is still too large, the
    results of that exchange are clipped, and the first user message is dropped. If that is not enough, `curate` raises
    `CannotFit`.

    Raises:
        InvalidSetting: a setting is out of range.
    """

    max_tokens: int
    """Maximum tokens of a view."""
    preset: Preset = "balanced"
    """`economy` cuts deeper and more often, and clips more: lower cost. `quality` keeps more, at a higher cost.

    With `balanced` and `economy`, a cut leaves only as much as the savings so far can pay for, at the typical prices of
    prompt caches, and long output of commands and searches is clipped after the first cut."""
    target: float | None = None
    """Maximum share of `max_tokens` that remains after a cut. A lower target cuts deeper and less often. Default: the
    preset's."""
    trigger: float = 1.0
    """Share of `max_tokens` above which the view is cut. Below 1, a record that would fit is cut too."""
    keep_results: int = 1
    """Number of newest tool results that a cut does not clear."""
    reserve: int = 0
    """Tokens of the budget reserved for other parts: tool schemas, the reply."""
    preserve_first_request: bool = True
    """Keep the first user message while it fits: it is often the task."""
    names: float | None = None
    """Share of `max_tokens` for a list of the names in messages that a cut leaves out; 0 for no list. Default: the
    preset's."""
    scorer: Scorer | Literal["bm25"] | None = None
    """What a cut leaves out first: the exchanges with the lowest scores. `"bm25"` scores them by the words that they share
    with the newest request. Default: the oldest."""
    counter: TokenCounter | None = None
    """Token counter. Default: that of the transcript, or an exact counter for a plain list."""

    def __post_init__(self) -> None:
        require_count("max_tokens", self.max_tokens)
        require_count("keep_results", self.keep_results)
        require_count("reserve", self.reserve)
        if self.preset not in PRESETS:
            raise InvalidSetting("preset", self.preset, one_of(get_args(Preset), self.preset))
        if self.target is not None and not 0 < self.target <= 1:
            raise InvalidSetting("target", self.target, "a share above 0, at most 1")
        if not 0 < self.trigger <= 1:
            raise InvalidSetting("trigger", self.trigger, "a share above 0, at most 1")
        if self.names is not None and not 0 <= self.names < 1:
            raise InvalidSetting("names", self.names, "a share from 0 to below 1")
        is_object = isinstance(self.scorer, Hashable) and not isinstance(self.scorer, type)
        is_scorer = is_object and isinstance(self.scorer, Scorer)
        if not (is_scorer or self.scorer is None or self.scorer == "bm25"):
            expected = '"bm25", or a hashable object with a method score(exchange, context)'
            raise InvalidSetting("scorer", self.scorer, expected)
        if self.limit <= 0:
            raise InvalidSetting("max_tokens", self.max_tokens, f"more than the reserve of {self.reserve}")

    @property
    def settings(self) -> PresetSettings:
        """The settings of the preset, with those that were given."""
        preset = PRESETS[self.preset]
        return preset._replace(
            target=preset.target if self.target is None else self.target,
            names=preset.names if self.names is None else self.names,
        )

    @property
    def limit(self) -> int:
        """Maximum tokens of the messages."""
        return self.max_tokens - self.reserve

    @property
    def threshold(self) -> int:
        """Tokens of the messages above which the first cut is made."""
        return int(self.limit * self.trigger)

    @property
    def goal(self) -> int:
        """Maximum tokens of the messages after a cut."""
        return int(self.limit * self.settings.target)

    @property
    def exchange_scorer(self) -> Scorer | None:
        """The scorer, also if it was given by its name."""
        return BM25Scorer() if isinstance(self.scorer, str) else self.scorer

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:  # noqa: ARG002
        return BudgetView(source, preserved, self)

    def fits(self, messages: Sequence[Message]) -> bool:
        if isinstance(messages, Transcript) and (self.counter is None or self.counter == messages.counter):
            return messages.tokens <= self.threshold
        counter = self.counter or counter_for(None)
        return sum(map(counter.message, messages)) <= self.threshold

    def default_counter(self) -> TokenCounter | None:
        return self.counter
