"""One real model for the whole test run, and the official clients for it."""

import anthropic
import openai
import pytest

from minutebook.testing import CALLING_TEMPLATE, LocalModel


@pytest.fixture(scope="session")
def local():
    """The model with its own template, which ignores tools: it answers with text."""
    with LocalModel() as model:
        yield model


@pytest.fixture(scope="session")
def tool_model():
    """The model with a template that lists the tools: with `tool_choice="required"` it calls one."""
    with LocalModel(chat_template=CALLING_TEMPLATE) as model:
        yield model


@pytest.fixture(scope="session")
def openai_client(local):
    with openai.OpenAI(base_url=local.base_url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def anthropic_client(local):
    with anthropic.Anthropic(base_url=local.anthropic_url, api_key="any", max_retries=0) as client:
        yield client
