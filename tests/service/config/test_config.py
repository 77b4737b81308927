import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.conversation.config import ConversationConfig, PolicyConfig, RetentionConfig
from minutebook.errors import InvalidConfig, InvalidSetting
from minutebook.service.config.loader import (
    CommandLineFlag,
    ConfigHolder,
    Sources,
    config_path,
    environment_variables,
    flat_settings,
    load_config,
)
from minutebook.service.config.schema import LimitsConfig, ServerConfig, ServiceConfig, ToolConfig, UpstreamConfig

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
database: {url: "sqlite:///chat.db", optional: true, tenant: acme}
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
def written(tmp_path):
    """Write a file, and say where it is."""

    def write(text):
        path = tmp_path / "llm_config.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def loaded(path, environment=None, **flags):
    return load_config(path, environment=environment or {}, flags={key: flags[key] for key in flags})


def refused(path, environment=None):
    """What is said about a file: a line for each problem, without the folder."""
    with pytest.raises(InvalidConfig) as caught:
        load_config(path, environment=environment or {})
    return str(caught.value).replace(str(path.parent) + "/", "").splitlines()


def test_the_defaults_are_those_of_the_documents():
    retention = RetentionConfig()

    assert (retention.preserve_turns, retention.max_loaded_messages) == (2, 20)
    assert (retention.persist_tool_invocations, retention.tool_persistence) == (True, "full")
    assert (retention.prune_tools_for_llm, retention.preserve_tools_for_latest_turns) == (True, True)
    assert (retention.expose_tool_details, retention.mode) == (False, "on")
    assert (ConversationConfig().include_history, ConversationConfig().history_limit) == (True, 5)
    assert load_config(environment={}).config == ServiceConfig()


def test_every_key_is_read_and_knows_its_line(written):
    found = loaded(written(EVERYTHING))
    config = found.config

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
    assert (config.limits.body_bytes, config.limits.tokens_per_day, config.limits.json_depth) == (1_000, 5_000, 64)
    assert [tool.python or tool.mcp or tool.builtin for tool in config.tools][0::3] == ["math:sqrt", "clock"]
    assert config.system_prompt == "Be brief.\n"
    assert str(found.origin("conversation.retention.mode")).endswith("llm_config.yaml:10")
    assert str(found.origin("limits.json_depth")) == "default"


def test_off_and_on_are_modes_and_not_truths(written):
    for mode in ("off", "on", "shadow", '"off"'):
        config = loaded(written(f"conversation: {{retention: {{mode: {mode}}}}}")).config
        assert config.conversation.retention.mode == mode.strip('"')


def test_all_problems_of_a_file_are_told_at_once_each_at_its_place(written):
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
    said = refused(written(text))

    assert [line.split(" ")[:2] for line in said] == [
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
    assert said[0].endswith("is 'of'; did you mean 'off'?")
    assert said[3].endswith(
        "unknown key conversation.retention.preserve_turn; did you mean conversation.retention.preserve_turns?"
    )
    assert said[4].endswith("did you mean 'summarize'?")
    assert said[6].endswith("is there twice, first in line 9; keep one of them")
    assert said[12].endswith("did you mean 'target'?")


def test_two_values_of_one_section_that_are_out_of_range_are_both_told(written):
    said = refused(written("server: {port: -1, heartbeat_seconds: 0}\n"))

    assert [line.split(" ")[1] for line in said] == ["server.port", "server.heartbeat_seconds"]


def test_an_error_has_its_facts(written):
    with pytest.raises(InvalidConfig) as caught:
        loaded(written("server:\n  prot: 3\n  host: 4\n"))

    error = caught.value
    assert (error.line, error.column, error.key) == (2, 3, "server.prot")
    assert (error.problem, error.hint) == ("unknown key", "did you mean server.port?")
    assert [other.key for other in error.others] == ["server.host"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "llm_config.yaml:1:5: is not YAML: expected the node content, but found '<stream end>'"),
        ("a: &x [*x]", "llm_config.yaml:1:4: is not YAML: it is nested too deep"),
        ("a: !!python/object:os.system 3", "llm_config.yaml:1:4: is not YAML: could not determine a constructor"),
        ("- server", "llm_config.yaml:1:1: is not a mapping"),
        ("a: 2026-13-45", "llm_config.yaml:1:4: is not YAML: month must be in 1..12"),
        ("server: 3", "llm_config.yaml:1:9: server is '3'; give keys with values"),
        ("server:\n- host", "llm_config.yaml:2:1: server is a list; give keys with values"),
        ("tools: {python: a}", "llm_config.yaml:1:8: tools is a mapping; give a list"),
        ("limits: {body_bytes: true}", "llm_config.yaml:1:22: limits.body_bytes is 'true'; give a whole number"),
        ("database: {tenant: 17}", "llm_config.yaml:1:20: database.tenant is '17'; give text, in quotes"),
        ("upstream: {key_env: K}", "llm_config.yaml:1:21: upstream.key_env is 'K'; give an url with it"),
        ("upstream: {url: ftp://a}", "llm_config.yaml:1:17: upstream.url is 'ftp://a'; give an http or https URL"),
        ("server: {heartbeat_seconds: .nan}", "llm_config.yaml:1:29: server.heartbeat_seconds is nan"),
        ("policies: {a: {}}", "llm_config.yaml:1:15: policies.a is 'empty'; give it a strategy"),
        ("policies: {a: {keep_turns: 3}}", "llm_config.yaml:1:15: policies.a is 'empty'"),
        ("policies: {a: {max_tokens: 9, keep_turns: 3}}", "llm_config.yaml:1:43: policies.a.keep_turns is 3"),
        ("policies: {retention: {max_tokens: 9}}", "llm_config.yaml:1:11: policies is 'retention'; give it another"),
        (
            "policies: {a: {manager: {target: 1}}}",
            "llm_config.yaml:1:25: policies.a.manager is {'target': 1}; give the name",
        ),
        ("policies: {a: {manager: nope}}", "llm_config.yaml:1:25: policies.a.manager is 'nope'; give one of retention"),
        (
            "policies: {retention: {max_tokens: 9, model: 3}}",
            "llm_config.yaml:1:11: policies is 'retention'; give it another",
        ),
        ("tools: [{}]", "llm_config.yaml:1:9: tools[0] is 'none of them'; give one of python, mcp and builtin"),
        (
            "conversation: {retention: {persist_tool_invocations: true, tool_persistence: none}}",
            "llm_config.yaml:1:78: conversation.retention.tool_persistence is 'none'; give what persist_tool_",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(written, text, said):
    assert refused(written(text))[0].startswith(said)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "llm_config.yaml"
    path.write_bytes(b"system_prompt: \xff")

    assert refused(path)[0].startswith("llm_config.yaml: is not YAML: 'utf-8' codec")


@given(st.text(max_size=60))
def test_whatever_a_file_holds_it_is_read_or_refused(text):
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
def test_whatever_values_a_file_has_it_is_read_or_every_problem_has_a_line(tree):
    import yaml

    sources = Sources()
    sources.add_yaml(yaml.safe_dump(tree).encode(), "a.yaml")
    sources.prefer_retention()

    assert isinstance(sources.config(), ServiceConfig)
    assert all(problem.line for problem in sources.problems)


def test_one_refused_value_hides_no_other_problem_and_causes_none(written):
    said = refused(
        written(
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

    assert [line.split(" ")[1] for line in said] == [
        "policies.a.strategy",
        "policies.b.max_tokens",
        "policies.b.keep_turns",
        "tools[0].python",
        "tools[1].bearer_env",
        "tools[1].name",
        "tools[1].headers_env.X",
    ]


def test_a_variable_adds_to_a_section_of_which_every_line_is_commented_out(written):
    path = written("conversation:\n  retention:\n    # mode: off\n")
    found = load_config(path, environment={"MINUTEBOOK_CONVERSATION_RETENTION_MODE": "off"})

    assert found.config.conversation.retention == RetentionConfig(mode="off")


def test_a_manager_knows_its_line_however_it_is_written(written):
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
    found = loaded(written(text))
    lines = {key: origin.line for key, origin in found.origins.items() if not key.endswith(".settings")}

    assert lines == {
        "policies.a.manager[0].name": 2,
        "policies.b.manager[0].name": 4,
        "policies.b.manager[0].settings.target": 4,
        "policies.c.manager[0].name": 8,
        "policies.c.manager[1].name": 9,
        "policies.c.manager[1].settings.window_size": 10,
    }


def test_flags_win_over_the_environment_which_wins_over_the_file(written):
    path = written("server: {port: 1, host: a, heartbeat_seconds: 3}\n")
    found = load_config(
        path,
        environment={"MINUTEBOOK_SERVER_PORT": "2", "MINUTEBOOK_SERVER_HOST": "b", "OTHER": "x"},
        flags={"server.port": CommandLineFlag("--port", 3), "server.host": CommandLineFlag("--host", None)},
    )

    assert (found.config.server.port, found.config.server.host, found.config.server.heartbeat_seconds) == (3, "b", 3.0)
    assert str(found.origin("server.port")) == "flag --port"
    assert str(found.origin("server.host")) == "env MINUTEBOOK_SERVER_HOST"
    assert str(found.origin("server.heartbeat_seconds")).endswith("llm_config.yaml:1")


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
        ("MINUTEBOOK_SYSTEM_PROMPT", "17", "17"),
    ],
)
def test_the_environment_sets_single_values(name, text, value):
    found = load_config(environment={name: text})
    place = found.config
    for part in environment_variables()[name].split("."):
        place = getattr(place, part)

    assert place == value
    assert found.origin(environment_variables()[name]).name == name


def test_a_mistyped_variable_of_ours_is_an_error_and_other_variables_are_not():
    with pytest.raises(InvalidConfig, match=r"env MINUTEBOOK_SERVER_PROT: .* did you mean MINUTEBOOK_SERVER_PORT"):
        load_config(environment={"MINUTEBOOK_SERVER_PROT": "1"})
    with pytest.raises(InvalidConfig, match=r"env MINUTEBOOK_SERVER_PORT: server\.port is 'x'; give a whole number"):
        load_config(environment={"MINUTEBOOK_SERVER_PORT": "x"})

    assert load_config(environment={"MINUTEBOOK_DEBUG": "1", "PATH": "x"}).config == ServiceConfig()


def test_two_variables_for_one_key_may_not_contradict_each_other():
    with pytest.raises(
        InvalidConfig, match=r"MINUTEBOOK_DB: database\.url is something else in MINUTEBOOK_DATABASE_URL"
    ):
        load_config(environment={"MINUTEBOOK_DB": "sqlite:///a.db", "MINUTEBOOK_DATABASE_URL": "sqlite:///b.db"})

    same = {"MINUTEBOOK_DB": "sqlite:///a.db", "MINUTEBOOK_DATABASE_URL": "sqlite:///a.db"}
    assert load_config(environment=same).config.database.url == "sqlite:///a.db"


def test_every_variable_sets_one_key_and_every_single_value_has_one():
    named = [key for name, key in environment_variables().items() if name not in {"MINUTEBOOK_DB", "MINUTEBOOK_TENANT"}]

    assert len(named) == len(set(named))
    assert "limits.json_depth" in named
    assert "system_prompt" in named
    assert not [key for key in named if key.startswith(("tools", "policies"))]


def test_the_older_limit_holds_where_there_is_no_retention(written):
    alone = loaded(written("conversation: {history_limit: 7}"))
    null = loaded(written("conversation: {retention: null}"))
    both = loaded(written("conversation:\n  history_limit: 7\n  retention: {preserve_turns: 1}"))

    assert alone.config.conversation.effective_retention == RetentionConfig(max_loaded_messages=7)
    assert null.config.conversation.effective_retention == RetentionConfig(max_loaded_messages=5)
    assert both.config.conversation.effective_retention == RetentionConfig(preserve_turns=1)
    assert [warning.partition(": ")[2] for warning in both.warnings] == [
        "conversation.history_limit has no effect beside conversation.retention"
    ]
    assert alone.warnings == null.warnings == ()


def test_a_section_of_which_every_key_is_commented_out_is_at_its_defaults(written):
    assert loaded(written("conversation:\n  retention:\n    # mode: off\nserver:\n")).config == ServiceConfig()
    assert loaded(written("")).config == ServiceConfig()


@pytest.mark.parametrize(
    ("persist", "kept", "both"),
    [
        (None, None, (True, "full")),
        (True, None, (True, "full")),
        (False, None, (False, "trimmed")),
        (False, "none", (False, "none")),
        (None, "trimmed", (False, "trimmed")),
        (True, "full", (True, "full")),
    ],
)
def test_the_short_key_for_tools_and_the_exact_one_say_the_same(persist, kept, both):
    config = RetentionConfig(persist_tool_invocations=persist, tool_persistence=kept)

    assert (config.persist_tool_invocations, config.tool_persistence) == both


@pytest.mark.parametrize(("persist", "kept"), [(True, "trimmed"), (True, "none"), (False, "full")])
def test_the_two_keys_for_tools_may_not_contradict_each_other(persist, kept):
    with pytest.raises(InvalidSetting, match="tool_persistence"):
        RetentionConfig(persist_tool_invocations=persist, tool_persistence=kept)


def test_a_zero_is_a_value_and_not_a_missing_one(written):
    config = loaded(written("conversation: {retention: {preserve_turns: 0, max_loaded_messages: 0}}")).config

    assert (config.conversation.retention.preserve_turns, config.conversation.retention.max_loaded_messages) == (0, 0)


@pytest.mark.parametrize(
    "given",
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
def test_a_tool_is_one_thing_and_every_key_means_something_to_it(given):
    with pytest.raises(InvalidSetting):
        ToolConfig(**given)


def test_a_bad_file_keeps_the_old_configuration(written, caplog):
    path = written("server: {port: 1}")
    holder = ConfigHolder(path, environment={})
    first = holder.current

    written("server: {prot: 2}")
    with caplog.at_level(logging.ERROR):
        problem = holder.reload()
    assert isinstance(problem, InvalidConfig)
    assert holder.current is first
    assert "the old one stays: " in caplog.text

    path.unlink()
    assert isinstance(holder.reload(), FileNotFoundError)
    assert holder.current is first

    written("server: {port: 3}")
    assert holder.reload() is None
    assert holder.current.config.server.port == 3


def test_a_holder_keeps_flags_and_the_environment_over_a_new_file(written):
    holder = ConfigHolder(
        written("server: {port: 1}"),
        environment={"MINUTEBOOK_SERVER_HOST": "b"},
        flags={"server.port": CommandLineFlag("--port", 9)},
    )
    written("server: {port: 2, host: c}")

    assert holder.reload() is None
    assert (holder.current.config.server.port, holder.current.config.server.host) == (9, "b")


def test_the_file_is_the_one_that_is_named_else_the_one_here_else_the_users(tmp_path, monkeypatch):
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


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.yaml", environment={})


PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "configure-the-service.md"


def yaml_blocks():
    return re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_shows_every_key_at_its_default(written):
    found = loaded(written(yaml_blocks()[0]))

    assert found.config == ServiceConfig()
    assert set(found.origins) == set(flat_settings(ServiceConfig())) - {"conversation.history_limit"}


def test_the_page_shows_policies_and_tools_that_can_be_read(written):
    config = loaded(written(yaml_blocks()[1])).config

    assert set(config.policies) == {"long", "tight"}
    assert len(config.tools) == 5
