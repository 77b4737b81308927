"""The vocabulary and the counter of a model, by the names that providers, gateways and clouds use for it."""

import re
from functools import lru_cache

from minutebook.errors import require_type
from minutebook.tokens.counter import ExactCounter, MessageCounter, ScaledCounter
from minutebook.tokens.media import ANTHROPIC, GEMINI, OPENAI, OPENAI_MINI, MediaPrices

FAMILIES: tuple[tuple[str, str | None], ...] = (
    ("claude", None),  # not public after Claude 2
    ("gpt-?oss", "gpt-oss"),
    (r"chatgpt|codex|gpt-?(4o|4[.-]?[15](?!\d)|[5-9])|(?<![a-z0-9])o[1-9](?![a-z0-9])", "o200k_base"),
    (r"gpt-?(4|3\.?5)", "cl100k_base"),
    (r"gemini-(3\.[1-9]|[4-9])", "gemma4"),
    # Google's own counter uses Gemma 3 for Gemini 2.0 and later. Gemini 1.5 had an older, similar vocabulary.
    ("gemini", "gemma3"),
    ("gemma-?4", "gemma4"),
    ("gemma-?3", "gemma3"),
    ("gemma", "gemma2"),
    ("code-?llama", "codellama"),
    (r"llama-?v?4", None),  # 202k entries, in no available library
    (r"llama-?v?2|tinyllama|vicuna", "llama2"),
    (r"llama-?v?3|distill-llama", "llama3"),
    (r"qwen-?3[.-]?[5-9](?!\d)", None),  # a new vocabulary since 3.5, in no available library
    (r"qwen-?[23]|qwen-?v?l|qwq|distill-qwen", "qwen3"),
    ("deepseek.*(coder|v2|v4|llm)", None),  # different or unknown vocabularies
    ("deepseek", "deepseek_v3"),
    # Mistral's older models have vocabularies of 32,000 entries (v1, v2 and the first v3), which differ only in control
    # tokens, so mistral_v2 counts for all of them. Models from Nemo and Pixtral on use Tekken, which splintr calls mistral_v3.
    (r"mixtral|mistral-7b|codestral-(22b|2405)|mistral-small-24|mistral-large-24", "mistral_v2"),
    (r"mistral|ministral|codestral|devstral|magistral|pixtral|voxtral", "mistral_v3"),
    (r"glm-?4", "glm4"),
    (r"kimi-?k3", "kimi_k3"),
    ("kimi", "kimi_k2"),
    ("phi-?4", "phi4"),
    ("olmo-?2", "olmo2"),
)
"""Patterns for `bare_name`, each with a vocabulary, or None if that is not available. The first match is used."""

CLAUDE_FACTORS: tuple[tuple[tuple[int, int], float], ...] = (
    ((4, 7), 1.55),
    ((3, 0), 1.2),
    ((0, 0), 1.1),
)
"""First version of Claude for which a factor applies → the factor: Claude's tokens divided by those of o200k_base.

Measured on English, code, JSON and whole conversations:

- Claude 2, with the vocabulary that Anthropic published: 1.02 to 1.07 (1.29 on Chinese, Japanese and Korean).
- Claude 3 to Claude 4.6, with a vocabulary reconstructed from about 960,000 answers of Anthropic's counter: 1.11 to 1.25.
- Claude 4.7 and later, in the same way: 1.43 to 1.59. Anthropic states that this vocabulary makes about 30 % more tokens.
"""

UNKNOWN_FACTOR = 1.3
"""Factor of cl100k_base for an unknown model. In nearly every script cl100k_base needs more tokens than the other large
vocabularies. With this factor, the count is at most a fifth too low for Llama 3, Qwen 3, DeepSeek, Mistral, Gemma, GLM
and Kimi. The exception is columns of numbers, which some of these vocabularies split into digits."""


@lru_cache(maxsize=512)
def vocabulary_for(model: str) -> str | None:
    """The vocabulary of a model, or None if it is unknown or not available."""
    name = bare_name(model)
    return next((vocabulary for pattern, vocabulary in FAMILIES if re.search(pattern, name)), None)


def counter_for(model: str | None = None) -> MessageCounter:
    """The best available counter for a model.

    The counter is exact if the model's vocabulary is available. Claude's is not public: its tokens are estimated as those
    of o200k_base times a measured factor. The tokens of other models are estimated as those of cl100k_base times
    `UNKNOWN_FACTOR`, which rarely undercounts. Without a model, the counter uses o200k_base.
    """
    if model is None:
        return ExactCounter()
    name = bare_name(model)
    if "claude" in name:
        return ScaledCounter(ExactCounter(), claude_factor(name), media_prices_for(name))
    vocabulary = vocabulary_for(model)
    if vocabulary is None:
        return ScaledCounter(ExactCounter("cl100k_base"), UNKNOWN_FACTOR, media_prices_for(name))
    return ExactCounter(vocabulary, media_prices_for(name))


def bare_name(model: str) -> str:
    """The name without the prefixes and suffixes of routers: gpt-4o for `openrouter/openai/gpt-4o:free` and `ft:gpt-4o:acme::x`."""
    require_type("model", model, str, "the name of a model, such as 'gpt-4o'")
    return model.strip().lower().rpartition("/")[2].removeprefix("ft:").partition(":")[0]


def claude_factor(name: str) -> float:
    """The factor for the version in the name. A name without a version means the newest one."""
    match = re.search(r"(?<!\d)(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)", name.partition("claude")[2])
    version = (int(match[1]), int(match[2] or 0)) if match else (99, 0)
    return next(factor for first_version, factor in CLAUDE_FACTORS if version >= first_version)


def media_prices_for(name: str) -> MediaPrices:
    if "claude" in name:
        return ANTHROPIC
    if re.search("gemini|gemma", name):
        return GEMINI
    return OPENAI_MINI if re.search("gpt-?4o-?mini", name) else OPENAI
