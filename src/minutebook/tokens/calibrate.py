"""Learning from the usage that providers report how far a count is off, without ever changing a counter."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from minutebook.errors import InvalidSetting
from minutebook.tokens.counter import MessageCounter, TokenCounter, rounded_up
from minutebook.tokens.media import OPENAI, MediaPrices

TOLERANCE = 0.03

LIKELY = 2.0
"""Above this ratio a single report rather shows overhead than another vocabulary."""

POSSIBLE = (0.5, 4.0)
"""Beyond these no two vocabularies in use differ, in any script."""

TRUST = 0.02
"""How soon the slope of the reports is believed over their plain ratio: the smaller, the sooner. Fitted on recorded
usage; anything from 0.005 to 0.1 does."""


class Evidence(NamedTuple):
    """The reports so far, as the sums a straight line through them needs."""

    reports: int = 0
    counted: float = 0.0
    """The mean of what the inner counter said."""
    reported: float = 0.0
    """The mean of what the provider said."""
    spread: float = 0.0
    together: float = 0.0

    def and_also(self, counted: float, reported: float) -> "Evidence":
        reports = self.reports + 1
        off_counted, off_reported = counted - self.counted, reported - self.reported
        mean_counted, mean_reported = self.counted + off_counted / reports, self.reported + off_reported / reports
        return Evidence(
            reports,
            mean_counted,
            mean_reported,
            self.spread + off_counted * (counted - mean_counted),
            self.together + off_counted * (reported - mean_reported),
        )


NOTHING_YET = Evidence()


class CalibratedCounter(MessageCounter):
    """Another counter, corrected by what the provider reported.

    A request costs `overhead` plus the messages, each `correction` times what `inner` says. The overhead is what no
    message shows: tool schemas, the provider's own preamble. Keep it out of the budget for messages:

        counter = counter.observe(total(counter, sent), usage["prompt_tokens"])
        room_for_messages = window - counter.overhead

    A cut depends on counts, and a cut that moves breaks the provider's prompt cache. So a report within `tolerance`
    of what was expected changes nothing and `observe` returns the counter itself. Start a new one for another model.
    """

    __slots__ = ("correction", "evidence", "inner", "media", "overhead", "tolerance")

    def __init__(
        self,
        inner: TokenCounter,
        correction: float = 1.0,
        overhead: int = 0,
        tolerance: float = TOLERANCE,
        evidence: Evidence = NOTHING_YET,
    ) -> None:
        if not (isfinite(correction) and correction > 0):
            raise InvalidSetting("correction", correction, "a positive number, such as 1.0")
        if overhead < 0:
            raise InvalidSetting("overhead", overhead, "0 or more tokens")
        if not 0 <= tolerance < 1:
            raise InvalidSetting("tolerance", tolerance, "a fraction, such as 0.03")
        self.inner = inner
        self.correction = correction
        self.overhead = overhead
        self.tolerance = tolerance
        self.evidence = evidence
        self.media: MediaPrices = getattr(inner, "media", OPENAI)

    @property
    def name(self) -> str:
        return f"{self.inner.name}, calibrated"

    def count(self, text: str) -> int:
        return rounded_up(self.inner.count(text) * self.correction)

    def message(self, message: Mapping[str, Any]) -> int:
        """The inner counter's tokens, corrected as a whole: a report does not tell text from delimiters or media."""
        return rounded_up(self.inner.message(message) * self.correction)

    def observe(self, counted: int, reported: int) -> "CalibratedCounter":
        """The counter to use from now on, after a request whose messages this one counted as `counted`.

        `reported` is all the input of that request: where a provider reports cached input apart, add it.

        The fit is a line through the reports so far, `overhead + correction * counted`, exact at the latest one. Its
        slope leans on the plain ratio until the reports are far enough apart to show one, so that a single report
        already helps, and an unknown vocabulary is rather over- than undercounted.
        """
        if counted <= 0 or reported <= 0:
            return self  # nothing was sent, or the provider reports nothing: that teaches nothing
        if self.evidence.reports and abs(counted + self.overhead - reported) <= self.tolerance * reported:
            return self
        uncorrected = counted / self.correction
        evidence = self.evidence.and_also(uncorrected, reported)
        lowest, highest = POSSIBLE
        ratio = max(reported / uncorrected, lowest)
        leaning = TRUST * uncorrected**2
        slope = (evidence.together + leaning * min(ratio, LIKELY)) / (evidence.spread + leaning)
        correction = min(max(slope, lowest), ratio, highest)
        overhead = max(0, round(reported - correction * uncorrected))
        return CalibratedCounter(self.inner, correction, overhead, self.tolerance, evidence)

    def _facts(self) -> tuple[TokenCounter, float, int, float, Evidence]:
        return self.inner, self.correction, self.overhead, self.tolerance, self.evidence
