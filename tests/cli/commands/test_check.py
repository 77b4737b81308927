import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Chat, Run


def test_a_whole_conversation_ends_with_0(run: Run, whole: Chat) -> None:
    result = run("check", "-", stdin=json.dumps(whole))

    assert result.exit_code == 0
    assert result.stdout == "1 conversation, 6 messages: nothing that openai would reject\n"


def test_findings_name_conversation_message_and_call(run: Run, whole: Chat, broken: Chat) -> None:
    result = run("check", "-", stdin=f"{json.dumps(whole)}\n{json.dumps({'id': 'x', 'messages': broken})}\n")

    assert result.exit_code == 6
    assert result.stdout.splitlines() == [
        "conversation 1, line 2, id 'x'",
        "  error    line 2, messages[2]: a tool call has no result ('a')",
        "  error    line 2, messages[5]: a tool result answers no call ('zzz')",
        "2 conversations, 12 messages: 2 errors and 0 warnings in 1 conversation by the rules of openai",
    ]


def test_warnings_alone_end_with_0(run: Run, odd: Chat) -> None:
    result = run("check", "-", stdin=json.dumps(odd))

    assert result.exit_code == 0
    assert "  warning  message 0: the first message" in result.stdout


def test_the_provider_decides_what_is_an_error(run: Run, odd: Chat) -> None:
    assert run("check", "-", "--provider", "anthropic", stdin=json.dumps(odd)).exit_code == 6
    assert run("check", "-", "--provider", "openai", stdin=json.dumps(odd)).exit_code == 0


def test_all_means_any_provider_and_says_which(run: Run, odd: Chat) -> None:
    result = run("check", "-", "--provider", "all", stdin=json.dumps(odd))

    assert result.exit_code == 6
    assert "[anthropic, gemini]" in result.stdout


def test_quiet_prints_the_summary_only(run: Run, broken: Chat) -> None:
    result = run("check", "-", "--quiet", stdin=json.dumps(broken))

    assert result.exit_code == 6
    assert len(result.stdout.splitlines()) == 1


def test_json_lists_what_was_found(run: Run, whole: Chat, broken: Chat) -> None:
    result = run("check", "-", "--json", stdin=f"{json.dumps(whole)}\n{json.dumps({'id': 'x', 'messages': broken})}\n")

    told = json.loads(result.stdout)
    assert result.exit_code == 6
    assert told["summary"] == {"conversations": 2, "messages": 12, "with_findings": 1, "errors": 2, "warnings": 0}
    (conversation,) = told["conversations"]
    assert (conversation["index"], conversation["id"], conversation["line"]) == (1, "x", 2)
    assert [(f["kind"], f["message"], f["call_id"], f["severity"]) for f in conversation["findings"]] == [
        ("dangling_call", 2, "a", "error"),
        ("orphan_result", 5, "zzz", "error"),
    ]


OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "packed"}
RESPONSE = {"functionResponse": {"name": "find_order", "response": {"output": "packed"}}}
CONTENTS = [{"role": "user", "parts": [RESPONSE]}]


@pytest.mark.parametrize(
    ("complete", "continued"),
    [
        ({"input": [OUTPUT]}, {"input": [OUTPUT], "previous_response_id": "resp_1"}),
        ({"input": [OUTPUT]}, {"input": [OUTPUT], "conversation": "conv_1"}),
        ({"input": [OUTPUT]}, {"input": [{"type": "item_reference", "id": "fc_1"}, OUTPUT]}),
        ({"contents": CONTENTS}, {"contents": CONTENTS, "cachedContent": "cachedContents/1"}),
    ],
)
def test_results_of_calls_that_the_provider_has_are_valid(
    run: Run, complete: dict[str, Any], continued: dict[str, Any]
) -> None:
    assert run("check", "-", stdin=json.dumps(continued)).exit_code == 0
    assert run("repair", "-", stdin=json.dumps(continued)).stdout == json.dumps(continued)
    assert run("check", "-", stdin=json.dumps(complete)).exit_code == 6


def test_a_lone_surrogate_in_an_id_does_not_stop_the_report(run: Run) -> None:
    text = '[{"role": "user", "content": "\\ud800"}, {"role": "tool", "tool_call_id": "\\udfff", "content": ""}]'

    plain, as_json = run("check", "-", stdin=text), run("check", "-", "--json", stdin=text)

    assert plain.exit_code == as_json.exit_code == 6
    findings = json.loads(as_json.stdout)["conversations"][0]["findings"]
    assert [(finding["kind"], finding["call_id"]) for finding in findings] == [
        ("bad_text", None),
        ("orphan_result", "\udfff"),
        ("bad_text", None),
    ]


def test_a_line_that_cannot_be_read_is_reported_with_the_findings(run: Run, broken: Chat, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{json.dumps(broken)}\n{json.dumps(broken)}\n[oops\n")

    result = run("check", path)

    assert result.exit_code == 6
    assert "conversation 1, line 2" in result.stdout
    assert result.stderr.startswith(f"skipped {path}: line 3: not JSON")
    assert json.loads(run("check", path, "--json").stdout)["skipped"][0]["place"] == "line 3"


def test_a_field_that_is_nested_too_deep_is_invalid_input(run: Run) -> None:
    chat = '[{"role": "user", "content": "q", "metadata": ' + "[" * 900 + "]" * 900 + "}]"

    for command in (
        ("check", "-"),
        ("repair", "-"),
        ("tokens", "-"),
        ("view", "-"),
        ("convert", "-", "--to", "anthropic"),
    ):
        result = run(*command, stdin=chat)

        assert result.exit_code in {0, 5}, command
        assert "internal error" not in result.stderr
