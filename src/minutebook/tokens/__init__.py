"""Token counts, and what is known of models: their windows and prices.

Counters work on plain message dicts and on text. Nothing here reads files or knows what a conversation is. Start with
`counter_for` in `families`, then `counter`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "calibrate": ("CalibratedCounter",),
    "counter": ("ExactCounter", "MessageCounter", "ScaledCounter", "TokenCounter", "total"),
    "estimate": ("EstimatedCounter",),
    "families": ("counter_for", "vocabulary_for"),
    "media": ("ANTHROPIC", "GEMINI", "MediaPrices", "OPENAI", "OPENAI_MINI"),
    "models": ("ModelInfo", "Prices", "UnknownModel", "known_models", "model_info"),
    "vocabulary": ("VOCABULARIES",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
