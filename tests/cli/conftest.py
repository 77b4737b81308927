"""The command in this process and in one of its own, and conversations that are whole or broken."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from minutebook.cli.main import cli

Chat: TypeAlias = list[dict[str, Any]]
Run: TypeAlias = Callable[..., Result]
OnDatabase: TypeAlias = Callable[..., Result]
Launch: TypeAlias = Callable[..., "subprocess.CompletedProcess[bytes]"]

PRIVATE = (
    *("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PYTHONUNBUFFERED"),
    *("MINUTEBOOK_DB", "MINUTEBOOK_DEBUG", "MINUTEBOOK_ENCRYPTION_KEY_FILE", "MINUTEBOOK_TENANT"),
)
"""What the environment of whoever runs the tests must not decide."""

PROGRAM = (sys.executable, "-c", "from minutebook.cli.main import main; main()")


@pytest.fixture
def run() -> Run:
    """Call the command here: fast, and its output is at hand."""

    def call(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
        return CliRunner(env=dict.fromkeys(PRIVATE)).invoke(
            cli, list(map(str, arguments)), input=stdin, prog_name="minutebook"
        )

    return call


@pytest.fixture
def launch() -> Launch:
    """Call the command as a shell would."""

    def call(*arguments: str | Path, stdin: bytes = b"", **environment: str) -> "subprocess.CompletedProcess[bytes]":
        command = [*PROGRAM, *map(str, arguments)]
        return subprocess.run(command, input=stdin, capture_output=True, check=False, env=inherited() | environment)

    return call


def inherited() -> dict[str, str]:
    """The environment, without what is nobody's business."""
    return {name: value for name, value in os.environ.items() if name not in PRIVATE}


def call(call_id: str, name: str = "search", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for the database, and nobody's keys."""
    for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL"):
        for provider in ("OPENAI", "ANTHROPIC"):
            monkeypatch.delenv(f"{provider}_{name}", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "minutebook"


def stored_chats() -> dict[str, list[tuple[str, str]]]:
    """Who said what, in every conversation of the database in the state folder."""
    lines = CliRunner(env=dict.fromkeys(PRIVATE)).invoke(cli, ["export", "--all"]).stdout.splitlines()
    chats: dict[str, list[tuple[str, str]]] = {}
    for kind, value in (next(iter(json.loads(line).items())) for line in lines):
        if kind == "conversation":
            said = chats[value["id"]] = []
        elif kind == "entry":
            said.append((value["message"]["role"], value["message"]["content"]))
    return chats


def stored_chat() -> list[tuple[str, str]]:
    """Who said what, in the only conversation there is."""
    (said,) = stored_chats().values()
    return said


@pytest.fixture
def whole() -> Chat:
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is the café?"},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "b", "content": "second " * 40},
        {"role": "tool", "tool_call_id": "a", "content": "first " * 400},
        {"role": "assistant", "content": "On the corner."},
    ]


@pytest.fixture
def broken(whole: Chat) -> Chat:
    """A call without its result, and a result without its call."""
    return [*whole[:4], whole[5], {"role": "tool", "tool_call_id": "zzz", "content": "from nowhere"}]


@pytest.fixture
def odd(whole: Chat) -> Chat:
    """What OpenAI accepts and Anthropic does not: the assistant speaks first."""
    return [{"role": "assistant", "content": "Hello!"}, *whole[1:]]


def talk(turns: int, *, words: int = 30) -> Chat:
    """A conversation of so many turns, each with a call and its result."""
    messages: Chat = [{"role": "system", "content": "You help customers of a tea shop."}]
    for turn in range(turns):
        messages += [
            {"role": "user", "content": f"Where is order {1000 + turn}? " + "It is late. " * words},
            {"role": "assistant", "content": None, "tool_calls": [call(f"call_{turn}", "find_order")]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": f"order {1000 + turn} is packed"},
            {"role": "assistant", "content": f"Order {1000 + turn} leaves today."},
        ]
    return messages


@pytest.fixture
def on(run: Run, tmp_path: Path) -> OnDatabase:
    """Call a command on a database of this test."""

    def call_on(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
        return run(*arguments, "--db", f"sqlite:///{tmp_path / 'chat.db'}", stdin=stdin)

    return call_on


@pytest.fixture
def kept(on: OnDatabase, tmp_path: Path) -> OnDatabase:
    """The same, with three conversations kept: order-17 of 12 turns, order-18 of 2, and hello of 1."""
    path = tmp_path / "three.jsonl"
    conversations: list[dict[str, Any]] = [
        {"id": "order-17", "messages": talk(12)},
        {"id": "order-18", "messages": talk(2)},
        {"id": "hello", "messages": [{"role": "user", "content": "Hello! Ich möchte Tee."}]},
    ]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in conversations))
    assert on("import", path, "--recipient", "alice").exit_code == 0
    return on


def rows(result: Result) -> list[dict[str, Any]]:
    """The objects that a command printed one a line."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]
