"""OpenAI's JavaScript client, with another `baseURL`."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from minutebook import check
from minutebook.record.finding import errors

HERE = Path(__file__).parent
HOME = HERE.parent.parent / ".node" / "package.json"
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not HOME.exists(), reason="node or its package openai is not installed"
)
TURNS = 20


def run_client(service, kind, conversation="order-17"):
    command = ["node", str(HERE / "client.mjs"), service.base_url, kind, conversation, str(TURNS)]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OPENAI_HOME": str(HOME)}, check=False
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def texts(messages):
    return [(message["role"], message.get("content") or None) for message in messages]


@needs_node
@pytest.mark.parametrize("kind", ["chat", "chat-stream"])
def test_chat_completions_store_the_whole_history_with_a_small_window(service, recorded, kind):
    history = run_client(service, kind)
    assert service.provider.problems == []
    assert texts(recorded("order-17")) == texts(history)
    assert len(service.provider.requests) == 2 * TURNS
    assert max(len(request.messages) for request in service.provider.requests) < len(history) / 2


@needs_node
@pytest.mark.parametrize("kind", ["responses", "responses-stream"])
def test_responses_of_a_conversation_store_the_whole_history_with_a_small_window(service, recorded, kind):
    result = run_client(service, kind)
    messages = recorded(result["conversation"])
    assert service.provider.problems == []
    assert not errors(check(messages))
    stored = [(role, text) for role, text in texts(messages) if role != "assistant" or text]
    assert stored == texts(result["messages"])
    assert len(service.provider.requests) == 2 * TURNS
