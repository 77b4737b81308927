"""Time that a test moves by hand."""

from datetime import UTC, datetime, timedelta


class Clock:
    """A wall clock and a stopwatch that go on together, when they are told to.

    It starts at noon of today: stores forget what has expired by their own clock, which a test does not move.
    """

    def __init__(self):
        self._start = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
        self._passed = 0.0

    def now(self):
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self):
        return self._passed

    def pass_by(self, seconds):
        self._passed += seconds
