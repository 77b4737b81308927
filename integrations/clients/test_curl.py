"""Requests with curl, streamed and not."""

import json
import shutil
import subprocess

import pytest

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
TURNS = 20


def curl(service, body):
    command = ["curl", "-sSN", "--fail-with-body", f"{service.base_url}/chat/completions"]
    headers = ["-H", "Content-Type: application/json", "-H", "X-Conversation-Id: by-curl", "-d", json.dumps(body)]
    process = subprocess.run([*command, *headers], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def ask(service, body, *, stream):
    answer = curl(service, {**body, "stream": stream})
    if not stream:
        return json.loads(answer)["choices"][0]["message"]
    lines = [line[6:] for line in answer.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    calls = [{**call, "index": None} for delta in deltas for call in delta.get("tool_calls") or () if call.get("id")]
    message = {"role": "assistant", "content": "".join(delta.get("content") or "" for delta in deltas) or None}
    return message if not calls else {**message, "tool_calls": calls}


@needs_curl
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_sending_only_the_new_messages_is_enough(service, recorded, stream):
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
    for turn in range(TURNS):
        new = [{"role": "user", "content": f"Question {turn}"}]
        while new:
            answer = ask(service, {"model": "gpt-4o", "messages": new, "tools": tools}, stream=stream)
            new = [
                {"role": "tool", "tool_call_id": call["id"], "content": "Found."}
                for call in answer.get("tool_calls") or ()
            ]
    messages = recorded("by-curl")
    assert [message["content"] for message in messages if message["role"] == "user"] == [
        f"Question {turn}" for turn in range(TURNS)
    ]
    assert len(messages) == TURNS * 5
    assert service.provider.problems == []
