"""Which vocabulary a model reads, by the names that providers, gateways and clouds give it."""

import re
from functools import lru_cache

from minutebook.tokens.counter import ExactCounter, MessageCounter, ScaledCounter
from minutebook.tokens.media import ANTHROPIC, GEMINI, OPENAI, OPENAI_MINI, MediaPrices

FAMILIES: tuple[tuple[str, str | None], ...] = (
    ("claude", None),  # not public since Claude 2
    ("gpt-?oss", "gpt-oss"),
    (r"chatgpt|codex|gpt-?(4o|4[.-]?[15](?!\d)|[5-9])|(?<![a-z0-9])o[1-9](?![a-z0-9])", "o200k_base"),
    (r"gpt-?(4|3\.?5)", "cl100k_base"),
    (r"gemini-(3\.[1-9]|[4-9])", "gemma4"),
    (
        "gemini",
        "gemma3",
    ),  # 1.5 had an older vocabulary of the same kind; Google's own counter takes Gemma 3 from 2.0 on
    ("gemma-?4", "gemma4"),
    ("gemma-?3", "gemma3"),
    ("gemma", "gemma2"),
    ("code-?llama", "codellama"),
    (r"llama-?v?4", None),  # 202k entries, in no library we have
    (r"llama-?v?2|tinyllama|vicuna", "llama2"),
    (r"llama-?v?3|distill-llama", "llama3"),
    (r"qwen-?3[.-]?[5-9](?!\d)", None),  # 3.5 brought a new vocabulary, in no library we have
    (r"qwen-?[23]|qwen-?v?l|qwq|distill-qwen", "qwen3"),
    ("deepseek.*(coder|v2|v4|llm)", None),  # other vocabularies, or not known to have this one
    ("deepseek", "deepseek_v3"),
    # Mistral's first vocabularies have 32,000 entries: v1 (7B to v0.2, Mixtral 8x7B), v2 and v3 before Tekken (7B
    # v0.3, 8x22B, Codestral 22B, Small of 2024, Large 2). They count alike but for control tokens. Tekken came with
    # Nemo and Pixtral and is in everything since; splintr calls it v3.
    (r"mixtral|mistral-7b|codestral-(22b|2405)|mistral-small-24|mistral-large-24", "mistral_v2"),
    (r"mistral|ministral|codestral|devstral|magistral|pixtral|voxtral", "mistral_v3"),
    (r"glm-?4", "glm4"),
    (r"kimi-?k3", "kimi_k3"),
    ("kimi", "kimi_k2"),
    ("phi-?4", "phi4"),
    ("olmo-?2", "olmo2"),
)
"""A pattern to find in the bare name, and its vocabulary; the first that fits wins, None when nobody has it."""

CLAUDE_FACTORS: tuple[tuple[tuple[int, int], float], ...] = (
    ((4, 7), 1.55),
    ((3, 0), 1.2),
    ((0, 0), 1.1),
)
"""From which version on, how many of Claude's tokens make one of o200k_base.

Measured on English, code, JSON and whole conversations: the Claude 2 vocabulary that Anthropic once published gives
1.02 to 1.07 (1.29 on Chinese, Japanese and Korean); a reconstruction from some 960,000 answers of Anthropic's own
counter gives 1.11 to 1.25 for 3 to 4.6 and 1.43 to 1.59 for 4.7 and later, which fits Anthropic's statement that the
newer vocabulary makes about 30 % more tokens.
"""

UNKNOWN_FACTOR = 1.3
"""For a model we know nothing of: cl100k_base, the widest counter of the large vocabularies in nearly every script, and
a margin. Against Llama 3, Qwen 3, DeepSeek, Mistral, Gemma, GLM and Kimi that is short by more than a fifth only on
columns of numbers, which some of them read digit by digit."""


@lru_cache(maxsize=512)
def vocabulary_for(model: str) -> str | None:
    """The vocabulary a model reads, or None when it is not known or not public."""
    name = bare_name(model)
    return next((vocabulary for pattern, vocabulary in FAMILIES if re.search(pattern, name)), None)


def counter_for(model: str | None = None) -> MessageCounter:
    """The best counter there is for a model.

    Exact where the vocabulary is known. Claude's is not public: o200k_base times a measured factor. An unknown name
    gets what is least likely to undercount, `UNKNOWN_FACTOR`; no name at all, o200k_base.
    """
    if model is None:
        return ExactCounter()
    name = bare_name(model)
    if "claude" in name:
        return ScaledCounter(ExactCounter(), claude_factor(name), ANTHROPIC)
    vocabulary = vocabulary_for(model)
    if vocabulary is None:
        return ScaledCounter(ExactCounter("cl100k_base"), UNKNOWN_FACTOR, media_for(name))
    return ExactCounter(vocabulary, media_for(name))


def bare_name(model: str) -> str:
    """The name without what routers put around it: `openrouter/openai/gpt-4o:free` and `ft:gpt-4o:acme::x` are gpt-4o."""
    return model.strip().lower().rpartition("/")[2].removeprefix("ft:").partition(":")[0]


def claude_factor(name: str) -> float:
    """By the version in the name; a name that hides it is taken for the newest."""
    found = re.search(r"(?<!\d)(\d{1,2})(?:[.-](\d{1,2}))?(?!\d)", name.partition("claude")[2])
    version = (int(found[1]), int(found[2] or 0)) if found else (99, 0)
    return next(factor for since, factor in CLAUDE_FACTORS if version >= since)


def media_for(name: str) -> MediaPrices:
    if re.search("gemini|gemma", name):
        return GEMINI
    return OPENAI_MINI if re.search("gpt-?4o-?mini", name) else OPENAI
