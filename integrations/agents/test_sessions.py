"""Sessions that the real Claude Code and the real Codex write are read completely."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from minutebook import check
from minutebook.agent.messages import Usage, usage_from
from minutebook.formats import Source, convert, detect, read
from minutebook.record.message import call_ids, is_result, result_id, text_of
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say

PROGRAMS = Path(__file__).parents[2] / ".node" / "node_modules" / ".bin"
QUESTION = "What is in a.txt?"


def needs(program):
    return pytest.mark.skipif(not (PROGRAMS / program).exists(), reason=f"{program} is not installed: npm is missing")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("hello from a\n")
    return tmp_path


def scripted(steps):
    """Play the steps for requests with tools. Others ask for a title."""
    answers = iter(steps)
    return ScriptedModel(otherwise=lambda request: next(answers) if request.body.get("tools") else say("A title"))


def run_program(folder, command, **variables):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    done = subprocess.run(
        command,
        cwd=folder / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read_session(folder, name):
    """The session with the question, after checks that hold for every session."""
    paths = [path for path in folder.rglob("*.jsonl") if QUESTION in path.read_text()]
    sources = [source for source in map(Source, paths) if detect(source).name == name]
    (conversation,) = [conversation for source in sources for conversation in read(source)]
    assert [part for source in sources for part in source.skipped] == []
    assert check(conversation.messages, provider=detect(sources[0]).provider) == []
    called = [call_id for message in conversation.messages for call_id in call_ids(message)]
    answered = [result_id(message) for message in conversation.messages if is_result(message)]
    assert sorted(called) == sorted(answered)
    assert text_of(conversation.messages[-1]) == "It says hello."
    return conversation, called


def total_usage(conversation):
    return sum((usage_from(item.usage) for item in conversation.items if item.usage), Usage())


@needs("claude")
def test_a_session_of_claude_code_is_read_completely(folder):
    steps = [
        call("Bash", command="cat a.txt", description="x") + call("Bash", command="ls", description="y"),
        call("Read", file_path=str(folder / "work" / "a.txt")),
        say("It says hello."),
    ]
    with LoopbackProvider(scripted(steps), strict=False) as provider:
        command = [PROGRAMS / "claude", "-p", QUESTION, "--output-format", "json", "--allowedTools", "Bash,Read"]
        settings = {"ANTHROPIC_BASE_URL": provider.anthropic_url, "ANTHROPIC_API_KEY": "k"}
        output = run_program(folder, command, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", **settings)

    conversation, called = read_session(folder, "claude-code")
    reported = usage_from(json.loads(output)["usage"])
    total = total_usage(conversation)
    assert len(called) == 3
    assert (total.input_tokens, total.output_tokens) == (reported.input_tokens, reported.output_tokens)
    results = [text_of(message) for message in conversation.messages if is_result(message)]
    assert len([text for text in results if "hello from a" in text]) == 2
    written = convert(conversation, "anthropic")
    (again,) = read(json.dumps(written.value).encode(), "anthropic")
    assert again.messages == conversation.messages or written.lost


@needs("codex")
def test_a_session_of_codex_is_read_completely(folder):
    def run_command(request):
        names = [tool.get("name") for tool in request.body["tools"]]
        return (
            call("exec_command", cmd="cat a.txt")
            if "exec_command" in names
            else call("shell", command=["cat", "a.txt"])
        )

    settings_folder = folder / ".codex"
    settings_folder.mkdir()
    with LoopbackProvider(scripted([run_command, say("It says hello.")]), strict=False) as provider:
        (settings_folder / "config.toml").write_text(
            'model="gpt-5"\nmodel_provider="loop"\n[model_providers.loop]\nname="loop"\n'
            f'base_url="{provider.base_url}"\nenv_key="K"\nwire_api="responses"\n'
        )
        options = ["--skip-git-repo-check", "--sandbox", "danger-full-access", "--json"]
        output = run_program(
            folder, [PROGRAMS / "codex", "exec", *options, QUESTION], K="k", CODEX_HOME=str(settings_folder)
        )

    conversation, called = read_session(folder, "codex")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    reported = next(event["usage"] for event in reversed(events) if "usage" in event)
    total = total_usage(conversation)
    assert len(called) == 1
    assert (total.input_tokens, total.output_tokens) == (reported["input_tokens"], reported["output_tokens"])
