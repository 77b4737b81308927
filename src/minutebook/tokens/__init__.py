"""Token counters, and the context windows and prices of models.

Counters work on plain message dicts and on text. Nothing here depends on conversations, and only `load_models` reads a
file. Start with `counter_for` in `families`, then `counter`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "calibrate": ("CalibratedCounter",),
    "counter": ("ExactCounter", "MessageCounter", "ScaledCounter", "TokenCounter", "total"),
    "estimate": ("EstimatedCounter",),
    "families": ("counter_for", "vocabulary_for"),
    "media": ("ANTHROPIC", "GEMINI", "MediaPrices", "OPENAI", "OPENAI_MINI"),
    "models": ("ModelInfo", "Prices", "UnknownModel", "known_models", "load_models", "model_info"),
    "vocabulary": ("VOCABULARIES",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
