"""The command in this process and in one of its own, and conversations that are whole or broken."""

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
Launch: TypeAlias = Callable[..., "subprocess.CompletedProcess[bytes]"]

PRIVATE = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "MINUTEBOOK_DEBUG", "PYTHONUNBUFFERED")
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
    """A folder of its own for chats, and nobody's keys."""
    for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL"):
        for provider in ("OPENAI", "ANTHROPIC"):
            monkeypatch.delenv(f"{provider}_{name}", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "minutebook" / "chats"


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
