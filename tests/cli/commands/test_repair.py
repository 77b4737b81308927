import gzip
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minutebook.record import is_valid
from minutebook.testing import coding_session
from tests.cli.conftest import Chat, Run

SHAPES: dict[str, Callable[[Chat], str]] = {
    "a list": json.dumps,
    "a list laid out for people": lambda chat: json.dumps(chat, indent=4, ensure_ascii=False) + "\n",
    "an object": lambda chat: json.dumps(
        {"id": 3, "messages": chat, "meta": {"kept": [1.50, "é"]}}, separators=(",", ":")
    ),
    "a list of objects": lambda chat: json.dumps([{"messages": chat}, {"messages": chat, "x": None}], indent="\t"),
    "a message a line": lambda chat: "".join(f"{json.dumps(message)}\n" for message in chat),
    "a list a line": lambda chat: f"{json.dumps(chat)}\n\n {json.dumps(chat)}\n\n",
    "an object a line": lambda chat: f"{json.dumps({'a': 1, 'messages': chat})}\n" * 3,
}


def chats(text: str) -> Any:
    """Every list of messages in a text of any shape."""
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.splitlines() if line.strip()]
        if "role" in values[0]:
            return [values]
    if isinstance(values[0], list) and "messages" in values[0][0]:
        values = values[0]
    return [value["messages"] if isinstance(value, dict) else value for value in values]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_needs_no_repair_comes_back_byte_for_byte(run: Run, whole: Chat, shape: str) -> None:
    text = SHAPES[shape](whole).encode()

    result = run("repair", "-", stdin=text)

    assert result.exit_code == 0
    assert result.stdout_bytes == text


@pytest.mark.parametrize("shape", SHAPES)
def test_repaired_conversations_have_the_shape_they_came_in(run: Run, whole: Chat, broken: Chat, shape: str) -> None:
    text = SHAPES[shape](broken)

    repaired = run("repair", "-", stdin=text.encode()).stdout

    assert all(is_valid(chat) for chat in chats(repaired))
    assert len(chats(repaired)) == len(chats(text))
    rebuilt = SHAPES[shape](chats(repaired)[0])
    assert [line.strip() for line in repaired.splitlines() if line] == [
        line.strip() for line in rebuilt.splitlines() if line
    ]
    assert whole[1] in chats(repaired)[0]


def test_only_the_broken_line_changes(run: Run, whole: Chat, broken: Chat) -> None:
    lines = [
        json.dumps(whole, indent=None, separators=(", ", ":  ")),
        json.dumps({"k": "v", "messages": broken}),
        "[ ]",
    ]

    repaired = run("repair", "-", stdin="\n".join(lines)).stdout.split("\n")

    assert repaired[0] == lines[0]
    assert repaired[2] == lines[2]
    assert json.loads(repaired[1])["k"] == "v"


def test_only_the_broken_messages_of_a_message_a_line_change(run: Run, broken: Chat) -> None:
    lines = [json.dumps(message).replace(": ", ":    ") for message in broken]

    repaired = run("repair", "-", stdin="\n".join(lines)).stdout.splitlines()

    assert repaired[:4] == lines[:4]
    assert "no result was recorded" in repaired[4]
    assert repaired[5] == lines[4]
    assert len(repaired) == 6


def test_what_was_done_is_on_stderr(run: Run, broken: Chat) -> None:
    result = run("repair", "-", stdin=json.dumps(broken))

    assert result.exit_code == 0
    assert "message 2: dangling call ('a'): answered" in result.stderr
    assert "message 5: orphan result ('zzz'): dropped" in result.stderr
    assert result.stderr.endswith("1 of 1 conversations repaired, 2 repairs\n")


def test_a_lone_surrogate_is_replaced_and_reported(run: Run, broken: Chat) -> None:
    text = json.dumps([{"role": "user", "content": "é \ud800"}, *broken[2:]], ensure_ascii=False)

    result = run("repair", "-", stdin=text.encode("utf-8", "surrogatepass"))

    assert json.loads(result.stdout_bytes.decode())[0]["content"] == "é \ufffd"
    assert "message 0: bad text: replaced" in result.stderr


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
def test_write_replaces_the_file_and_keeps_its_permissions(
    run: Run, broken: Chat, tmp_path: Path, packed: bool
) -> None:
    path = tmp_path / "log.json"
    data = json.dumps(broken).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    path.chmod(0o640)

    result = run("repair", path, "--write")

    assert result.exit_code == 0
    assert result.stdout == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    written = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    assert is_valid(json.loads(written))
    assert list(tmp_path.iterdir()) == [path]


def test_write_does_not_touch_a_file_that_needs_no_repair(run: Run, whole: Chat, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(whole))
    before = path.stat()

    assert run("repair", path, "--write").exit_code == 0

    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(tmp_path.iterdir()) == [path]


def test_write_leaves_the_file_alone_when_a_later_line_cannot_be_read(run: Run, broken: Chat, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    text = f"{json.dumps(broken)}\n{json.dumps(broken)}\n[oops\n"
    path.write_text(text)

    result = run("repair", path, "--write")

    assert result.exit_code == 5
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_write_through_a_link_changes_the_file_and_keeps_the_link(run: Run, broken: Chat, tmp_path: Path) -> None:
    path, link = tmp_path / "log.json", tmp_path / "link.json"
    path.write_text(json.dumps(broken))
    link.symlink_to(path)

    assert run("repair", link, "--write").exit_code == 0

    assert link.is_symlink()
    assert is_valid(json.loads(path.read_text()))


def test_stdin_cannot_be_written_back(run: Run, broken: Chat) -> None:
    result = run("repair", "-", "--write", stdin=json.dumps(broken))

    assert result.exit_code == 2
    assert "--write cannot replace stdin" in result.stderr


def test_output_goes_to_another_file(run: Run, broken: Chat, tmp_path: Path) -> None:
    result = run("repair", "-", "-o", tmp_path / "out.json.gz", stdin=json.dumps(broken))

    assert result.exit_code == 0
    assert is_valid(json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes())))


def test_output_and_write_exclude_each_other(run: Run, tmp_path: Path) -> None:
    assert run("repair", "x.json", "--write", "-o", tmp_path / "y.json").exit_code == 2


def test_the_report_is_json_where_it_is_asked_for(run: Run, broken: Chat, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(broken))

    to_stderr = run("repair", path, "--json")
    to_stdout = run("repair", path, "--write", "--json")

    assert json.loads(to_stderr.stderr) == json.loads(to_stdout.stdout)
    assert json.loads(to_stdout.stdout)["summary"] == {"conversations": 1, "repaired": 1, "repairs": 2}
    assert is_valid(json.loads(to_stderr.stdout))


def test_what_cannot_be_repaired_ends_with_6(run: Run) -> None:
    result = run("repair", "-", stdin='{"messages": []}')

    assert result.exit_code == 6
    assert "cannot be repaired: message 0: there are only system messages" in result.stderr


def test_open_calls_at_the_end_can_be_kept(run: Run, whole: Chat) -> None:
    text = json.dumps(whole[:4])

    assert run("repair", "-", "--keep-open", stdin=text).stdout == text
    assert len(json.loads(run("repair", "-", stdin=text).stdout)) == 5


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini", "all"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_repaired_output_passes_check(run: Run, provider: str, data: st.DataObject) -> None:
    session = coding_session(data.draw(st.integers(0, 1000)), turns=2)
    kept = [message for message in session if data.draw(st.booleans()) or message["role"] == "user"]

    repaired = run("repair", "-", "--provider", provider, stdin=json.dumps(kept))

    assert repaired.exit_code == 0
    assert run("check", "-", "--provider", provider, stdin=repaired.stdout).exit_code == 0
    assert run("repair", "-", "--provider", provider, stdin=repaired.stdout).stdout == repaired.stdout
