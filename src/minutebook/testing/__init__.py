"""Parts for tests and trials that are real: they ship, and behave as what they stand in for."""

from minutebook.testing.simulator import coding_session, coding_turns

__all__ = ["coding_session", "coding_turns"]
