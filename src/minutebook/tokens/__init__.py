"""Counting tokens: exactly, by estimate, and corrected by what providers report.

    counter = counter_for("openai/gpt-4o")
    total(counter, messages)

Nothing here does any input or output, and no vocabulary is loaded before the first text is counted.
"""

from minutebook.tokens.calibrate import CalibratedCounter
from minutebook.tokens.counter import MessageCounter, TokenCounter, total
from minutebook.tokens.estimate import EstimatedCounter
from minutebook.tokens.exact import ExactCounter
from minutebook.tokens.families import counter_for, vocabulary_for
from minutebook.tokens.media import ANTHROPIC, GEMINI, OPENAI, OPENAI_MINI, MediaPrices
from minutebook.tokens.scaled import ScaledCounter
from minutebook.tokens.vocabulary import VOCABULARIES

__all__ = [
    "ANTHROPIC",
    "GEMINI",
    "OPENAI",
    "OPENAI_MINI",
    "VOCABULARIES",
    "CalibratedCounter",
    "EstimatedCounter",
    "ExactCounter",
    "MediaPrices",
    "MessageCounter",
    "ScaledCounter",
    "TokenCounter",
    "counter_for",
    "total",
    "vocabulary_for",
]
