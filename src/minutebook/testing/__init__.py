"""Test doubles that behave like the real parts; they ship with the package.

A scripted model, a strict provider on loopback, a contract for store backends, a session simulator and a small local
model. Start with `script` and `provider/server`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "contract.suite": ("StoreContract",),
    "local_model": ("CALLING_TEMPLATE", "LocalModel", "MissingWeights", "ModelDidNotStart", "WrongWeights"),
    "provider.rate_limit": ("RateLimit",),
    "provider.server": ("LoopbackProvider",),
    "provider.usage": ("ANTHROPIC_CACHE", "CacheRules", "OPENAI_CACHE"),
    "script": (
        "ScriptedAnswer",
        "ScriptedFailure",
        "ReceivedRequest",
        "ScriptedModel",
        "call",
        "cut",
        "ends",
        "fail",
        "overflow",
        "refuse",
        "say",
        "slow",
        "think",
        "uses",
    ),
    "simulator.session": ("coding_session", "coding_turns"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
