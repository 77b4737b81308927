"""The key and the base URL of a provider are the same for a chat on the command line and for an agent program."""

import asyncio
from pathlib import Path

import pytest

from minutebook.dsl import DslWorkflow
from minutebook.errors import InvalidSetting, MissingSetting
from minutebook.testing import LoopbackProvider, ScriptedModel
from tests.cli.conftest import Run

PROGRAM = """
model main = {provider}/any

prompt p:
    Answer.

agent main:
    instruction p
"""


@pytest.fixture
def provider():
    with LoopbackProvider(ScriptedModel(otherwise="Yes."), api_key="mine") as provider:
        yield provider


@pytest.fixture(params=["chat", "agent"])
def answer(request, run: Run, state: Path, tmp_path: Path):
    """Asks a model of a provider, and returns what the command printed."""

    def ask(provider, *options):
        if request.param == "chat":
            return run("chat", "Is it?", "-m", "any", "--provider", provider, *options)
        program = tmp_path / "program.sr"
        program.write_text(PROGRAM.format(provider=provider))
        return run("agent", "run", program, "Is it?", *options)

    return ask


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
@pytest.mark.parametrize("suffix", ["", "/v1", "/v1/"])
def test_the_key_or_the_token_of_anthropic_and_a_base_url_with_or_without_its_version_are_accepted(
    answer, provider, monkeypatch, variable, suffix
):
    monkeypatch.setenv(variable, "mine")

    result = answer("anthropic", "--base-url", f"{provider.anthropic_url}{suffix}")

    assert (result.stdout, result.stderr) == ("Yes.\n", "")


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_without_a_key_and_an_address_the_error_names_the_variables(answer, name):
    result = answer(name)

    variable = name.upper()
    expected = f"export {variable}_API_KEY=…, or {variable}_BASE_URL=… for a server that needs no key"
    assert (result.exit_code, result.stderr) == (2, f"error: the API key for {name} is missing; {expected}\n")


def test_an_invalid_address_is_named_with_the_variable_it_is_from(answer, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:80")

    result = answer("openai")

    expected = "error: OPENAI_BASE_URL='localhost:80': expected a URL that starts with http:// or https://\n"
    assert (result.exit_code, result.stderr) == (2, expected)


def test_a_token_of_a_given_environment_is_sent_alone(provider, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    environment = {"ANTHROPIC_AUTH_TOKEN": "mine", "ANTHROPIC_BASE_URL": provider.anthropic_url}

    async def scenario():
        async with DslWorkflow(PROGRAM.format(provider="anthropic"), environment=environment) as workflow:
            return await workflow.run("Is it?")

    assert asyncio.run(scenario()) == "Yes."


def test_a_provider_without_a_known_address_needs_one():
    async def scenario(environment):
        async with DslWorkflow(PROGRAM.format(provider="my-server"), environment=environment) as workflow:
            return await workflow.run("Is it?")

    with pytest.raises(MissingSetting, match="export MY_SERVER_BASE_URL=…, the address of a server with OpenAI's API"):
        asyncio.run(scenario({}))
    with pytest.raises(InvalidSetting, match="MY_SERVER_BASE_URL='localhost'"):
        asyncio.run(scenario({"MY_SERVER_BASE_URL": "localhost"}))
