"""A counter that is corrected by the usage that providers report. Counters are immutable: each report gives a new one."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from minutebook.errors import InvalidSetting
from minutebook.tokens.counter import MessageCounter, TokenCounter, rounded_up
from minutebook.tokens.media import OPENAI, MediaPrices

TOLERANCE = 0.03
"""Default of `CalibratedCounter.tolerance`, as a fraction of the reported tokens."""

MAX_FIRST_RATIO = 2.0
"""Maximum of the latest report's ratio. A higher ratio is more likely due to overhead than to a different vocabulary."""

CORRECTION_RANGE = (0.5, 4.0)
"""Minimum and maximum of the correction. The vocabularies in use do not differ by more, in any script."""

RATIO_WEIGHT = 0.02
"""Weight of the ratio of the latest report against the slope of all reports. With a smaller weight, fewer reports are
needed before the slope prevails. Fitted on recorded usage; any value from 0.005 to 0.1 works."""


class UsageReports(NamedTuple):
    """Means and sums of the reports so far, for a linear regression."""

    report_count: int = 0
    mean_counted: float = 0.0
    """Mean of the inner counter's counts."""
    mean_reported: float = 0.0
    """Mean of the provider's counts."""
    squares: float = 0.0
    """Sum of the squared deviations of the inner counter's counts from their mean."""
    products: float = 0.0
    """Sum of the products of the deviations of both counts from their means."""

    def with_report(self, counted: float, reported: float) -> "UsageReports":
        """The means and sums with one more report (Welford's algorithm)."""
        report_count = self.report_count + 1
        delta_counted, delta_reported = counted - self.mean_counted, reported - self.mean_reported
        mean_counted = self.mean_counted + delta_counted / report_count
        mean_reported = self.mean_reported + delta_reported / report_count
        return UsageReports(
            report_count,
            mean_counted,
            mean_reported,
            self.squares + delta_counted * (counted - mean_counted),
            self.products + delta_counted * (reported - mean_reported),
        )


NO_REPORTS = UsageReports()


class CalibratedCounter(MessageCounter):
    """Another counter, corrected by the usage that the provider reported.

    A request costs `overhead` plus the tokens of its messages, which are `correction` times the count of `inner`. The
    overhead is the tokens outside of messages: tool schemas, the provider's own preamble. Subtract it from the budget for
    messages:

        counter = counter.observe(total(counter, sent), usage["prompt_tokens"])
        room_for_messages = window - counter.overhead

    Cuts depend on counts, and a cut that moves invalidates the provider's prompt cache. So for a report within `tolerance`
    of the expected usage, `observe` returns the same counter. Use a new counter for another model.
    """

    __slots__ = ("correction", "inner", "media", "overhead", "reports", "tolerance")

    def __init__(
        self,
        inner: TokenCounter,
        correction: float = 1.0,
        overhead: int = 0,
        tolerance: float = TOLERANCE,
        reports: UsageReports = NO_REPORTS,
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
        self.reports = reports
        self.media: MediaPrices = getattr(inner, "media", OPENAI)

    @property
    def name(self) -> str:
        return f"{self.inner.name}, calibrated"

    def count(self, text: str) -> int:
        return rounded_up(self.inner.count(text) * self.correction)

    def message(self, message: Mapping[str, Any]) -> int:
        """The inner counter's tokens times the correction.

        Delimiters and media are corrected like text, because a report does not separate them.
        """
        return rounded_up(self.inner.message(message) * self.correction)

    def observe(self, counted: int, reported: int) -> "CalibratedCounter":
        """The counter to use after a request whose messages this counter counted as `counted` tokens.

        `reported` is the whole input of that request: if the provider reports cached input separately, add it.

        The new counter is a line through the reports so far, `overhead + correction * counted`, which is exact for the
        latest report. Until the reports differ enough, its slope is close to `reported / counted` of the latest report.
        So a single report already helps, and an unknown vocabulary is overcounted rather than undercounted.
        """
        if counted <= 0 or reported <= 0:
            return self  # nothing was sent, or the provider reports no usage
        if self.reports.report_count and abs(counted + self.overhead - reported) <= self.tolerance * reported:
            return self
        uncorrected = counted / self.correction
        reports = self.reports.with_report(uncorrected, reported)
        lowest, highest = CORRECTION_RANGE
        ratio = max(reported / uncorrected, lowest)
        ratio_weight = RATIO_WEIGHT * uncorrected**2
        slope = (reports.products + ratio_weight * min(ratio, MAX_FIRST_RATIO)) / (reports.squares + ratio_weight)
        correction = min(max(slope, lowest), ratio, highest)
        overhead = max(0, round(reported - correction * uncorrected))
        return CalibratedCounter(self.inner, correction, overhead, self.tolerance, reports)

    def _arguments(self) -> tuple[TokenCounter, float, int, float, UsageReports]:
        return self.inner, self.correction, self.overhead, self.tolerance, self.reports
