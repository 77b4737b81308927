"""`minutebook convert`, `minutebook formats`, and the other commands on files that are not chat data."""

import json
from pathlib import Path

import pytest

from minutebook.formats import formats, read
from tests.cli.conftest import Chat, OnDatabase, Run, rows
from tests.formats.samples import SAMPLES

CLAUDE = SAMPLES["claude code session"][1]


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """A folder like that of Claude Code: a session, its branches, and a file that is none."""
    folder = tmp_path / "projects"
    (folder / "-work").mkdir(parents=True)
    (folder / "-work" / "session.jsonl").write_bytes(CLAUDE)
    return folder


def test_formats_lists_all_and_says_which_can_be_written(run: Run) -> None:
    listed = json.loads(run("formats", "--json").stdout)

    assert [row["name"] for row in listed] == sorted(formats())
    assert {row["name"] for row in listed if row["writes"]} == {
        *("openai-chat", "openai-responses", "anthropic", "gemini"),
        *(row["name"] for row in listed if formats()[row["name"]].write is not None),
    }
    assert "claude-code" in run("formats").stdout


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("command", ["check", "tokens", "view"])
def test_every_command_reads_every_format(run: Run, tmp_path: Path, sample: str, command: str) -> None:
    path = tmp_path / "sample"
    path.write_bytes(SAMPLES[sample][1])

    result = run(command, path)

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_format_is_imported_once(on: OnDatabase, tmp_path: Path, sample: str) -> None:
    path = tmp_path / "sample"
    path.write_bytes(SAMPLES[sample][1])
    conversations = list(read(path))

    first, second = on("import", path, "--json"), on("import", path, "--json")

    counts = json.loads(first.stdout)
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert counts["conversations"] + counts["existing_conversations"] == len(conversations)
    assert json.loads(second.stdout)["conversations"] == json.loads(second.stdout)["messages"] == 0
    stored = [row["messages"] for row in rows(on("ls", "--json"))]
    assert sorted(stored) == sorted(len(conversation.items) for conversation in conversations)


def test_import_keeps_times_models_and_the_format(on: OnDatabase, projects: Path) -> None:
    (conversation,) = read(CLAUDE)

    assert on("import", projects).exit_code == 0

    lines = [json.loads(line) for line in on("export", conversation.id or "").stdout.splitlines()]
    entries = [line["entry"] for line in lines if "entry" in line]
    assert lines[0]["conversation"]["labels"]["source"] == "claude-code"
    assert [entry["created_at"][:19] for entry in entries] == [
        item.at.isoformat()[:19] for item in conversation.items if item.at
    ]
    assert {entry["model"] for entry in entries} == {"claude-opus-4-6"}


def test_a_database_has_the_usage_of_what_was_imported(run: Run, projects: Path, tmp_path: Path) -> None:
    (conversation,) = read(CLAUDE)
    path = tmp_path / "chat.db"

    assert run("import", projects, "--db", path).exit_code == 0

    (stored,) = read(path)
    assert [item.usage for item in stored.items] == [item.usage for item in conversation.items]


def test_a_session_that_has_grown_gets_its_new_messages(on: OnDatabase, tmp_path: Path) -> None:
    lines = CLAUDE.splitlines(keepends=True)
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(lines[:-1]))
    before = json.loads(on("import", path, "--json").stdout)
    path.write_bytes(CLAUDE)

    after = json.loads(on("import", path, "--json").stdout)

    (conversation,) = read(CLAUDE)
    assert (after["conversations"], after["existing_conversations"]) == (0, 1)
    assert before["messages"] + after["messages"] == len(conversation.items)
    assert [row["messages"] for row in rows(on("ls", "--json"))] == [len(conversation.items)]


def test_branches_are_imported_as_forks(on: OnDatabase, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_bytes(SAMPLES["chatgpt export"][1])

    assert on("import", path).exit_code == 0

    first, second = read(path)
    shown = {row["id"]: row for row in rows(on("ls", "--json"))}
    assert set(shown) == {first.id, second.id}
    assert shown[second.id or ""]["messages"] == len(second.items)


def test_a_folder_is_listed_and_one_of_its_conversations_is_shown(run: Run, projects: Path) -> None:
    listed, shown = run("view", projects), run("view", projects, "--conversation", "s-1")

    assert (listed.exit_code, shown.exit_code) == (0, 0)
    assert "s-1" in listed.stdout
    assert "Find an order" in listed.stdout
    assert "reported by the provider in" in shown.stdout
    assert run("view", projects, "--conversation", "nobody").exit_code == 2


def test_a_file_of_a_folder_that_is_not_understood_is_skipped_and_named(run: Run, projects: Path) -> None:
    (projects / "settings.json").write_text('{"theme": "dark"}')

    result = run("check", projects)

    assert result.exit_code == 6
    assert f"skipped {projects}/settings.json: is in no known format" in result.stderr
    assert "1 conversation" in result.stdout


def test_a_folder_without_any_transcript_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"theme": "dark"}')

    result = run("check", tmp_path)

    assert result.exit_code == 5
    assert "no file of the folder can be read; " in result.stderr


def test_convert_writes_a_line_per_conversation_and_says_what_is_lost(run: Run, projects: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"

    result = run("convert", projects, "--to", "openai-chat", "-o", out)

    assert result.exit_code == 0
    assert "converted 1 conversations to openai-chat" in result.stderr
    assert "line 3: details of the original format: thinking" in result.stderr
    (again,) = read(out)
    assert (again.format, len(again.items), again.id) == ("openai-chat", 4, "s-1")
    assert run("check", out).exit_code == 0


def test_convert_does_not_overwrite(run: Run, projects: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine")

    refused = run("convert", projects, "--to", "openai-chat", "-o", out)

    assert (refused.exit_code, out.read_text()) == (2, "mine")
    assert "--force replaces it" in refused.stderr
    assert run("convert", projects, "--to", "openai-chat", "-o", out, "--force").exit_code == 0
    assert out.read_text() != "mine"


@pytest.mark.parametrize("name", ["claude-code", "nonsense"])
def test_convert_refuses_a_format_that_cannot_be_written(run: Run, projects: Path, name: str) -> None:
    result = run("convert", projects, "--to", name)

    assert result.exit_code == 2
    assert "openai-chat" in result.stderr


def test_from_overrides_detection(run: Run, whole: Chat) -> None:
    result = run("check", "-", "--from", "claude-code", stdin=json.dumps(whole))

    assert result.exit_code == 5
    assert "contains no conversation in the format claude-code" in result.stderr


def test_repair_refuses_what_it_cannot_write_and_names_convert(run: Run, projects: Path) -> None:
    result = run("repair", projects / "-work" / "session.jsonl")

    assert result.exit_code == 2
    assert "minutebook convert" in result.stderr


def test_answers_of_a_claude_code_session_are_converted_without_anthropic_fields(run, tmp_path):
    facts = {"sessionId": "s-1", "timestamp": "2026-03-01T11:00:00Z", "isSidechain": False}
    answer = {"id": "msg_1", "role": "assistant", "model": "claude", "content": [{"type": "text", "text": "Hello."}]}
    lines = [
        {"type": "user", "uuid": "u1", "parentUuid": None, **facts, "message": {"role": "user", "content": "Hi."}},
        {"type": "assistant", "uuid": "u2", "parentUuid": "u1", **facts, "message": answer},
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    expected = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    assert json.loads(run("convert", path, "--to", "openai-chat").stdout)["messages"] == expected
    assert json.loads(run("convert", path, "--to", "openai-responses").stdout)["input"] == expected


def test_import_names_a_bad_file_of_a_folder_and_imports_the_others(on: OnDatabase, projects: Path) -> None:
    for name, content in (("empty.jsonl", b""), ("noise.json", b"\x00\xff" * 50), ("cut.json.gz", b"\x1f\x8b\x08\x00")):
        (projects / name).write_bytes(content)

    report = on("import", projects)

    assert report.exit_code == 6, report.stderr
    assert "imported 1 conversations with 4 messages" in report.stderr
    assert all(f"skipped {projects / name}" in report.stderr for name in ("empty.jsonl", "noise.json", "cut.json.gz"))
    assert len(rows(on("ls", "--json"))) == 1
