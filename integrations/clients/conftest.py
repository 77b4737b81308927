"""The service with a provider that has a small window, for clients of other projects."""

import asyncio

import pytest

from minutebook.testing import ScriptedModel, call
from tests.service.serving import served

SMALL = """
conversation: {policy: small}
policies:
  small: {manager: token_budget, max_tokens: 900}
"""


def look_up_twice(request):
    """Call a tool twice for every question, then answer."""
    if request.messages[-1]["role"] == "tool":
        return f"Answer to {sum(each['role'] == 'user' for each in request.messages)} questions that I see."
    question_count = len([message for message in request.messages if message["role"] == "user"])
    return call("look_up", at=f"{question_count}a") + call("look_up", at=f"{question_count}b")


@pytest.fixture
def service(tmp_path):
    db = f"sqlite:///{tmp_path / 'chat.db'}"
    model = ScriptedModel(otherwise=look_up_twice)
    with served(model, db=db, config=SMALL, folder=tmp_path, max_context_tokens=1_200) as server:
        yield server


@pytest.fixture
def recorded(service):
    def load(conversation):
        return asyncio.run(service.service.store.load(conversation)).messages

    return load
