"""The file that a chat is kept in."""

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ConversationEntry
from minutebook.cli.chat.log import ChatLog
from minutebook.errors import InvalidSetting, UnreadableInput
from minutebook.testing import LoopbackProvider, ScriptedModel
from minutebook.wire import entry_to_json, provider_message_to_entry
from tests.cli.conftest import Run


def entry(text: str, role: str = "user") -> ConversationEntry:
    return provider_message_to_entry(
        {"role": role, "content": text},
        evaluation_id=UUID(int=1),
        sequence=0,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        provider="openai",
        model="gpt-4o",
    )


def written(path: Path, texts: list[str]) -> bytes:
    with ChatLog.create(path) as log:
        for text in texts:
            log.append(entry(text))
    return path.read_bytes()


def texts_in(path: Path) -> list[str | None]:
    with ChatLog.resume(path) as log:
        return [entry.content for entry in log.entries]


@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=4), data=st.data())
def test_a_crash_at_any_byte_costs_at_most_the_last_message(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "chat.jsonl"
    whole = written(path, texts)
    line_ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    end = data.draw(st.sampled_from(line_ends) | st.integers(0, len(whole)))
    path.write_bytes(whole[:end] + b"\0" * data.draw(st.integers(0, 3)) * (not whole[:end].endswith(b"}")))
    ended = whole[: end + 1].count(b"\n") if whole[end : end + 1] == b"\n" else whole[:end].count(b"\n")

    with ChatLog.resume(path) as log:
        before = [entry.content for entry in log.entries]
        log.append(entry("and on"))

    assert before == texts[:ended]
    assert texts_in(path) == [*before, "and on"]


@given(texts=st.lists(st.text(max_size=30), max_size=4))
def test_what_was_appended_is_read_again(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("log") / "chat.jsonl"
    with ChatLog.create(path) as log:
        for text in texts:
            log.append(entry(text))
            assert path.read_bytes().endswith(entry_to_json(entry(text)).encode() + b"\n")

    assert path.exists() == bool(texts)
    assert not texts or texts_in(path) == texts


def test_a_torn_line_is_told_and_everything_before_it_goes_on(run: Run, state: Path) -> None:
    with LoopbackProvider(ScriptedModel("One.", "Two.")) as provider:
        arguments = ("-m", "gpt-4o", "--base-url", provider.base_url)
        run("chat", "First?", *arguments)
        (path,) = state.iterdir()
        path.write_bytes(path.read_bytes()[:-20])
        torn = len(path.read_bytes().splitlines()[-1])
        result = run("chat", "Second?", "--continue", *arguments)
        heard = [message["content"] for message in provider.requests[-1].messages]

    assert result.stdout == "Two.\n"
    assert result.stderr == (
        f"warning: {path} ends with {torn} bytes of a message that was never finished; all before it is there\n"
    )
    assert heard == ["First?", "Second?"]
    assert texts_in(path) == ["First?", "Second?", "Two."]


def test_the_newest_system_message_stands_first(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    with ChatLog.create(path) as log:
        for each in (entry("Old.", "system"), entry("Hello?"), entry("New.", "system"), entry("Hello.", "assistant")):
            log.append(each)

    with ChatLog.resume(path) as log:
        assert [message["content"] for message in log.messages()] == ["New.", "Hello?", "Hello."]


@pytest.mark.parametrize(
    "content",
    [
        b'[{"role": "user", "content": "Hello?"}]',
        b'{"role": "user", "content": "Hello?"}\n',
        b'{"message": {"role": "user"',
        b'{"message":{"role":"user","content":"Hello?"}}',
        b'{"message":{"role":"us\n{"message":{"role":"user"',
        b"\xff\xfe",
        b"\n",
    ],
    ids=["document", "message", "spaced", "bare", "middle", "bytes", "blank"],
)
def test_a_file_that_is_something_else_is_refused_and_left_alone(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(content)

    with pytest.raises(UnreadableInput, match=r"notes\.json:1: is not a chat"):
        ChatLog.resume(path)
    result = run("chat", "Hello?", "-m", "any", "--base-url", "http://127.0.0.1:9", "--continue", "--transcript", path)

    assert result.exit_code == 5
    assert path.read_bytes() == content


def test_only_one_chat_at_a_time_writes_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    with ChatLog.create(path) as log:
        log.append(entry("Hello?"))
        with pytest.raises(InvalidSetting, match="a chat that is still open writes to this one"):
            ChatLog.resume(path)

    assert texts_in(path) == ["Hello?"]


def test_a_file_that_is_missing_ends_with_3(run: Run, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere" / "chat.jsonl"

    assert run("chat", "Hello?", "-m", "any", "--continue", "--transcript", nowhere).exit_code == 3
    assert run("chat", "Hello?", "-m", "any", "--base-url", "http://h", "--transcript", nowhere).exit_code == 3


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """A disk that is full once a file has so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_what_a_full_disk_did_not_take_is_written_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    with ChatLog.create(path) as log:
        log.append(entry("One"))
        with room_for(path.stat().st_size + 50), pytest.raises(OSError, match="too large"):
            log.append(entry("Two"))
        log.append(entry("Three"))

    assert texts_in(path) == ["One", "Two", "Three"]


def test_what_a_full_disk_did_not_take_is_written_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    with ChatLog.create(path) as log:
        log.append(entry("One"))
        with room_for(path.stat().st_size + 50), pytest.raises(OSError, match="too large"):
            log.append(entry("Two"))

    assert texts_in(path) == ["One", "Two"]
    assert [json.loads(line)["message"]["content"] for line in path.read_text().splitlines()] == ["One", "Two"]
