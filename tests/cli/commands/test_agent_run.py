"""`minutebook agent run`, as a shell would call it, against a real server."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from minutebook.testing import LoopbackProvider, ScriptedModel, call, fail, say, slow
from tests.cli.conftest import Launch, Run, inherited
from tests.programs import Program

ROOT = Path(__file__).parents[3]
HEAD = "model main = openai/gpt-4o\n\nprompt p:\n    Be brief.\n\n"
HELLO = f"{HEAD}agent a:\n    instruction p\n    tools t\n\ntool t = python examples.tools:in_stock\n"
FLOW = f"{HEAD}agent a:\n    instruction p\n\nflow main $x $y:\n    return [$x, $y, $input]\n"


@pytest.fixture
def launch() -> Launch:
    """Call the command as a shell would, in a process that has loaded the provider's client."""

    def call_it(*arguments: str | Path, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        theirs, ours = os.pipe()
        os.write(ours, stdin)
        os.close(ours)
        process = Program(*arguments, stdin=theirs, env=inherited())
        with process.stdout, process.stderr:
            said, problems = process.stdout.read().encode(), process.stderr.read().encode()
        return subprocess.CompletedProcess(arguments, process.wait(60), said, problems)

    return call_it


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "a.sr"
    path.write_text(HELLO)
    return path


def test_the_answer_is_on_stdout_and_the_way_there_on_stderr(launch: Launch, program: Path) -> None:
    with LoopbackProvider(ScriptedModel(call("t", item="desk"), say("There are three."))) as provider:
        done = launch("agent", "run", program, "Desks?", "--base-url", provider.base_url)

    assert (done.returncode, done.stdout.decode()) == (0, "There are three.\n")
    assert done.stderr.decode() == 'a: → t {"item": "desk"}\na: ← t 3\n'


def test_json_is_one_document_and_nothing_else(launch: Launch, program: Path) -> None:
    with LoopbackProvider(ScriptedModel("Hello.")) as provider:
        done = launch("agent", "run", program, "-", "--json", "--base-url", provider.base_url, stdin=b"Hi.\n")

    assert json.loads(done.stdout) == {"result": "Hello.", "notices": []}
    assert done.stderr == b""


def test_a_flow_gets_its_values_and_its_result_is_printed(launch: Launch, program: Path) -> None:
    program.write_text(FLOW)

    done = launch(
        "agent", "run", program, "Hi.", "--set", "x=[1, 2]", "--set", "y=two", "--base-url", "http://127.0.0.1:9"
    )

    assert done.stdout.decode() == '[[1, 2], "two", "Hi."]\n'


def test_another_agent_can_be_begun_with(launch: Launch, program: Path) -> None:
    program.write_text(FLOW)
    with LoopbackProvider(ScriptedModel("It is me.")) as provider:
        done = launch("agent", "run", program, "Who?", "--agent", "a", "--base-url", provider.base_url)

    assert done.stdout == b"It is me.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["nowhere.sr", "Hi."], 3, "nowhere.sr"),
        (["{bad}", "Hi."], 5, "unknown-strategy"),
        (["{good}"], 2, "the input of agent 'a'"),
        (["{good}", "Hi.", "--agent", "b"], 2, "agent='b'"),
        (["{good}", "Hi.", "--set", "x=1"], 2, "takes only an input"),
        (["{good}", "Hi.", "--set", "x"], 2, "NAME=VALUE"),
        (["{good}", "Hi.", "--external", "x"], 2, "NAME=URL"),
    ],
    ids=["missing", "invalid", "no prompt", "no agent", "no flow", "no value", "no server"],
)
def test_what_cannot_be_run_ends_with_its_code_and_one_line(
    run: Run, program: Path, arguments: list[str], code: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    bad = program.with_name("bad.sr")
    bad.write_text(HELLO.replace("    tools t\n", "    history banana\n    tools t\n"))
    given = [each.format(good=program, bad=bad) for each in arguments]

    result = run("agent", "run", *given, "--base-url", "http://127.0.0.1:9")

    assert result.exit_code == code
    assert problem in result.stderr
    assert "Traceback" not in result.stderr


def test_without_a_key_or_an_address_it_says_which_to_set(
    run: Run, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    result = run("agent", "run", program, "Hi.")

    assert result.exit_code == 2
    assert "OPENAI_API_KEY" in result.stderr


def test_a_provider_that_refuses_ends_it_with_1(launch: Launch, program: Path) -> None:
    with LoopbackProvider(ScriptedModel(fail(401, "no such key"))) as provider:
        done = launch("agent", "run", program, "Hi.", "--base-url", provider.base_url)

    assert done.returncode == 1
    assert b"openai returned status 401: no such key" in done.stderr


def test_interrupted_it_ends_in_order_with_130(program: Path) -> None:
    def interrupt(_seconds: float) -> None:
        os.kill(process.pid, signal.SIGINT)

    with LoopbackProvider(ScriptedModel(say("Too late.") + slow(1)), wait=interrupt) as provider:
        process = Program("agent", "run", program, "Hi.", "--base-url", provider.base_url, env=inherited(), cwd=ROOT)
        with process.stdout, process.stderr:
            errors = process.stderr.read()
        process.wait(60)

    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_rejected_answer_is_not_printed(launch: Launch, program: Path) -> None:
    program.write_text(f"{HEAD}schema S:\n    ok: bool\nagent a:\n    instruction p\n    produces S\n")
    with LoopbackProvider(ScriptedModel("It is fine.", '{"ok": true}')) as provider:
        done = launch("agent", "run", program, "Is it?", "--base-url", provider.base_url)

    assert (done.returncode, json.loads(done.stdout)) == (0, {"ok": True})
