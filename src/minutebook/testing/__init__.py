"""Parts for tests and trials that are real: they ship, and behave as what they stand in for."""

from typing import TYPE_CHECKING, Any

from minutebook.testing.local import LocalModel
from minutebook.testing.provider import LoopbackProvider
from minutebook.testing.provider_limit import RateLimit
from minutebook.testing.provider_meter import ANTHROPIC_CACHE, OPENAI_CACHE, CacheRules
from minutebook.testing.received import ReceivedRequest
from minutebook.testing.script import (
    Answer,
    Failure,
    ScriptedModel,
    call,
    cut,
    ends,
    fail,
    overflow,
    refuse,
    say,
    slow,
    think,
    uses,
)
from minutebook.testing.simulator import coding_session, coding_turns
from minutebook.testing.template import CALLING_TEMPLATE

if TYPE_CHECKING:
    from minutebook.testing.contract import StoreContract

__all__ = [
    "ANTHROPIC_CACHE",
    "CALLING_TEMPLATE",
    "OPENAI_CACHE",
    "Answer",
    "CacheRules",
    "Failure",
    "LocalModel",
    "LoopbackProvider",
    "RateLimit",
    "ReceivedRequest",
    "ScriptedModel",
    "StoreContract",
    "call",
    "coding_session",
    "coding_turns",
    "cut",
    "ends",
    "fail",
    "overflow",
    "refuse",
    "say",
    "slow",
    "think",
    "uses",
]


def __getattr__(name: str) -> Any:
    """Load the contract of stores on first use: whoever tests with a model needs no store."""
    if name != "StoreContract":
        raise AttributeError(f"module 'minutebook.testing' has no attribute {name!r}")
    from minutebook.testing.contract import StoreContract

    return StoreContract
