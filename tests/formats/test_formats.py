"""Every format: detection, reading, damaged and mixed files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from minutebook import check
from minutebook.errors import InvalidSetting, UnreadableInput
from minutebook.formats import Source, convert, detect, format_named, formats, read
from minutebook.record.message import call_ids, call_names, text_of
from tests.formats.samples import ANSWER, CITY, QUESTION, RESULT, SAMPLES, WITHOUT_TOOLS

CALL_MARKS = (b'"tool_calls"', b'"tool_use"', b'"function_call"', b'"toolUse"')
"""Each marks one call in the samples of related formats."""
BOM = b"\xef\xbb\xbf"
JSON_SAMPLES = [name for name, (format_name, _) in SAMPLES.items() if formats()[format_name].kind == "json"]
LINES = [name for name in JSON_SAMPLES if SAMPLES[name][1].count(b"\n") > 1]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_file_is_detected_by_its_content(sample: str) -> None:
    name, content = SAMPLES[sample]

    assert detect(content).name == name
    assert detect(gzip.compress(content)).name == name
    if formats()[name].kind != "sqlite":
        assert detect(BOM + content).name == name


def test_every_format_has_a_sample() -> None:
    assert {name for name, _ in SAMPLES.values()} == set(formats())


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_conversation_of_every_format_is_read_completely(sample: str) -> None:
    name, content = SAMPLES[sample]
    source = Source(content)
    conversation = next(read(source))
    messages = [message for message in conversation.messages if message["role"] != "system"]

    assert source.skipped == []
    assert [text_of(message) for message in messages if message["role"] == "user"] == [QUESTION]
    assert text_of(messages[-1]) == ANSWER
    if sample not in WITHOUT_TOOLS:
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
        assert call_names(messages[1]) == ["find_order"]
        assert json.loads(messages[1]["tool_calls"][0]["function"]["arguments"]) == CITY
        assert text_of(messages[2]) == RESULT
    assert check(conversation.messages, provider=formats()[name].provider) == []
    assert all(item.place for item in conversation.items)


@pytest.mark.parametrize("sample", JSON_SAMPLES)
def test_no_other_format_reads_a_file_silently(sample: str) -> None:
    """The confusion matrix: a format that is named by mistake refuses the file, or reports what it skipped."""
    name, content = SAMPLES[sample]
    related = {
        "openai-chat",
        "anthropic",
        "openai-responses",
        "bedrock",
        "swe-agent",
    }  # texts without calls are the same
    for other, candidate in formats().items():
        if other == name or candidate.kind != "json" or {name, other} <= related:
            continue
        source = Source(content)
        try:
            conversations = list(read(source, other))
        except UnreadableInput:
            continue
        assert source.skipped, f"{other} read {len(conversations)} conversations of {name}"


@pytest.mark.parametrize("sample", JSON_SAMPLES)
def test_a_truncated_file_keeps_its_format_or_is_refused(sample: str) -> None:
    name, content = SAMPLES[sample]
    for share in (0.3, 0.6, 0.9, 0.99):
        source_bytes = content[: int(len(content) * share)]
        source = Source(source_bytes)
        try:
            found = detect(source).name
            conversations = list(read(source))
        except UnreadableInput:
            continue
        assert found == name or {found, name} <= {"openai-chat", "anthropic", "openai-responses", "gemini"}
        assert source.skipped or sum(len(conversation.items) for conversation in conversations) <= 10


@pytest.mark.parametrize("sample", LINES)
def test_lines_of_another_format_are_reported(sample: str) -> None:
    name, content = SAMPLES[sample]
    foreign = b'{"type": "thread.unknown", "payload_of": "another program"}\n'
    source = Source(content.rstrip(b"\n") + b"\n" + foreign * 10)

    assert detect(source).name == name
    list(read(source))
    assert len(source.skipped) == 10
    first = len(content.splitlines()) + 1
    assert source.skipped[0].place == f"line {first}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"  \n",
        b"plain text",
        b'{"a": 1}',
        b"[1, 2]",
        b'[{"role": "robot", "content": "x"}]',
        b"SQLite format 3\x00",
        b"\x1f\x8b damaged",
    ],
)
def test_a_file_in_no_known_format_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableInput):
        list(read(content))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[", "is incomplete: it ends before the first element; copy the file again"),
        ("[{}", "is incomplete: it ends after element 0; copy the file again"),
        ("[{}, {},", "is incomplete: it ends after element 1; copy the file again"),
        ("[{}, {", "is incomplete: it ends within element 1; copy the file again"),
        ("[{} {}]", "not JSON (expected ',' or ']' after element 0); expected JSON"),
        ("[\n{}\n]\n[\n{}\n]\n", "not JSON (text after the end of the array); expected JSON"),
        ("[{}]}", "not JSON (text after the end of the array); expected JSON"),
    ],
)
def test_the_refusal_of_a_damaged_array_says_where_it_is_damaged(content: str, problem: str) -> None:
    with pytest.raises(UnreadableInput) as refused:
        list(Source(content.encode()).values())

    assert refused.value.problem.startswith(problem)


def _sqlite_sample() -> tuple[str, bytes]:
    return next((name, content) for name, content in SAMPLES.values() if formats()[name].kind == "sqlite")


@pytest.mark.parametrize("file_name", ["a#b.db", "a?b.db", "a%20b.db", "a b.db"])
def test_a_database_is_read_whatever_its_file_is_called(tmp_path: Path, file_name: str) -> None:
    name, content = _sqlite_sample()
    (tmp_path / file_name).write_bytes(content)

    assert detect(tmp_path / file_name).name == name
    assert [path.name for path in tmp_path.iterdir()] == [file_name]


def test_a_database_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["x" * 250] * 3)  # SQLite opens no path of more than 512 bytes
    folder.mkdir(parents=True)
    (folder / "chat.db").write_bytes(_sqlite_sample()[1])

    with pytest.raises(UnreadableInput, match="the SQLite database cannot be read"):
        detect(folder / "chat.db")


@pytest.mark.parametrize("sample", [name for name, sample in SAMPLES.items() if formats()[sample[0]].kind != "sqlite"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_every_byte_of_a_file_is_counted_while_it_is_read(
    tmp_path: Path, sample: str, compress: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(compress(SAMPLES[sample][1]))
    counts: list[int] = []

    conversations = list(read(Source(path, advance=counts.append)))

    assert [conversation.messages for conversation in conversations] == [
        conversation.messages for conversation in read(SAMPLES[sample][1])
    ]
    assert sum(counts) == path.stat().st_size


def test_the_refusal_says_what_was_seen_and_what_is_supported() -> None:
    with pytest.raises(UnreadableInput) as refused:
        detect(b'{"threads": []}')

    assert "an object with the keys 'threads'" in str(refused.value)
    assert "claude-code" in str(refused.value)
    assert "--from" in str(refused.value)


def test_an_unknown_format_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidSetting, match="did you mean claude-code"):
        format_named("claude_code")


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("target", [name for name, known in formats().items() if known.write is not None])
def test_a_conversation_in_another_format_is_detected_and_read_again(sample: str, target: str) -> None:
    conversation = next(read(SAMPLES[sample][1]))
    converted = convert(conversation, target)
    again = next(read(json.dumps(converted.value).encode(), target))

    assert [text_of(message) for message in again.messages if message["role"] != "system"][-1] == ANSWER
    if sample not in WITHOUT_TOOLS:
        assert [call_names(message) for message in again.messages if message.get("tool_calls")] == [["find_order"]]
        assert check(again.messages, provider=formats()[target].provider) == []


def test_branches_of_a_tree_are_conversations_of_their_own() -> None:
    first, second = read(SAMPLES["chatgpt export"][1])

    assert (first.id, first.branch_of) == ("chat-1", None)
    assert second.branch_of == "chat-1"
    assert text_of(second.messages[-1]) == "I do not know."
    assert first.messages[:3] == second.messages[:3]


def test_a_claude_code_message_in_several_lines_is_one_message_with_its_usage() -> None:
    (conversation,) = read(SAMPLES["claude code session"][1])

    assert conversation.id == "s-1"
    assert conversation.title == "Find an order"
    assert conversation.model == "claude-opus-4-6"
    assert conversation.items[1].usage is not None
    assert conversation.items[1].message["anthropic_blocks"][0]["type"] == "thinking"
    assert conversation.items[1].place == "line 3"


def test_the_usage_of_a_codex_turn_belongs_to_its_answer() -> None:
    (conversation,) = read(SAMPLES["codex session"][1])

    assert conversation.items[-1].usage is not None
    assert conversation.items[-1].usage["input_tokens_details"] == {"cached_tokens": 5}
    assert conversation.model == "gpt-5"


def _damaged(content: bytes) -> dict[str, bytes]:
    return {
        "with a byte order mark": BOM + content,
        "gzipped": gzip.compress(content),
        "gzipped with a byte order mark": gzip.compress(BOM + content),
        "truncated": content[: len(content) * 2 // 3],
        "gzipped and truncated": gzip.compress(content)[:-20],
    }


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_damaged_file_has_its_format_or_is_refused(sample: str) -> None:
    name, content = SAMPLES[sample]
    related = {
        "openai-chat",
        "anthropic",
        "openai-responses",
        "gemini",
        "bedrock",
    }  # a part may show less of its format
    for damage, data in _damaged(content).items():
        if formats()[name].kind == "sqlite" and "byte order" in damage:
            continue
        try:
            source = Source(data)
            detected = detect(source).name
            conversations = list(read(source))
        except UnreadableInput as error:
            assert "truncated" in damage, (damage, error)
            continue
        assert detected == name or {detected, name} <= related, damage
        if "truncated" not in damage:
            assert [conversation.messages for conversation in conversations] == [
                conversation.messages for conversation in read(content)
            ]


@pytest.mark.parametrize("sample", JSON_SAMPLES)
@pytest.mark.parametrize("other", LINES)
def test_ten_lines_of_another_format_are_never_read_silently(sample: str, other: str) -> None:
    name, content = SAMPLES[sample]
    other_name, other_content = SAMPLES[other]
    related = {"openai-chat", "anthropic", "openai-responses", "bedrock", "swe-agent"}  # texts are the same in these
    if name == other_name:
        return
    foreign = (other_content.splitlines() * 10)[:10]
    source = Source(b"\n".join([content.rstrip(b"\n"), *foreign]) + b"\n")
    try:
        detected = detect(source).name
        messages = [message for conversation in read(source) for message in conversation.messages]
    except UnreadableInput:
        return

    assert detected in {name, other_name}
    if {name, other_name} <= related:
        calls = sum(line.count(mark) for line in [content, *foreign] for mark in CALL_MARKS)
        assert source.skipped or sum(map(len, map(call_names, messages))) == calls
    else:
        assert source.skipped


@pytest.mark.parametrize("target", ["openai-responses", "anthropic", "gemini", "langchain"])
def test_a_call_without_an_id_gets_the_same_new_id_in_every_format(target: str) -> None:
    arguments = {"type": "function", "function": {"name": "find_order", "arguments": '{"number": 17}'}}
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [arguments, {**arguments, "id": "call_1_0"}, arguments]},
        {"role": "tool", "content": RESULT},
        {"role": "tool", "tool_call_id": "call_1_0", "content": "found"},
        {"role": "tool", "content": "lost"},
        {"role": "assistant", "content": ANSWER},
    ]
    (conversation,) = read(json.dumps({"messages": messages}).encode())

    converted = convert(conversation, target)
    (again,) = read(json.dumps(converted.value).encode(), target)

    assert check(again.messages, provider=formats()[target].provider) == []
    results = {message["tool_call_id"]: text_of(message) for message in again.messages if message["role"] == "tool"}
    assert [results[call_id] for call_id in call_ids(again.messages[1])] == [RESULT, "found", "lost"]
    assert "message 1: call 0 had no id and has the new id 'call_1_0_'" in converted.lost
    assert "message 1: call 2 had no id and has the new id 'call_1_2'" in converted.lost
    assert convert(conversation, target) == converted
