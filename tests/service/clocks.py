"""Time that a test moves by hand."""

from datetime import timedelta

from tests.service.parts import NOON


class Clock:
    """A wall clock and a stopwatch that go on together, when they are told to."""

    def __init__(self, at=NOON):
        self._start, self._passed = at, 0.0

    def now(self):
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self):
        return self._passed

    def pass_by(self, seconds):
        self._passed += seconds
