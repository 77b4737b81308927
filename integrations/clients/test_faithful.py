"""What the provider receives through the service is what it receives from the client directly.

Each client plays the same conversation twice, with the provider and with the service: 30 turns with an edited message, a
regenerated answer, a changed image and a changed system prompt.
"""

import asyncio
import json
import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from integrations.clients.test_javascript import HERE, HOME, needs_node
from minutebook.service.completions.reconcile import resend_of
from minutebook.testing import LoopbackProvider, ScriptedModel
from tests.service.serving import served

TURNS = 30
NAMED = {"X-Conversation-Id": "c"}


def image(data):
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return [{"type": "text", "text": "What is this?"}, part]


def play(complete):
    """Play the conversation. `complete` sends a history and returns the answer."""
    history = [{"role": "system", "content": "You are brief."}]
    for turn in range(TURNS):
        if turn == 10:
            history[7] = {"role": "user", "content": "An edited question"}
            del history[8:]
        if turn == 20:
            history[11] = {"role": "user", "content": image("BBBB")}
        if turn == 25:
            history[0] = {"role": "system", "content": "You are verbose."}
        history.append({"role": "user", "content": image("AAAA") if turn == 12 else f"Question {turn}"})
        answer = complete(history)
        if turn == 15:
            answer = complete(history)  # regenerated
        history.append({"role": "assistant", "content": answer})


def answer_of(request):
    return f"Answer to {sum(message['role'] == 'user' for message in request.messages)} questions."


@contextmanager
def openai_python(base_url):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=base_url, api_key="none", default_headers=NAMED) as client:
        yield lambda history: client.chat.completions.create(model="m", messages=history).choices[0].message.content


@contextmanager
def openai_javascript(base_url):
    if not HOME.exists() or shutil.which("node") is None:
        pytest.skip(needs_node.kwargs["reason"])
    command = ["node", str(HERE / "complete.mjs"), base_url, NAMED["X-Conversation-Id"]]
    environment = {**os.environ, "OPENAI_HOME": str(HOME)}
    with subprocess.Popen(command, env=environment, text=True, stdin=-1, stdout=-1) as process:

        def complete(history):
            print(json.dumps(history), file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield complete
        process.stdin.close()


@contextmanager
def openai_agents(base_url):
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    openai = pytest.importorskip("openai")
    agents.set_tracing_disabled(disabled=True)

    def item(message):
        if isinstance(message["content"], str):
            return message
        text, picture = message["content"]
        parts = [
            {"type": "input_text", "text": text["text"]},
            {"type": "input_image", "image_url": picture["image_url"]["url"], "detail": "auto"},
        ]
        return {"role": "user", "content": parts}

    async def complete(history):
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", default_headers=NAMED) as client:
            model = agents.OpenAIChatCompletionsModel("m", client)
            agent = agents.Agent("clerk", instructions=history[0]["content"], model=model)
            return (await agents.Runner.run(agent, [item(message) for message in history[1:]])).final_output

    yield lambda history: asyncio.run(complete(history))


@contextmanager
def langchain(base_url):
    module = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    model = module.ChatOpenAI(model="m", base_url=base_url, api_key="none", default_headers=NAMED)
    yield lambda history: model.invoke(history).content


@contextmanager
def pydantic_ai(base_url):
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    openai = pytest.importorskip("openai")
    from pydantic_ai import messages as parts
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def content(message):
        if isinstance(message["content"], str):
            return message["content"]
        text, picture = message["content"]
        return [text["text"], parts.ImageUrl(picture["image_url"]["url"])]

    def model_message(message):
        if message["role"] == "assistant":
            return parts.ModelResponse([parts.TextPart(message["content"])])
        kind = parts.SystemPromptPart if message["role"] == "system" else parts.UserPromptPart
        return parts.ModelRequest([kind(content(message))])

    async def complete(history):
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", default_headers=NAMED) as client:
            agent = pydantic_ai.Agent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)))
            earlier = [model_message(message) for message in history[:-1]]
            return (await agent.run(content(history[-1]), message_history=earlier)).output

    yield lambda history: asyncio.run(complete(history))


CLIENTS = {
    openai_python: "auto",
    openai_javascript: "auto",
    openai_agents: "all",
    langchain: "auto",
    pydantic_ai: "all",
}
"""Client → what the service expects it to send, by its user agent."""


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_the_provider_receives_what_the_client_sent(client):
    with LoopbackProvider(ScriptedModel(otherwise=answer_of)) as provider:
        with client(provider.base_url) as complete:
            play(complete)
        direct = [request.messages for request in provider.requests]
        headers = provider.requests[0].headers
    with served(ScriptedModel(otherwise=answer_of)) as service:
        with client(service.base_url) as complete:
            play(complete)
        received = [request.messages for request in service.provider.requests]

    assert resend_of(headers) == CLIENTS[client], headers["user-agent"]
    assert len(direct) == TURNS + 1
    for number, (sent, got) in enumerate(zip(direct, received, strict=True)):
        assert got == sent, f"request {number}"
