"""The service in front of a provider with a small window, for clients that are not ours."""

import asyncio

import pytest

from minutebook.testing import ScriptedModel, call
from tests.service.serving import served

SMALL = """
conversation: {policy: small}
policies:
  small: {manager: token_budget, max_tokens: 900}
"""


def looking(request):
    """Looks two things up for every question, then answers."""
    if request.messages[-1]["role"] == "tool":
        return f"Answer to {sum(each['role'] == 'user' for each in request.messages)} questions that I see."
    asked = len([each for each in request.messages if each["role"] == "user"])
    return call("look_up", at=f"{asked}a") + call("look_up", at=f"{asked}b")


@pytest.fixture
def service(tmp_path):
    db = f"sqlite:///{tmp_path / 'chat.db'}"
    model = ScriptedModel(otherwise=looking)
    with served(model, db=db, config=SMALL, folder=tmp_path, max_context_tokens=1_200) as here:
        yield here


@pytest.fixture
def recorded(service):
    def load(conversation):
        return asyncio.run(service.service.store.load(conversation)).messages

    return load
