"""Every command over inputs that cannot be read: the error names the input and says what to do."""

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run, talk

CHAT = json.dumps(talk(2)).encode()
INPUTS = {
    "missing": None,
    "folder": None,
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "cut off": CHAT[:-20],
    "utf-16": CHAT.decode().encode("utf-16"),
    "latin-1": '[{"role": "user", "content": "café"}]'.encode("latin-1"),
    "null": b"null",
    "deeply nested": b"[" * 200_000,
    "huge number": b'[{"role": "user", "content": ' + b"1" * 20_000 + b"}]",
    "damaged gzip": gzip.compress(CHAT)[:-9],
    "gzip of nothing": gzip.compress(b""),
    "long line": b'{"answer": "' + b"x" * 3_000_000 + b'"}',
}
"""Kind of input → its content. None: no file."""

FILE_COMMANDS = {
    "check": ("check", "{}"),
    "repair": ("repair", "{}"),
    "repair --write": ("repair", "{}", "--write"),
    "repair --dry-run": ("repair", "{}", "--dry-run"),
    "tokens": ("tokens", "{}"),
    "view": ("view", "{}", "--max-tokens", "1000"),
    "import": ("import", "{}", "--db", "ok.db"),
    "agent check": ("agent", "check", "{}"),
    "agent fmt": ("agent", "fmt", "{}"),
    "agent run": ("agent", "run", "{}", "hello"),
    "config check": ("config", "check", "{}"),
    "config show": ("config", "show", "--config", "{}"),
    "serve": ("serve", "--config", "{}", "--port", "0"),
}
CONFIG_COMMANDS = {"config check", "config show", "serve"}
VALID = {
    **{("empty", name): "a program without agents" for name in ("agent check", "agent fmt")},
    **{("empty", name): "a configuration of defaults" for name in CONFIG_COMMANDS},
}
"""Inputs that a command may read, and what they are to it."""
DATABASE_COMMANDS = {
    " ".join(arguments[:2]): arguments
    for arguments in (
        ("ls",),
        ("show", "a"),
        ("search", "word"),
        ("export", "a"),
        ("compact", "a"),
        ("undo", "a", "b"),
        ("fork", "a", "b"),
        ("erase", "a", "--yes"),
        ("gc", "--yes"),
        ("why", "a"),
        ("import", "ok.json"),
        ("db", "init"),
        ("db", "migrate"),
        ("db", "status"),
        ("db", "check"),
        ("db", "backup", "copy.db"),
        ("keys", "list"),
        ("keys", "create", "phone"),
        ("keys", "audit"),
        ("chat", "hello", "-m", "gpt-4o", "--base-url", "http://127.0.0.1:9/v1"),
        ("serve", "--port", "0"),
    )
}
CREATING = {"import ok.json", "db init", "keys create", "chat hello", "serve --port"}
"""Commands that create a database that does not exist."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a valid file and without a configuration."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("MINUTEBOOK_CONFIG", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "ok.json").write_bytes(CHAT)
    return tmp_path


def write_input(folder: Path, kind: str) -> Path:
    path = folder / "input.jsonl"
    content = INPUTS[kind]
    if content is not None:
        path.write_bytes(content)
    elif kind == "folder":
        path.mkdir()
    return path


def require_helpful_error(run: Run, arguments: list[str], path: Path, kind: str) -> None:
    plain = run(*arguments)

    assert plain.exit_code == (3 if kind == "missing" else plain.exit_code)
    assert plain.exit_code in {1, 3, 5, 6}, plain.output
    assert path.name in plain.output
    assert "internal error" not in plain.stderr
    assert "Traceback" not in plain.output
    assert max(map(len, plain.output.splitlines())) < 1_000, "the content of the file is not printed"
    if kind != "missing":
        assert any(mark in plain.output for mark in ("; ", "expected", "error["))


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", FILE_COMMANDS)
def test_an_unreadable_file_is_named_in_a_helpful_error(run: Run, folder: Path, name: str, kind: str) -> None:
    path = write_input(folder, kind)
    arguments = [part.format(path) for part in FILE_COMMANDS[name]]
    if (kind, name) in VALID:
        if name != "serve":
            assert run(*arguments).exit_code == 0
        return
    before = path.read_bytes() if path.is_file() else None

    require_helpful_error(run, arguments, path, kind)

    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize("kind", [kind for kind in INPUTS if kind != "empty"])  # to SQLite, that is an empty database
@pytest.mark.parametrize("name", DATABASE_COMMANDS)
def test_an_unreadable_database_is_named_in_a_helpful_error(run: Run, folder: Path, name: str, kind: str) -> None:
    if kind == "missing" and name in CREATING:
        return
    path = write_input(folder, kind)

    require_helpful_error(run, [*DATABASE_COMMANDS[name], "--db", str(path)], path, kind)


@pytest.mark.parametrize("name", ["export", "repair", "backup"])
@pytest.mark.parametrize("target", ["folder", "no/such/file.jsonl", "file/out.jsonl"])
def test_an_output_that_cannot_be_written_is_named(run: Run, folder: Path, name: str, target: str) -> None:
    (folder / "folder").mkdir()
    (folder / "file").write_text("mine")
    assert run("import", "ok.json", "--db", "ok.db").exit_code == 0
    arguments = {
        "export": ("export", "ok", "--db", "ok.db", "-o", target),
        "repair": ("repair", "ok.json", "-o", target),
        "backup": ("db", "backup", target, "--db", "ok.db"),
    }[name]

    result = run(*arguments)

    assert result.exit_code in {1, 2, 3}
    assert target in result.stderr
    assert "internal error" not in result.stderr
    assert (folder / "file").read_text() == "mine"


def test_an_address_in_use_is_named(run: Run, folder: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = run("serve", "--port", str(port), "--db", folder / "ok.db")

    assert result.exit_code == 1
    assert f"127.0.0.1:{port}: the address is in use; " in result.stderr
