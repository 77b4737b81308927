import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration but that of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MINUTEBOOK_CONFIG", raising=False)


def write(text: str) -> None:
    Path("llm_config.yaml").write_text(text, encoding="utf-8")


def test_every_value_is_shown_with_its_origin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        "server:\n  port: 81\nconversation: {retention: {persist_tool_invocations: false}}\ntools: [{builtin: clock}]\n"
    )
    monkeypatch.setenv("MINUTEBOOK_SERVER_HOST", "::1")

    shown = json.loads(run("config", "show", "--json").stdout)

    assert shown["server.port"] == {"value": 81, "origin": "llm_config.yaml:2"}
    assert shown["server.host"] == {"value": "::1", "origin": "env MINUTEBOOK_SERVER_HOST"}
    assert shown["limits.json_depth"] == {"value": 64, "origin": "default"}
    assert shown["conversation.retention.tool_persistence"] == {"value": "trimmed", "origin": "llm_config.yaml:3"}
    assert shown["tools[0].builtin"] == {"value": "clock", "origin": "llm_config.yaml:4"}


def test_the_table_shows_whole_keys(run: Run) -> None:
    write("conversation:\n  retention:\n    mode: shadow\n")

    text = run("config", "show").stdout

    assert "conversation.retention.preserve_tools_for_latest_turns  true" in text
    assert "llm_config.yaml:3" in text


def test_passwords_are_not_shown(run: Run) -> None:
    write('database: {url: "postgresql://app:s3cret@db/chat"}\n')

    for arguments in (("--json",), ()):
        shown = run("config", "show", *arguments).output
        assert "postgresql://app:***@db/chat" in shown
        assert "s3cret" not in shown


def test_the_file_that_is_named_is_read(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("server: {port: 5}")

    assert json.loads(run("config", "show", "--json", "--config", other).stdout)["server.port"]["value"] == 5
    monkeypatch.setenv("MINUTEBOOK_CONFIG", str(other))
    assert json.loads(run("config", "show", "--json").stdout)["server.port"]["value"] == 5
    assert run("config", "path").stdout == f"{other}\n"


def test_what_has_no_effect_is_said(run: Run) -> None:
    write("conversation: {history_limit: 3, retention: {mode: off}}")

    for command in (("config", "show"), ("config", "check", "llm_config.yaml")):
        assert "warning: llm_config.yaml:1: conversation.history_limit has no effect" in run(*command).stderr


def test_a_good_file_is_checked_without_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write("server: {port: 81, host: a}")
    monkeypatch.setenv("MINUTEBOOK_SERVER_PROT", "1")

    assert run("config", "check", "llm_config.yaml").stdout == "llm_config.yaml is valid: 2 values are set\n"
    assert json.loads(run("config", "check", "llm_config.yaml", "--json").stdout)["problems"] == []


def test_every_problem_of_a_bad_file_is_told_and_it_ends_with_5(run: Run) -> None:
    write("server:\n  prot: 81\n  host: 3\n")

    plain, as_json = run("config", "check", "llm_config.yaml"), run("config", "check", "llm_config.yaml", "--json")

    assert plain.exit_code == as_json.exit_code == run("config", "show").exit_code == 5
    assert plain.stderr.splitlines() == [
        "error: llm_config.yaml:2:3: unknown key server.prot; did you mean server.port?",
        "llm_config.yaml:3:9: server.host is '3'; expected text, in quotes",
    ]
    assert [one["key"] for one in json.loads(as_json.stdout)["problems"]] == ["server.prot", "server.host"]


def test_a_file_that_is_not_there_ends_with_3(run: Run) -> None:
    assert run("config", "check", "nowhere.yaml").exit_code == 3
    assert run("config", "show", "--config", "nowhere.yaml").exit_code == 3


def test_without_a_file_the_defaults_hold_and_the_places_are_named(run: Run, tmp_path: Path) -> None:
    found = run("config", "path")

    assert found.exit_code == 3
    assert found.stderr == (
        f"error: llm_config.yaml: file not found; also tried {tmp_path}/home/minutebook/llm_config.yaml; "
        "the defaults are used\n"
    )
    assert run("config", "show").exit_code == 0


@pytest.mark.parametrize(
    "text",
    [
        "database: {url: 'postgres//localhost/chat'}",
        "tools:\n  - {python: 'no_such_module:run'}",
        'tools:\n  - {mcp: "notes-server \'unclosed"}',
        "tools:\n  - {builtin: clock}\n  - {builtin: clock}",
    ],
)
def test_check_and_serve_refuse_the_same_with_the_same_words(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "llm_config.yaml"
    path.write_text(text)

    checked, served = run("config", "check", path), run("serve", "--config", path, "--port", "0")

    assert checked.exit_code == served.exit_code == 5
    assert checked.stderr.startswith(f"error: {path}:")
    assert served.stderr == checked.stderr


def test_check_warns_of_a_variable_that_serve_needs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    path = tmp_path / "llm_config.yaml"
    path.write_text("upstream: {url: 'https://api.openai.com/v1', key_env: MY_KEY}")

    assert "MY_KEY is not set; serve needs it" in run("config", "check", path).stderr


def test_show_has_the_policies_of_both_apis(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "llm_config.yaml"
    path.write_text("server: {port: 81}")

    shown = json.loads(run("config", "show", "--config", path, "--json").stdout)

    assert shown["conversation.policy"] == {"value": "token_budget", "origin": "default"}
    assert shown["conversation.policy of /threads"] == {"value": "retention", "origin": "default"}
    path.write_text("conversation: {policy: hybrid}")
    shown = json.loads(run("config", "show", "--config", path, "--json").stdout)
    assert shown["conversation.policy of /threads"]["value"] == "hybrid"
