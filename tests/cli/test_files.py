import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from minutebook.cli.files import ConversationReader, FileLayout
from minutebook.errors import UnreadableInput

HELLO = {"role": "user", "content": "hello"}
BYE = {"role": "assistant", "content": "bye"}
CHAT = [HELLO, BYE]
OTHER = {"id": "b", "model": "gpt-4o", "messages": [BYE]}


def lines(*values: Any) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


LAYOUTS = {
    "a list of messages": (json.dumps(CHAT), [CHAT], FileLayout.DOCUMENT),
    "a list of messages laid out for people": (json.dumps(CHAT, indent=2), [CHAT], FileLayout.DOCUMENT),
    "an object": (json.dumps({"id": 7, "messages": CHAT}), [CHAT], FileLayout.DOCUMENT),
    "an object laid out for people": (json.dumps({"messages": CHAT}, indent=1), [CHAT], FileLayout.DOCUMENT),
    "a list of objects": (json.dumps([{"messages": CHAT}, OTHER]), [CHAT, [BYE]], FileLayout.DOCUMENT),
    "a list of lists": (json.dumps([CHAT, [BYE]]), [CHAT, [BYE]], FileLayout.DOCUMENT),
    "a message a line": (lines(*CHAT), [CHAT], FileLayout.MESSAGES),
    "one message on one line": (lines(HELLO), [[HELLO]], FileLayout.MESSAGES),
    "an object a line": (lines({"messages": CHAT}, OTHER), [CHAT, [BYE]], FileLayout.LINES),
    "a list a line": (lines(CHAT, [], [BYE]), [CHAT, [], [BYE]], FileLayout.LINES),
    "lists and objects a line": (lines(CHAT, OTHER), [CHAT, [BYE]], FileLayout.LINES),
    "empty lines between": (f"\n\n{lines(HELLO)}\n\n{lines(BYE)}\n", [CHAT], FileLayout.MESSAGES),
    "no newline at the end": (lines(*CHAT).rstrip("\n"), [CHAT], FileLayout.MESSAGES),
    "Windows line ends": (lines(*CHAT).replace("\n", "\r\n"), [CHAT], FileLayout.MESSAGES),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "with a byte order mark"])
def test_every_layout_is_read(tmp_path: Path, name: str, packed: bool, mark: bytes) -> None:
    text, chats, layout = LAYOUTS[name]
    data = mark + text.encode()
    path = tmp_path / "chat"
    path.write_bytes(gzip.compress(data) if packed else data)

    reader = ConversationReader(str(path))

    assert [conversation.messages for conversation in reader] == chats
    assert reader.layout is layout
    assert reader.gzipped is packed


def test_a_conversation_knows_its_index_its_line_its_id_and_its_model(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(lines(CHAT) + "\n" + lines(OTHER))

    first, second = ConversationReader(str(path))

    assert (first.index, first.line, first.id, first.model) == (0, 1, None, None)
    assert (second.index, second.line, second.id, second.model) == (1, 3, "b", "gpt-4o")


BAD = {
    "": (None, "is empty; expected OpenAI chat data"),
    "\n \n": (None, "is empty"),
    "null": (None, "conversation 0 is null"),
    "[]": (None, "contains no conversation"),
    "42": (None, "conversation 0 is a number"),
    '"text"': (None, "conversation 0 is a string"),
    '{"answer": 42}': (None, "an object with the keys 'answer'"),
    '{"messages": "hello"}': (None, "'messages' is not a list"),
    '{"answer": 42}\n{"answer": 43}\n': (1, "an object with the keys 'answer'"),
    "[1, 2]": (None, "message 0 is a number"),
    "hello there": (1, "not JSON"),
    '{"role": "user"}\n{"role": \n': (2, "not JSON"),
    '{"role": "user"}\n[]\n': (2, "message 1 is a list"),
    '{"messages": []}\n{"messages": []}\n\n{"role": "user"}\n': (4, "conversation 2 is an object with the keys 'role'"),
    '[\n  {"role": "user"},\n  {"role" "user"}\n]': (3, "not JSON"),
    '[{"role": "user", "content": NaN}]': (1, "NaN is not a JSON number"),
    '[{"role": "assistant", "tool_calls": "none"}]': (None, "tool_calls is not a list of mappings"),
    "[" * 100_000: (1, "invalid JSON"),
}


@pytest.mark.parametrize("text", BAD, ids=[f"{number}" for number in range(len(BAD))])
def test_what_cannot_be_read_is_said_with_file_and_line(tmp_path: Path, text: str) -> None:
    line, problem = BAD[text]
    path = tmp_path / "bad.jsonl"
    path.write_text(text)

    with pytest.raises(UnreadableInput) as refused:
        list(ConversationReader(str(path)))

    assert refused.value.line == line
    assert problem in str(refused.value)
    assert "expected OpenAI chat data" in str(refused.value)
    assert str(refused.value).startswith(str(path) if line is None else f"{path}:{line}: ")


def test_bytes_that_are_not_utf8_are_said_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(lines(HELLO).encode() + '{"role": "user", "content": "café"}\n'.encode("latin-1"))

    with pytest.raises(UnreadableInput, match=r"latin\.jsonl:2: not UTF-8"):
        list(ConversationReader(str(path)))


@pytest.mark.parametrize("damage", [slice(0, -9), slice(0, 20)])
def test_damaged_gzip_is_said(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "chat.gz"
    path.write_bytes(gzip.compress(lines(*CHAT * 100).encode())[damage])

    with pytest.raises(UnreadableInput, match="gzip data is damaged"):
        list(ConversationReader(str(path)))


def test_many_conversations_are_read_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(lines({"messages": [{"role": "user", "content": "x" * 20_000}]}) * 200)
    seen: list[int] = []

    conversations = iter(ConversationReader(str(path), seen.append))
    next(conversations)

    assert sum(seen) < path.stat().st_size / 10
    assert sum(1 for _ in conversations) == 199
    assert sum(seen) == path.stat().st_size
