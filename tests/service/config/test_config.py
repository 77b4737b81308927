import logging
import re
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.conversation.config import ConversationConfig, PolicyConfig, RetentionConfig
from minutebook.errors import InvalidConfig, InvalidSetting
from minutebook.service.config.loader import (
    CommandLineFlag,
    ConfigHolder,
    config_path,
    flat_settings,
    load_config,
)
from minutebook.service.config.schema import LimitsConfig, ServerConfig, ServiceConfig, ToolConfig, UpstreamConfig
from minutebook.service.config.sources import Sources, environment_variables

EVERYTHING = """\
conversation:
  include_history: true
  retention:
    preserve_turns: 3
    max_loaded_messages: 40
    tool_persistence: trimmed
    prune_tools_for_llm: true
    preserve_tools_for_latest_turns: false
    expose_tool_details: true
    mode: off
  policy: long
policies:
  long:
    strategy: summarize
    trigger: 0.9
    keep_turns: 2
    model: gpt-4o-mini
    manager:
      - tool_result_clearer
      - name: token_budget
        target: 0.6
    max_tokens: 32000
upstream:
  url: https://api.openai.com/v1
  key_env: OPENAI_API_KEY
  model: gpt-4o
  timeout_seconds: 30
server: {host: 0.0.0.0, port: 81, heartbeat_seconds: 5, missing_session_id: reject, on_disconnect: cancel}
database: {url: "sqlite:///chat.db", optional: true, tenant: acme, expire_after: 30d}
limits: {body_bytes: 1_000, tokens_per_day: 5000}
tools:
  - {python: "math:sqrt", name: root}
  - {mcp: "https://tools.example/mcp", bearer_env: TOOLS_KEY}
  - {mcp: "notes-server --fast", env: {NOTES_KEY: MY_KEY}}
  - {builtin: clock}
system_prompt: |
  Be brief.
"""


@pytest.fixture
def write_config(tmp_path):
    """A function that writes a configuration file and returns its path."""

    def write(text):
        path = tmp_path / "llm_config.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def load(path, environment=None, **flags):
    return load_config(path, environment=environment or {}, flags={key: flags[key] for key in flags})


def problems_of(path, environment=None):
    """The lines of the error, without the folder: one per problem."""
    with pytest.raises(InvalidConfig) as caught:
        load_config(path, environment=environment or {})
    return str(caught.value).replace(str(path.parent) + "/", "").splitlines()


def test_the_defaults_of_retention():
    retention = RetentionConfig()

    assert (retention.preserve_turns, retention.max_loaded_messages) == (2, 20)
    assert (retention.persist_tool_invocations, retention.tool_persistence) == (True, "full")
    assert (retention.prune_tools_for_llm, retention.preserve_tools_for_latest_turns) == (True, True)
    assert (retention.expose_tool_details, retention.mode) == (False, "on")
    assert (ConversationConfig().include_history, ConversationConfig().history_limit) == (True, 5)
    assert load_config(environment={}).config == ServiceConfig()


def test_every_key_is_loaded_with_its_line(write_config):
    loaded = load(write_config(EVERYTHING))
    config = loaded.config

    assert config.conversation.retention == RetentionConfig(
        preserve_turns=3,
        max_loaded_messages=40,
        tool_persistence="trimmed",
        preserve_tools_for_latest_turns=False,
        expose_tool_details=True,
        mode="off",
    )
    assert [manager.name for manager in config.policies["long"].manager] == ["tool_result_clearer", "token_budget"]
    assert config.policies["long"].manager[1].settings == {"target": 0.6}
    assert (config.policies["long"].trigger, config.policies["long"].max_tokens) == (0.9, 32_000)
    assert (config.upstream.key_env, config.upstream.timeout_seconds) == ("OPENAI_API_KEY", 30.0)
    assert (config.server.port, config.server.on_disconnect, config.database.tenant) == (81, "cancel", "acme")
    assert config.database.age == timedelta(days=30)
    assert (config.limits.body_bytes, config.limits.tokens_per_day, config.limits.json_depth) == (1_000, 5_000, 64)
    assert [tool.python or tool.mcp or tool.builtin for tool in config.tools][0::3] == ["math:sqrt", "clock"]
    assert config.system_prompt == "Be brief.\n"
    assert str(loaded.origin("conversation.retention.mode")).endswith("llm_config.yaml:10")
    assert str(loaded.origin("limits.json_depth")) == "default"


def test_off_and_on_are_modes_and_not_booleans(write_config):
    for mode in ("off", "on", "shadow", '"off"'):
        config = load(write_config(f"conversation: {{retention: {{mode: {mode}}}}}")).config
        assert config.conversation.retention.mode == mode.strip('"')


def test_all_problems_of_a_file_are_reported_with_their_positions(write_config):
    text = """\
conversation:
  retention:
    mode: of
    preserve_turns: -3
    max_loaded_messages: many
    preserve_turn: 1
  policy: sumarize
server:
  port: 99999
  port: 3
tools:
  - {python: a}
system_prompt: 3
policies:
  a: {strategy: sumarize}
  b: {strategy: summarize, trigger: 2}
  c: {strategy: truncate, keep_files: 3}
  d: {manager: {name: token_budget, tarjet: 1}}
"""
    problems = problems_of(write_config(text))

    assert [line.split(" ")[:2] for line in problems] == [
        ["llm_config.yaml:3:11:", "conversation.retention.mode"],
        ["llm_config.yaml:4:21:", "conversation.retention.preserve_turns"],
        ["llm_config.yaml:5:26:", "conversation.retention.max_loaded_messages"],
        ["llm_config.yaml:6:5:", "unknown"],
        ["llm_config.yaml:7:11:", "conversation.policy"],
        ["llm_config.yaml:9:9:", "server.port"],
        ["llm_config.yaml:10:3:", "server.port"],
        ["llm_config.yaml:12:14:", "tools[0].python"],
        ["llm_config.yaml:13:16:", "system_prompt"],
        ["llm_config.yaml:15:17:", "policies.a.strategy"],
        ["llm_config.yaml:16:37:", "policies.b.trigger"],
        ["llm_config.yaml:17:39:", "policies.c.keep_files"],
        ["llm_config.yaml:18:16:", "policies.d.manager"],
    ]
    assert problems[0].endswith("is 'of'; did you mean 'off'?")
    assert problems[3].endswith(
        "unknown key conversation.retention.preserve_turn; did you mean conversation.retention.preserve_turns?"
    )
    assert problems[4].endswith("did you mean 'summarize'?")
    assert problems[6].endswith("is set twice, first in line 9; remove one of them")
    assert problems[12].endswith("did you mean 'target'?")


def test_two_invalid_values_of_one_section_are_both_reported(write_config):
    problems = problems_of(write_config("server: {port: -1, heartbeat_seconds: 0}\n"))

    assert [line.split(" ")[1] for line in problems] == ["server.port", "server.heartbeat_seconds"]


def test_an_error_has_its_position_key_and_hint(write_config):
    with pytest.raises(InvalidConfig) as caught:
        load(write_config("server:\n  prot: 3\n  host: 4\n"))

    error = caught.value
    assert (error.line, error.column, error.key) == (2, 3, "server.prot")
    assert (error.problem, error.hint) == ("unknown key", "did you mean server.port?")
    assert [other.key for other in error.others] == ["server.host"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "llm_config.yaml:1:5: is not YAML: expected the node content, but found '<stream end>'"),
        ("a: &x [*x]", "llm_config.yaml:1:4: is not YAML: more than 32 levels of nesting"),
        ("a: !!python/object:os.system 3", "llm_config.yaml:1:4: is not YAML: could not determine a constructor"),
        ("- server", "llm_config.yaml:1:1: is not a mapping"),
        ("a: 2026-13-45", "llm_config.yaml:1:4: is not YAML: month must be in 1..12"),
        ("server: 3", "llm_config.yaml:1:9: server is '3'; expected a mapping of keys to values"),
        ("server:\n- host", "llm_config.yaml:2:1: server is a list; expected a mapping of keys to values"),
        ("tools: {python: a}", "llm_config.yaml:1:8: tools is a mapping; expected a list"),
        ("limits: {body_bytes: true}", "llm_config.yaml:1:22: limits.body_bytes is 'true'; expected a whole number"),
        ("database: {tenant: 17}", "llm_config.yaml:1:20: database.tenant is '17'; expected text, in quotes"),
        (
            "database: {expire_after: 30}",
            "llm_config.yaml:1:26: database.expire_after is '30'; expected text, in quotes",
        ),
        (
            "database: {expire_after: soon}",
            "llm_config.yaml:1:26: database.expire_after is 'soon'; expected a time such as 30d, 12h or 90m",
        ),
        (
            "upstream: {key_env: K}",
            "llm_config.yaml:1:21: upstream.key_env is 'K'; expected no value unless upstream.url is set",
        ),
        ("upstream: {url: ftp://a}", "llm_config.yaml:1:17: upstream.url is 'ftp://a'; expected an http or https URL"),
        ("server: {heartbeat_seconds: .nan}", "llm_config.yaml:1:29: server.heartbeat_seconds is nan"),
        ("policies: {a: {}}", "llm_config.yaml:1:15: policies.a is {}; expected at least one of strategy"),
        ("policies: {a: {keep_turns: 3}}", "llm_config.yaml:1:15: policies.a is {}"),
        ("policies: {a: {max_tokens: 9, keep_turns: 3}}", "llm_config.yaml:1:43: policies.a.keep_turns is 3"),
        (
            "policies: {retention: {max_tokens: 9}}",
            "llm_config.yaml:1:11: policies is 'retention'; expected other names",
        ),
        (
            "policies: {a: {manager: {target: 1}}}",
            "llm_config.yaml:1:25: policies.a.manager is {'target': 1}; expected the name",
        ),
        (
            "policies: {a: {manager: nope}}",
            "llm_config.yaml:1:25: policies.a.manager is 'nope'; expected one of retention",
        ),
        (
            "policies: {retention: {max_tokens: 9, model: 3}}",
            "llm_config.yaml:1:11: policies is 'retention'; expected other names",
        ),
        ("tools: [{}]", "llm_config.yaml:1:9: tools[0] is None; expected exactly one of python, mcp and builtin"),
        (
            "conversation: {retention: {persist_tool_invocations: true, tool_persistence: none}}",
            "llm_config.yaml:1:78: conversation.retention.tool_persistence is 'none'; expected full, because persist_tool_",
        ),
    ],
)
def test_an_invalid_file_is_rejected_with_a_hint(write_config, text, problem):
    assert problems_of(write_config(text))[0].startswith(problem)


def test_bytes_that_are_not_utf_8_are_rejected(tmp_path):
    path = tmp_path / "llm_config.yaml"
    path.write_bytes(b"system_prompt: \xff")

    assert problems_of(path)[0].startswith("llm_config.yaml: is not UTF-8: ")


@given(st.text(max_size=60))
def test_any_file_is_loaded_or_rejected(text):
    """Never another error."""
    sources = Sources()
    sources.add_yaml(text.encode("utf-8", "surrogatepass"), "a.yaml")

    assert isinstance(sources.config(), ServiceConfig)
    assert all(isinstance(problem, InvalidConfig) for problem in sources.problems)


SCALARS = st.sampled_from(
    [None, True, 0, -1, 2, 0.5, float("nan"), "", "on", "summarize", "token_budget", "http://a", "a:b"]
)
SECTIONS = {
    "conversation": ConversationConfig,
    "upstream": UpstreamConfig,
    "server": ServerConfig,
    "limits": LimitsConfig,
}


def values(kind):
    """Mappings with some keys of a section, and some others, at any values."""
    keys = st.sampled_from([*kind.model_fields, "name", "other"])
    inner = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(keys, SCALARS, max_size=2))
    return st.one_of(SCALARS, st.dictionaries(keys, inner | st.lists(inner, max_size=2), max_size=3))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{name: values(kind) for name, kind in SECTIONS.items()},
            "policies": SCALARS
            | st.dictionaries(st.sampled_from(["a", "retention"]), values(PolicyConfig), max_size=2),
            "tools": SCALARS | st.lists(values(ToolConfig), max_size=3),
        },
    )
)
def test_every_problem_of_any_values_has_a_line(tree):
    import yaml

    sources = Sources()
    sources.add_yaml(yaml.safe_dump(tree).encode(), "a.yaml")
    sources.prefer_retention()

    assert isinstance(sources.config(), ServiceConfig)
    assert all(problem.line for problem in sources.problems)


def test_an_invalid_value_neither_hides_nor_causes_other_problems(write_config):
    problems = problems_of(
        write_config(
            """\
policies:
  a: {strategy: 3}
  b: {max_tokens: none, keep_turns: 3, manager: token_budget}
tools:
  - {python: 3}
  - {mcp: a, bearer_env: K, name: "no spaces", headers_env: {X: 1}}
"""
        )
    )

    assert [line.split(" ")[1] for line in problems] == [
        "policies.a.strategy",
        "policies.b.max_tokens",
        "policies.b.keep_turns",
        "tools[0].python",
        "tools[1].bearer_env",
        "tools[1].name",
        "tools[1].headers_env.X",
    ]


def test_a_variable_sets_a_value_of_a_section_with_all_keys_commented_out(write_config):
    path = write_config("conversation:\n  retention:\n    # mode: off\n")
    loaded = load_config(path, environment={"MINUTEBOOK_CONVERSATION_RETENTION_MODE": "off"})

    assert loaded.config.conversation.retention == RetentionConfig(mode="off")


def test_a_manager_has_its_line_in_every_notation(write_config):
    text = """\
policies:
  a: {manager: passthrough}
  b:
    manager: {name: token_budget,
      target: 0.5}
  c:
    manager:
    - passthrough
    - name: sliding_window
      window_size: 3
"""
    loaded = load(write_config(text))
    lines = {key: origin.line for key, origin in loaded.origins.items() if not key.endswith(".settings")}

    assert lines == {
        "policies.a.manager[0].name": 2,
        "policies.b.manager[0].name": 4,
        "policies.b.manager[0].settings.target": 4,
        "policies.c.manager[0].name": 8,
        "policies.c.manager[1].name": 9,
        "policies.c.manager[1].settings.window_size": 10,
    }


def test_flags_win_over_the_environment_which_wins_over_the_file(write_config):
    path = write_config("server: {port: 1, host: a, heartbeat_seconds: 3}\n")
    loaded = load_config(
        path,
        environment={"MINUTEBOOK_SERVER_PORT": "2", "MINUTEBOOK_SERVER_HOST": "b", "OTHER": "x"},
        flags={"server.port": CommandLineFlag("--port", 3), "server.host": CommandLineFlag("--host", None)},
    )

    assert (loaded.config.server.port, loaded.config.server.host, loaded.config.server.heartbeat_seconds) == (
        3,
        "b",
        3.0,
    )
    assert str(loaded.origin("server.port")) == "flag --port"
    assert str(loaded.origin("server.host")) == "env MINUTEBOOK_SERVER_HOST"
    assert str(loaded.origin("server.heartbeat_seconds")).endswith("llm_config.yaml:1")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("MINUTEBOOK_CONVERSATION_INCLUDE_HISTORY", "false", False),
        ("MINUTEBOOK_CONVERSATION_INCLUDE_HISTORY", "1", True),
        ("MINUTEBOOK_CONVERSATION_RETENTION_MODE", "shadow", "shadow"),
        ("MINUTEBOOK_CONVERSATION_RETENTION_PRESERVE_TURNS", "0", 0),
        ("MINUTEBOOK_SERVER_HEARTBEAT_SECONDS", "2.5", 2.5),
        ("MINUTEBOOK_LIMITS_TOKENS_PER_DAY", "", None),
        ("MINUTEBOOK_LIMITS_TOKENS_PER_DAY", "10", 10),
        ("MINUTEBOOK_DB", "sqlite:///a.db", "sqlite:///a.db"),
        ("MINUTEBOOK_TENANT", "acme", "acme"),
        ("MINUTEBOOK_ENCRYPTION_KEY_FILE", "chat.key", "chat.key"),
        ("MINUTEBOOK_SYSTEM_PROMPT", "17", "17"),
    ],
)
def test_the_environment_sets_single_values(name, text, value):
    loaded = load_config(environment={name: text})
    setting = loaded.config
    for part in environment_variables()[name].split("."):
        setting = getattr(setting, part)

    assert setting == value
    assert loaded.origin(environment_variables()[name]).name == name


def test_an_unknown_variable_of_a_section_is_an_error():
    with pytest.raises(InvalidConfig, match=r"env MINUTEBOOK_SERVER_PROT: .* did you mean MINUTEBOOK_SERVER_PORT"):
        load_config(environment={"MINUTEBOOK_SERVER_PROT": "1"})
    with pytest.raises(
        InvalidConfig, match=r"env MINUTEBOOK_SERVER_PORT: server\.port is 'x'; expected a whole number"
    ):
        load_config(environment={"MINUTEBOOK_SERVER_PORT": "x"})

    assert load_config(environment={"MINUTEBOOK_DEBUG": "1", "PATH": "x"}).config == ServiceConfig()


def test_two_variables_for_one_key_cannot_contradict_each_other():
    with pytest.raises(InvalidConfig, match=r"MINUTEBOOK_DB: database\.url differs from MINUTEBOOK_DATABASE_URL"):
        load_config(environment={"MINUTEBOOK_DB": "sqlite:///a.db", "MINUTEBOOK_DATABASE_URL": "sqlite:///b.db"})

    same = {"MINUTEBOOK_DB": "sqlite:///a.db", "MINUTEBOOK_DATABASE_URL": "sqlite:///a.db"}
    assert load_config(environment=same).config.database.url == "sqlite:///a.db"


def test_every_variable_sets_one_key_and_every_single_value_has_one():
    short = {"MINUTEBOOK_DB", "MINUTEBOOK_TENANT", "MINUTEBOOK_ENCRYPTION_KEY_FILE"}
    named = [key for name, key in environment_variables().items() if name not in short]

    assert len(named) == len(set(named))
    assert "limits.json_depth" in named
    assert "system_prompt" in named
    assert not [key for key in named if key.startswith(("tools", "policies"))]


def test_history_limit_applies_without_retention(write_config):
    alone = load(write_config("conversation: {history_limit: 7}"))
    null = load(write_config("conversation: {retention: null}"))
    both = load(write_config("conversation:\n  history_limit: 7\n  retention: {preserve_turns: 1}"))

    assert alone.config.conversation.effective_retention == RetentionConfig(max_loaded_messages=7)
    assert null.config.conversation.effective_retention == RetentionConfig(max_loaded_messages=5)
    assert both.config.conversation.effective_retention == RetentionConfig(preserve_turns=1)
    assert [warning.partition(": ")[2] for warning in both.warnings] == [
        "conversation.history_limit has no effect, because conversation.retention is set"
    ]
    assert alone.warnings == null.warnings == ()


def test_a_section_with_all_keys_commented_out_has_its_defaults(write_config):
    assert load(write_config("conversation:\n  retention:\n    # mode: off\nserver:\n")).config == ServiceConfig()
    assert load(write_config("")).config == ServiceConfig()


@pytest.mark.parametrize(
    ("text", "policy", "threads_policy"),
    [
        ("server: {port: 81}\n", "token_budget", "retention"),
        ("conversation: {include_history: true}\n", "token_budget", "retention"),
        ("conversation:\n  retention: {mode: shadow}\n", "retention", "retention"),
        ("conversation: {history_limit: 8}\n", "retention", "retention"),
        ("conversation:\n  policy: turns\n  retention: {mode: shadow}\n", "turns", "turns"),
    ],
)
def test_the_policy_depends_on_whether_the_file_configures_retention(text, policy, threads_policy, write_config):
    loaded = load(write_config(text))

    assert (loaded.config.conversation.policy, loaded.config.conversation.threads_policy) == (policy, threads_policy)
    assert (loaded.origin("conversation.policy").kind == "default") == (policy == "token_budget")


@pytest.mark.parametrize(
    ("persist", "persistence", "expected"),
    [
        (None, None, (True, "full")),
        (True, None, (True, "full")),
        (False, None, (False, "trimmed")),
        (False, "none", (False, "none")),
        (None, "trimmed", (False, "trimmed")),
        (True, "full", (True, "full")),
    ],
)
def test_the_two_keys_for_tool_persistence_determine_each_other(persist, persistence, expected):
    config = RetentionConfig(persist_tool_invocations=persist, tool_persistence=persistence)

    assert (config.persist_tool_invocations, config.tool_persistence) == expected


@pytest.mark.parametrize(("persist", "persistence"), [(True, "trimmed"), (True, "none"), (False, "full")])
def test_the_two_keys_for_tool_persistence_cannot_contradict_each_other(persist, persistence):
    with pytest.raises(InvalidSetting, match="tool_persistence"):
        RetentionConfig(persist_tool_invocations=persist, tool_persistence=persistence)


def test_zero_is_not_a_missing_value(write_config):
    config = load(write_config("conversation: {retention: {preserve_turns: 0, max_loaded_messages: 0}}")).config

    assert (config.conversation.retention.preserve_turns, config.conversation.retention.max_loaded_messages) == (0, 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"python": "a:b", "mcp": "c"},
        {"python": "os.system"},
        {"mcp": " "},
        {"builtin": "bash"},
        {"builtin": "clock", "name": "x"},
        {"python": "a:b", "name": "no spaces"},
        {"python": "a:b", "bearer_env": "K"},
        {"mcp": "server", "headers_env": {"X": "K"}},
        {"mcp": "http://a", "env": {"X": "K"}},
    ],
    ids=str,
)
def test_an_inconsistent_tool_is_rejected(options):
    with pytest.raises(InvalidSetting):
        ToolConfig(**options)


def test_an_invalid_file_does_not_replace_the_configuration(write_config, caplog):
    path = write_config("server: {port: 1}")
    holder = ConfigHolder(path, environment={})
    first = holder.current

    write_config("server: {prot: 2}")
    with caplog.at_level(logging.ERROR):
        problem = holder.reload()
    assert isinstance(problem, InvalidConfig)
    assert holder.current is first
    assert "the configuration was not reloaded and is unchanged: " in caplog.text

    path.unlink()
    assert isinstance(holder.reload(), FileNotFoundError)
    assert holder.current is first

    write_config("server: {port: 3}")
    assert holder.reload() is None
    assert holder.current.config.server.port == 3


def test_a_holder_keeps_flags_and_the_environment_over_a_new_file(write_config):
    holder = ConfigHolder(
        write_config("server: {port: 1}"),
        environment={"MINUTEBOOK_SERVER_HOST": "b"},
        flags={"server.port": CommandLineFlag("--port", 9)},
    )
    write_config("server: {port: 2, host: c}")

    assert holder.reload() is None
    assert (holder.current.config.server.port, holder.current.config.server.host) == (9, "b")


def test_the_file_is_that_of_the_variable_else_of_the_folder_else_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    environment = {"XDG_CONFIG_HOME": str(home)}
    assert config_path(environment) is None

    (home / "minutebook").mkdir(parents=True)
    (home / "minutebook" / "llm_config.yaml").write_text("")
    assert config_path(environment) == home / "minutebook" / "llm_config.yaml"

    (tmp_path / "llm_config.yaml").write_text("")
    assert config_path(environment) == Path("llm_config.yaml")
    assert config_path({**environment, "MINUTEBOOK_CONFIG": "else.yaml"}) == Path("else.yaml")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.yaml", environment={})


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "configure-the-service.md"


def yaml_blocks():
    return re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_shows_every_key_at_its_default(write_config):
    loaded = load(write_config(yaml_blocks()[0]))

    assert loaded.config == ServiceConfig()
    assert set(loaded.origins) == set(flat_settings(ServiceConfig())) - {"conversation.history_limit"}


def test_the_policies_and_tools_of_the_page_are_valid(write_config):
    config = load(write_config(yaml_blocks()[1])).config

    assert set(config.policies) == {"long", "tight"}
    assert len(config.tools) == 5
