from minutebook.testing.contract.suite import (
    StoreContract as StoreContract,
)
from minutebook.testing.local_model import (
    CALLING_TEMPLATE as CALLING_TEMPLATE,
    LocalModel as LocalModel,
    MissingWeights as MissingWeights,
    ModelDidNotStart as ModelDidNotStart,
    WrongWeights as WrongWeights,
)
from minutebook.testing.provider.rate_limit import (
    RateLimit as RateLimit,
)
from minutebook.testing.provider.server import (
    LoopbackProvider as LoopbackProvider,
)
from minutebook.testing.provider.usage import (
    ANTHROPIC_CACHE as ANTHROPIC_CACHE,
    CacheRules as CacheRules,
    OPENAI_CACHE as OPENAI_CACHE,
)
from minutebook.testing.script import (
    ReceivedRequest as ReceivedRequest,
    ScriptedAnswer as ScriptedAnswer,
    ScriptedFailure as ScriptedFailure,
    ScriptedModel as ScriptedModel,
    call as call,
    cut as cut,
    ends as ends,
    fail as fail,
    overflow as overflow,
    refuse as refuse,
    say as say,
    slow as slow,
    think as think,
    uses as uses,
)
from minutebook.testing.simulator.session import (
    coding_session as coding_session,
    coding_turns as coding_turns,
)

__all__ = [
    "ANTHROPIC_CACHE",
    "CALLING_TEMPLATE",
    "CacheRules",
    "LocalModel",
    "LoopbackProvider",
    "MissingWeights",
    "ModelDidNotStart",
    "OPENAI_CACHE",
    "RateLimit",
    "ReceivedRequest",
    "ScriptedAnswer",
    "ScriptedFailure",
    "ScriptedModel",
    "StoreContract",
    "WrongWeights",
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
