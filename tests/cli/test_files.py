import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from minutebook.errors import UnreadableInput
from minutebook.formats import Source, read

HELLO = {"role": "user", "content": "hello"}
BYE = {"role": "assistant", "content": "bye"}
CHAT = [HELLO, BYE]
OTHER = {"id": "b", "model": "gpt-4o", "messages": [BYE]}


def lines(*values: Any) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


LAYOUTS = {
    "a list of messages": (json.dumps(CHAT), [CHAT]),
    "a list of messages laid out for people": (json.dumps(CHAT, indent=2), [CHAT]),
    "an object": (json.dumps({"id": 7, "messages": CHAT}), [CHAT]),
    "an object laid out for people": (json.dumps({"messages": CHAT}, indent=1), [CHAT]),
    "a list of objects": (json.dumps([{"messages": CHAT}, OTHER]), [CHAT, [BYE]]),
    "a list of lists": (json.dumps([CHAT, [BYE]]), [CHAT, [BYE]]),
    "a message a line": (lines(*CHAT), [CHAT]),
    "one message on one line": (lines(HELLO), [[HELLO]]),
    "an object a line": (lines({"messages": CHAT}, OTHER), [CHAT, [BYE]]),
    "a list a line": (lines(CHAT, [], [BYE]), [CHAT, [], [BYE]]),
    "lists and objects a line": (lines(CHAT, OTHER), [CHAT, [BYE]]),
    "empty lines between": (f"\n\n{lines(HELLO)}\n\n{lines(BYE)}\n", [CHAT]),
    "no newline at the end": (lines(*CHAT).rstrip("\n"), [CHAT]),
    "Windows line ends": (lines(*CHAT).replace("\n", "\r\n"), [CHAT]),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "with a byte order mark"])
def test_every_layout_is_read(tmp_path: Path, name: str, packed: bool, mark: bytes) -> None:
    text, chats = LAYOUTS[name]
    data = mark + text.encode()
    path = tmp_path / "chat"
    path.write_bytes(gzip.compress(data) if packed else data)

    source = Source(path)

    assert [conversation.messages for conversation in read(source)] == chats
    assert source.is_gzipped() is packed
    assert source.skipped == []


def test_a_conversation_has_its_line_id_and_model(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(lines(CHAT) + "\n" + lines(OTHER))

    first, second = read(path)

    assert (first.place, first.id, first.model) == ("line 1", None, None)
    assert (second.place, second.id, second.model) == ("line 3", "b", "gpt-4o")


BAD = {
    "": (None, "is empty; expected JSON"),
    "\n \n": (None, "is empty"),
    "null": (None, "begins with text"),
    "[]": (None, "begins with an empty list"),
    '{"answer": 42}': (None, "begins with an object with the keys 'answer'"),
    '{"messages": "hello"}': (None, "an object with the keys 'messages'"),
    '{"answer": 42}\n{"answer": 43}\n': (None, "an object with the keys 'answer'"),
    "[1, 2]": (None, "begins with a number"),
    "hello there": (None, "begins with text"),
    '{\n"role": "user"\n"content": "a"}': (3, "not JSON"),
    '[\n  {"role": "user", "content": "a"},\n  {"role" "user"},\n  {"role": "user", "content": "b"}\n]': (
        None,
        "element 1: not JSON",
    ),
    '[{"role": "user", "content": NaN}]': (None, "NaN is not a JSON number"),
    '[{"role": "assistant", "tool_calls": "none"}]': (None, "tool_calls is not a list of mappings"),
    "[" * 100_000: (None, "not JSON"),
}


@pytest.mark.parametrize("text", BAD, ids=[f"{number}" for number in range(len(BAD))])
def test_the_error_of_an_unreadable_file_has_its_name_and_line(tmp_path: Path, text: str) -> None:
    line, problem = BAD[text]
    path = tmp_path / "bad.jsonl"
    path.write_text(text)

    with pytest.raises(UnreadableInput) as refused:
        list(read(path))

    assert refused.value.line == line
    assert problem in str(refused.value)
    assert str(refused.value).startswith(str(path) if line is None else f"{path}:{line}: ")


BAD_LINES = {
    b'{"role": "user", "content": "a"}\n{"role": \n': "line 2: not JSON",
    b'{"role": "user", "content": "a"}\n{"role": ': "line 2: is incomplete",
    b'{"role": "user", "content": "a"}\n[]\n': "line 2: is not a message of this format",
    b'{"messages": []}\n{"messages": []}\n\n{"role": "user"}\n': "line 4: is an object with the keys 'role'",
    b'{"role": "user", "content": "a"}\n{"role": "user", "content": "caf\xe9"}\n': "line 2: not UTF-8",
}


@pytest.mark.parametrize("text", BAD_LINES)
def test_a_line_that_is_not_understood_is_skipped_with_its_number(text: bytes) -> None:
    source = Source(text)

    list(read(source))

    assert [str(part)[: len(BAD_LINES[text])] for part in source.skipped] == [BAD_LINES[text]]


@pytest.mark.parametrize("damage", [slice(0, -9), slice(0, 20)])
def test_damaged_gzip_is_said(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "chat.gz"
    path.write_bytes(gzip.compress(lines(*CHAT * 100).encode())[damage])

    with pytest.raises(UnreadableInput, match="gzip data is damaged"):
        list(read(path))


def test_many_conversations_are_read_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(lines({"messages": [{"role": "user", "content": "x" * 20_000}]}) * 200)
    seen: list[int] = []

    conversations = read(Source(path, advance=seen.append))
    next(conversations)

    assert sum(seen) < path.stat().st_size / 10
    assert sum(1 for _ in conversations) == 199
    assert sum(seen) == path.stat().st_size
