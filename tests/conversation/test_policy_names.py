"""A policy goes by one name in code, in a configuration file, in the agent language and on the command line."""

import pytest
from click import Context

from minutebook import CompactionManager, Conversation, ModelInfo, TokenBudgetManager
from minutebook.cli.main import cli
from minutebook.compaction import strategy_names
from minutebook.conversation.config import ManagerConfig
from minutebook.conversation.policy import MANAGERS, manager_from_texts, manager_of, policy_named, policy_names
from minutebook.dsl import compile_agents
from minutebook.dsl.flow_strategy import strategy_of
from minutebook.errors import InvalidSetting
from minutebook.history.budget import PRESETS
from minutebook.service.config.loader import load_config
from minutebook.service.config.schema import ServiceConfig

MODEL = ModelInfo("small", max_input_tokens=2_000)
NEEDED = {
    "active_tools": {"active": ["search"]},
    **{name: {"max_tokens": 900} for name in ["token_budget", *PRESETS]},
}
AS_TEXT = {"active_tools": ":search", **dict.fromkeys(["token_budget", *PRESETS], ":900")}
MANAGER_NAMES = ["retention", *MANAGERS]
PROGRAM = """
model main = openai/gpt-4o

prompt p:
    Do it.

agent a:
    instruction p
    history {name}
"""
FORMER = {
    "active-tools": "active_tools",
    "budget": "token_budget",
    "clear": "tool_result_clearer",
    "strip": "tool_stripper",
    "truncate": "tool_result_truncator",
    "turns": "turn_window",
    "window": "sliding_window",
}


def configured(folder, text):
    """The policy `mine` of a configuration file."""
    file = folder / "minutebook.yaml"
    file.write_text(text)
    return policy_named("mine", load_config(file, environment={}).config, model=MODEL)


@pytest.mark.parametrize("name", MANAGER_NAMES)
def test_a_manager_is_the_same_by_its_name_everywhere(name, tmp_path):
    in_code = manager_of(ManagerConfig(name, NEEDED.get(name, {})), None, MODEL)
    settings = "".join(f", {key}: {value}" for key, value in NEEDED.get(name, {}).items())
    in_yaml = configured(tmp_path, f"policies:\n  mine:\n    manager: {{name: {name}{settings}}}\n").manager
    on_the_line = manager_from_texts([name + AS_TEXT.get(name, "")], None)

    assert in_code == in_yaml == on_the_line
    assert name in policy_names(ServiceConfig())


@pytest.mark.parametrize("preset", PRESETS)
def test_the_name_of_a_preset_is_the_token_budget_with_that_preset(preset):
    manager = manager_from_texts([f"{preset}:900"], None)

    assert (
        manager
        == TokenBudgetManager(900, preset=preset)
        == manager_from_texts([f"token_budget:900,preset={preset}"], None)
    )
    assert compile_agents(PROGRAM.format(name=preset)).agent("a").history.strategy == preset


@pytest.mark.parametrize("name", strategy_names())
def test_a_strategy_is_the_same_by_its_name_everywhere(name, tmp_path):
    program = compile_agents(PROGRAM.format(name=name))
    spoken, _ = strategy_of(program.agent("a").history, program.compaction)

    assert CompactionManager(name, MODEL).strategy == spoken
    assert configured(tmp_path, f"policies:\n  mine:\n    strategy: {name}\n").strategy == spoken
    assert name in policy_names(ServiceConfig())


def policy_of_conversation(name):
    """The policy that a conversation records with its request."""
    with Conversation(store="memory:", model=MODEL, policy=name) as chat:
        chat.append("Where is my order?")
        chat.view()
        return chat.request(1).policy


@pytest.mark.parametrize("name", sorted({*policy_names(ServiceConfig())} - {"active_tools"}))
def test_a_conversation_and_the_service_mean_the_same_policy_by_a_name(name):
    recorded, configured = policy_of_conversation(name), policy_named(name, ServiceConfig(), model=MODEL).describe()

    assert {**recorded, "max_tokens": None} == {**configured, "max_tokens": None}
    assert recorded["max_tokens"] == MODEL.room()


def test_a_conversation_refuses_an_unknown_policy_with_the_name_that_is_meant():
    with pytest.raises(InvalidSetting, match="did you mean 'token_budget'"):
        Conversation(store="memory:", policy="token_budge")
    with pytest.raises(InvalidSetting, match="active_tools"):
        Conversation(store="memory:", policy="active_tools")


@pytest.mark.parametrize(("former", "name"), FORMER.items())
def test_a_former_name_of_the_command_line_is_refused_with_the_name_that_is_meant(former, name):
    with pytest.raises(InvalidSetting, match=f"did you mean '{name}'"):
        manager_from_texts([former], 900)


def test_every_manager_is_in_the_help_of_the_command_line():
    command = cli.get_command(Context(cli), "view")
    told = next(option.help for option in command.params if option.name == "managers")

    assert [name for name in MANAGER_NAMES if name not in told] == []
