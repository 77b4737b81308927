"""google-adk's own Runner, an agent with a tool that answers at length, and a provider that enforces its window."""

import asyncio

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.apigee_llm import ApigeeLlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from minutebook import MemoryStore, ModelInfo
from minutebook.integrations.adk.contents import KEY, messages_of
from minutebook.testing import LoopbackProvider, ScriptedModel, call

WINDOW = 3_000
WHO = {"user_id": "ann", "session_id": "s-1"}
CONVERSATION = "ship/ann/s-1"


def read_log(number: int) -> dict:
    """Reads a page of the ship's log."""
    return {"page": number, "text": f"Page {number}: " + f"the wind was {number} knots, all is well on deck. " * 20}


def pages(*numbers):
    """A step of the model that reads these pages at once."""
    first, *others = (call("read_log", number=number) for number in numbers)
    return sum(others, first)


def reads_many(count=12):
    """Reads a page at a time, and every fourth time three at once."""
    steps = [pages(10 * n, 10 * n + 1, 10 * n + 2) if n % 4 == 3 else pages(10 * n) for n in range(count)]
    return ScriptedModel(*steps, "The log is read.", otherwise="Noted.")


def without_note(message):
    return {key: value for key, value in message.items() if key != KEY}


def recorded(store, conversation=CONVERSATION):
    """What our store has of it, without our notes."""
    loaded = asyncio.run(store.load(conversation))
    return [without_note(message) for message in loaded.messages]


def folds(store, conversation=CONVERSATION):
    return asyncio.run(store.folds(conversation))


class Ship:
    """An agent on google-adk's Runner; every `ask` is one run."""

    def __init__(self, base_url, *plugins, sessions=None, agent=None, run_config=None):
        self.sessions = sessions or InMemorySessionService()
        self.agent = agent or mate(base_url)
        self.run_config = run_config
        app = App(name="ship", root_agent=self.agent, plugins=list(plugins))
        self.runner = Runner(app=app, session_service=self.sessions)

    async def ask(self, text):
        if await self.sessions.get_session(app_name="ship", **WHO) is None:
            await self.sessions.create_session(app_name="ship", **WHO)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        running = self.runner.run_async(new_message=message, run_config=self.run_config, **WHO)
        return [event async for event in running]

    def run(self, *texts):
        async def asked():
            try:
                return [event for text in texts for event in await self.ask(text)]
            finally:
                await self.close()

        return asyncio.run(asked())

    async def close(self):
        await self.runner.close()
        for agent in (self.agent, *self.agent.sub_agents):
            await hung_up(agent)

    def session(self):
        return asyncio.run(self.sessions.get_session(app_name="ship", **WHO))

    def said(self):
        """What the session's own events say, in their order."""
        said = [message for event in self.session().events if event.content for message in messages_of(event.content)]
        return [without_note(message) for message in said]


async def hung_up(agent):
    """google-adk leaves the connections of this model open, and has no other way to close them."""
    if isinstance(agent, LlmAgent):
        await agent.model._completions_http_client.aclose()
        del agent.model._completions_http_client


def mate(base_url, **options):
    model = ApigeeLlm(model="apigee/openai/gpt-4o", proxy_url=base_url)
    given = {"name": "mate", "instruction": "You read the ship's log.", "tools": [read_log], **options}
    return LlmAgent(model=model, **given)


@pytest.fixture
def provider():
    with LoopbackProvider(reads_many(), max_context_tokens=WINDOW) as running:
        yield running


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def model():
    return ModelInfo("gpt-4o", max_input_tokens=WINDOW)
