"""Which counter a model's name gets, however it is spelled."""

import pytest

from minutebook.errors import InvalidSetting
from minutebook.tokens import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    OPENAI_MINI,
    VOCABULARIES,
    ExactCounter,
    MediaPrices,
    ScaledCounter,
    counter_for,
    vocabulary_for,
)
from minutebook.tokens.families import FAMILIES
from tests.tokens.samples import SAMPLES

NAMES = {
    "o200k_base": "gpt-4o gpt-4o-mini-2024-07-18 openai/gpt-4o azure/gpt-4.1 openrouter/openai/gpt-4o:free chatgpt-4o-latest "
    "gpt-4.1-nano gpt-4.5-preview gpt-5 gpt-5.1-codex GPT-5-Mini o1 o1-preview o3-mini azure/o4-mini ft:gpt-4.1-mini:acme::9xYz "
    "codex-mini-latest gpt-41-mini",
    "cl100k_base": "gpt-4 gpt-4-turbo gpt-4-1106-preview gpt-4-0125-preview gpt-3.5-turbo azure/gpt-35-turbo ft:gpt-3.5-turbo:acme",
    "gpt-oss": "gpt-oss-120b openai/gpt-oss-20b openai.gpt-oss-120b-1:0",
    "gemma3": "gemini-1.5-pro gemini-2.0-flash gemini/gemini-2.5-pro vertex_ai/gemini-3-pro-preview google/gemma-3-27b-it gemma3:4b",
    "gemma4": "gemini-3.1-pro-preview gemini-3.5-flash google/gemma-4-12b",
    "gemma2": "google/gemma-2-9b-it gemma-7b",
    "llama2": "meta-llama/Llama-2-70b-chat-hf replicate/llama2 vicuna-13b",
    "codellama": "codellama/CodeLlama-34b-Instruct-hf",
    "llama3": "meta-llama/Llama-3.3-70B-Instruct meta.llama3-1-70b-instruct-v1:0 llama3.1:8b "
    "accounts/fireworks/models/llama-v3p1-8b-instruct deepseek-r1-distill-llama-70b",
    "qwen3": "Qwen/Qwen2.5-72B-Instruct qwen2-7b qwen3-coder-480b qwen/qwen-2.5-coder qwen3:14b qwq-32b deepseek-r1-distill-qwen-32b",
    "deepseek_v3": "deepseek-chat deepseek/deepseek-reasoner deepseek-ai/DeepSeek-V3.2 deepseek.r1-v1:0 deepseek-r1",
    "mistral_v2": "mistralai/Mistral-7B-Instruct-v0.3 mixtral-8x22b-instruct codestral-22b mistral.mistral-large-2407-v1:0",
    "mistral_v3": "mistral-nemo mistral-small-2503 mistral/mistral-medium-latest ministral-8b devstral-small codestral-2508 magistral-medium",
    "glm4": "zai-org/GLM-4.6 glm-4-9b glm4.5-air",
    "kimi_k2": "moonshotai/Kimi-K2-Instruct kimi-latest",
    "kimi_k3": "kimi-k3",
    "phi4": "microsoft/phi-4 phi4",
    "olmo2": "allenai/OLMo-2-13B",
}
CASES = [(name, vocabulary) for vocabulary, names in NAMES.items() for name in names.split()]
UNKNOWN = [
    "my-model",
    "amazon.nova-pro-v1:0",
    "llama-4-maverick",
    "qwen3.5-plus",
    "deepseek-coder-v2",
    "xai/grok-4",
    "",
]


@pytest.mark.parametrize(("name", "vocabulary"), CASES)
def test_a_model_is_known_under_all_its_names(name: str, vocabulary: str) -> None:
    assert vocabulary_for(name) == vocabulary
    counter = counter_for(name)
    assert isinstance(counter, ExactCounter)
    assert counter.vocabulary == vocabulary


def test_every_vocabulary_in_the_table_exists() -> None:
    assert {vocabulary for _, vocabulary in FAMILIES if vocabulary} <= set(VOCABULARIES)


CLAUDES = [
    ("claude-2.1", 1.1),
    ("claude-instant-1.2", 1.1),
    ("anthropic.claude-v2:1", 1.1),
    ("claude-3-haiku-20240307", 1.2),
    ("claude-3-5-sonnet-20241022", 1.2),
    ("litellm_proxy/anthropic.claude-3-5-sonnet-20241022-v2:0", 1.2),
    ("vertex_ai/claude-3-7-sonnet@20250219", 1.2),
    ("claude-opus-4-20250514", 1.2),
    ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", 1.2),
    ("anthropic/claude-opus-4.6", 1.2),
    ("claude-opus-4-7", 1.55),
    ("anthropic/claude-opus-4.8", 1.55),
    ("claude-sonnet-5", 1.55),
    ("openrouter/anthropic/claude-latest", 1.55),
]


@pytest.mark.parametrize(("name", "factor"), CLAUDES)
def test_claude_is_o200k_times_the_factor_of_its_version(name: str, factor: float) -> None:
    assert vocabulary_for(name) is None
    assert counter_for(name) == ScaledCounter(ExactCounter("o200k_base"), factor, ANTHROPIC)


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_model_gets_the_counter_least_likely_to_undercount(name: str) -> None:
    assert vocabulary_for(name) is None
    assert counter_for(name) == ScaledCounter(ExactCounter("cl100k_base"), 1.3)


MODERN = ["o200k_base", "llama3", "qwen3", "deepseek_v3", "mistral_v3", "gemma3", "glm4"]


@pytest.mark.parametrize("vocabulary", MODERN)
@pytest.mark.parametrize("kind", [kind for kind in SAMPLES if kind != "csv"])
def test_the_counter_of_unknown_models_is_never_a_fifth_too_low(vocabulary: str, kind: str) -> None:
    assert counter_for("my-model").count(SAMPLES[kind]) >= 0.8 * ExactCounter(vocabulary).count(SAMPLES[kind])


def test_no_model_at_all_is_counted_with_o200k() -> None:
    assert counter_for() == counter_for(None) == ExactCounter("o200k_base")


@pytest.mark.parametrize(
    ("name", "prices"),
    [
        ("gpt-4o", OPENAI),
        ("openai/gpt-4o-mini", OPENAI_MINI),
        ("claude-sonnet-5", ANTHROPIC),
        ("gemini-2.5-flash", GEMINI),
        ("deepseek-chat", OPENAI),
    ],
)
def test_media_is_priced_by_the_models_provider(name: str, prices: MediaPrices) -> None:
    assert counter_for(name).media == prices


def test_a_factor_scales_text_and_rounds_up() -> None:
    exact = ExactCounter()
    text = "The minutes of the last meeting"
    call = {"function": {"name": text, "arguments": text}}
    counter = ScaledCounter(exact, 1.55)

    assert exact.count(text) == 6
    assert counter.count(text) == 10  # 9.3
    assert counter.message({"content": text, "tool_calls": [call]}) == 4 + 10 + 8 + 10 + 10


def test_a_factor_that_makes_a_whole_number_is_not_rounded_beyond_it() -> None:
    text = "a" + " a" * 99

    assert ExactCounter().count(text) == 100
    assert ScaledCounter(ExactCounter(), 1.1).count(text) == 110  # 100 * 1.1 is 110.00000000000001


@pytest.mark.parametrize("factor", [0, -1.2, float("nan"), float("inf")])
def test_a_factor_that_cannot_be_meant_is_refused(factor: float) -> None:
    with pytest.raises(InvalidSetting, match="factor"):
        ScaledCounter(ExactCounter(), factor)
