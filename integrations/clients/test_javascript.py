"""OpenAI's JavaScript client, unmodified but for its `baseURL`."""

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


def talk(service, kind, conversation="order-17"):
    command = ["node", str(HERE / "talk.mjs"), service.base_url, kind, conversation, str(TURNS)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, "OPENAI_HOME": str(HOME)}, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def texts(messages):
    return [(each["role"], each.get("content") or None) for each in messages]


@needs_node
@pytest.mark.parametrize("kind", ["chat", "chat-stream"])
def test_chat_completions_keep_the_whole_history_within_a_small_window(service, recorded, kind):
    history = talk(service, kind)
    assert service.provider.problems == []
    assert texts(recorded("order-17")) == texts(history)
    assert len(service.provider.requests) == 2 * TURNS
    assert max(len(request.messages) for request in service.provider.requests) < len(history) / 2


@needs_node
@pytest.mark.parametrize("kind", ["responses", "responses-stream"])
def test_responses_of_a_conversation_keep_the_whole_history_within_a_small_window(service, recorded, kind):
    made = talk(service, kind)
    kept = recorded(made["conversation"])
    assert service.provider.problems == []
    assert not errors(check(kept))
    spoken = [(role, text) for role, text in texts(kept) if role != "assistant" or text]
    assert spoken == texts(made["heard"])
    assert len(service.provider.requests) == 2 * TURNS
