"""Every command without the libraries of one extra: it works, or prints the pip command that installs the extra."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import talk

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = {name: libraries for name, libraries in PROJECT["optional-dependencies"].items() if name != "dev"}
MODULES = {
    "google-adk": ["google"],
    "opentelemetry-api": ["opentelemetry"],
    "prometheus-client": ["prometheus_client"],
    "psycopg": ["psycopg", "psycopg_pool"],
    "pyyaml": ["yaml"],
    "splintr-rs": ["splintr"],
    "fastapi": ["fastapi", "starlette"],
}
"""Library → its modules, if they have other names."""
COMMANDS = (
    *(["check", "chat.json"], ["repair", "chat.json"], ["tokens", "chat.json"], ["view", "chat.json"]),
    *(["import", "chat.json"], ["ls"], ["show", "chat"], ["search", "order"], ["export", "chat"], ["why", "chat"]),
    *(["compact", "chat"], ["fork", "chat", "copy"], ["gc", "--yes"], ["erase", "copy", "--yes"]),
    *(["db", "init"], ["db", "status"], ["db", "check"], ["db", "migrate"], ["db", "backup", "copy.db"]),
    *(["keys", "list"], ["keys", "create", "phone"], ["keys", "audit"], ["agent", "check", "a.sr"], ["agent", "fmt", "a.sr"]),
    *(["config", "show"], ["config", "show", "--config", "llm_config.yaml"], ["config", "check", "llm_config.yaml"]),
    *(["models", "gpt-5"], ["completion", "bash"], ["serve", "--key-env", "UNSET", "--upstream", "http://127.0.0.1:9/v1"]),
)  # fmt: skip
"""Each ends by itself; the service because its API key is not set."""
CALLS = {
    "openai": [["chat", "hi", "-m", "m", "--base-url", "http://127.0.0.1:9"], ["agent", "run", "a.sr", "hi", "--base-url", "http://127.0.0.1:9"]],
    "anthropic": [["chat", "hi", "-m", "m", "--provider", "anthropic", "--base-url", "http://127.0.0.1:9"]],
    "psycopg": [["ls", "--db", "postgresql://127.0.0.1:9/x"]],
    "redis": [["ls", "--db", "redis://127.0.0.1:9"]],
}  # fmt: skip
"""Missing module → commands that would use the network if it was installed."""
RUN = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
from click.testing import CliRunner
from minutebook.cli.main import cli
for arguments in json.loads(sys.argv[2]):
    result = CliRunner().invoke(cli, arguments, prog_name="minutebook")
    print(json.dumps([arguments, result.exit_code, result.stderr]))
"""
PROGRAM_TEXT = """
model main:
    provider: openai
    name: gpt-4o

prompt p:
    Be brief.

agent a:
    instruction p
"""


def modules_of(extra: str) -> list[str]:
    libraries = [re.split(r"[\[>=<]", requirement)[0] for requirement in EXTRAS[extra]]
    return [module for library in libraries for module in MODULES.get(library, [library])]


@pytest.mark.slow  # tests/test_import.py has a quick example of each
@pytest.mark.parametrize("extra", EXTRAS)
def test_every_command_works_without_an_extra_or_prints_the_pip_command(extra: str, tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(json.dumps(talk(2)))
    (tmp_path / "a.sr").write_text(PROGRAM_TEXT)
    (tmp_path / "llm_config.yaml").write_text("server: {port: 0}\n")
    missing = modules_of(extra)
    commands = [*COMMANDS, *(arguments for module in missing for arguments in CALLS.get(module, ()))]
    variables = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(missing), json.dumps(commands)],
        cwd=tmp_path, env=os.environ | variables, capture_output=True, text=True, check=True,
    )  # fmt: skip

    for line in done.stdout.splitlines():
        arguments, code, stderr = json.loads(line)
        assert "internal error" not in stderr, (arguments, stderr)
        assert "Traceback" not in stderr, arguments
        if "is not installed" in stderr:
            assert code == 1, arguments
            assert re.search(r"run: pip install 'minutebook\[[a-z]+\]'", stderr), (arguments, stderr)
    assert len(done.stdout.splitlines()) == len(commands)
