"""Detection where several formats could read a file: evidence decides, or the file is refused by name."""

import json
from typing import Any

import pytest

from bench import corpus as corpus_files
from minutebook.formats import Source, convert, detect, formats, read
from tests.formats.samples import SAMPLES, as_lines
from tests.transcripts import needs_corpus

REQUEST = {
    "model": "claude-opus-4-5",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
}
LISTS = [
    name
    for name, (format_name, content) in SAMPLES.items()
    if formats()[format_name].kind == "json" and (content.startswith(b"[") or content.count(b"\n") > 1)
]


@pytest.mark.parametrize(
    "fields",
    [
        {"system": "SYS"},
        {"system": None},
        {"stop_sequences": ["x"]},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
    ],
)
def test_a_request_without_tool_blocks_is_in_the_format_that_has_its_fields(fields: dict[str, Any]) -> None:
    models = ["claude-opus-4-5", *([] if "thinking" in fields else ["another-model"])]  # other servers have it too
    for model in models:
        assert detect(json.dumps({**REQUEST, **fields, "model": model}).encode()).name == "anthropic"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"messages": [{"role": "system", "content": "SYS"}, *REQUEST["messages"]]},  # type: ignore[misc]
    ],
)
def test_a_chat_request_for_a_claude_model_is_chat(fields: dict[str, Any]) -> None:
    assert detect(json.dumps({**REQUEST, **fields}).encode()).name == "openai-chat"


@pytest.mark.parametrize("fields", [{"name": "bob"}, {"id": "m1"}, {"timestamp": "2026-03-01"}, {"phase": "x"}])
def test_messages_with_only_texts_and_other_fields_are_chat(fields: dict[str, Any]) -> None:
    messages = [{**message, **fields} for message in REQUEST["messages"]]  # type: ignore[dict-item,attr-defined]
    (conversation,) = read(json.dumps(messages).encode())

    assert (conversation.format, conversation.messages) == ("openai-chat", messages)
    assert detect(as_lines(messages)).name == "openai-chat"


def test_the_system_prompt_of_an_anthropic_request_is_read() -> None:
    (conversation,) = read(json.dumps({**REQUEST, "system": "SYS"}).encode())

    assert conversation.messages[0] == {"role": "system", "content": "SYS"}
    assert convert(conversation, "openai-chat").value["messages"][0]["content"] == "SYS"


@needs_corpus
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("raw_anthropic", "anthropic"),
        ("raw_responses", "openai-responses"),
        ("raw_gemini", "gemini"),
        ("provider_recordings", "openai-chat"),
    ],
)
def test_every_record_of_the_corpus_has_the_right_format(file: str, name: str) -> None:
    folder = corpus_files.folder()
    assert folder is not None
    lines = Source(folder / f"{file}.jsonl.gz").values()

    assert {detect(json.dumps(line.data).encode()).name for line in lines} == {name}


@pytest.mark.parametrize("sample", LISTS)
def test_foreign_lines_at_the_beginning_are_skipped(sample: str) -> None:
    name, content = SAMPLES[sample]
    values = json.loads(content) if content.startswith(b"[") else list(map(json.loads, content.splitlines()))
    source = Source(as_lines([{"hello": "world"}] * 10 + values))

    messages = [conversation.messages for conversation in read(source)]

    assert detect(source).name == name
    assert messages == [conversation.messages for conversation in read(content)]
    assert [part.place for part in source.skipped] == [f"line {number}" for number in range(1, 11)]
