from minutebook.tokens.calibrate import (
    CalibratedCounter as CalibratedCounter,
)
from minutebook.tokens.counter import (
    ExactCounter as ExactCounter,
    MessageCounter as MessageCounter,
    ScaledCounter as ScaledCounter,
    TokenCounter as TokenCounter,
    total as total,
)
from minutebook.tokens.estimate import (
    EstimatedCounter as EstimatedCounter,
)
from minutebook.tokens.families import (
    counter_for as counter_for,
    vocabulary_for as vocabulary_for,
)
from minutebook.tokens.media import (
    ANTHROPIC as ANTHROPIC,
    GEMINI as GEMINI,
    MediaPrices as MediaPrices,
    OPENAI as OPENAI,
    OPENAI_MINI as OPENAI_MINI,
)
from minutebook.tokens.models import (
    ModelInfo as ModelInfo,
    Prices as Prices,
    UnknownModel as UnknownModel,
    known_models as known_models,
    load_models as load_models,
    model_info as model_info,
)
from minutebook.tokens.vocabulary import (
    VOCABULARIES as VOCABULARIES,
)

__all__ = [
    "ANTHROPIC",
    "CalibratedCounter",
    "EstimatedCounter",
    "ExactCounter",
    "GEMINI",
    "MediaPrices",
    "MessageCounter",
    "ModelInfo",
    "OPENAI",
    "OPENAI_MINI",
    "Prices",
    "ScaledCounter",
    "TokenCounter",
    "UnknownModel",
    "VOCABULARIES",
    "counter_for",
    "known_models",
    "load_models",
    "model_info",
    "total",
    "vocabulary_for",
]
