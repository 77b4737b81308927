"""google-adk's Runner, an agent with a tool that returns long results, and a provider with a small context window."""

import asyncio

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.apigee_llm import ApigeeLlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from minutebook import MemoryStore, ModelInfo
from minutebook.integrations.adk.contents import ADK_KEY, messages_of
from minutebook.testing import LoopbackProvider, ScriptedModel, call

WINDOW = 3_000
SESSION_KEYS = {"user_id": "ann", "session_id": "s-1"}
CONVERSATION = "ship/ann/s-1"


def read_log(number: int) -> dict:
    """Reads a page of the ship's log."""
    return {"page": number, "text": f"Page {number}: " + f"the wind was {number} knots, all is well on deck. " * 20}


def pages(*numbers):
    """A step of the model that reads these pages in parallel calls."""
    first, *others = (call("read_log", number=number) for number in numbers)
    return sum(others, first)


def reading_script(count=12):
    """A model that reads one page per step, and three in every fourth step."""
    steps = [pages(10 * n, 10 * n + 1, 10 * n + 2) if n % 4 == 3 else pages(10 * n) for n in range(count)]
    return ScriptedModel(*steps, "The log is read.", otherwise="Noted.")


def without_extension(message):
    return {key: value for key, value in message.items() if key != ADK_KEY}


def recorded(store, conversation=CONVERSATION):
    """The messages in the store, without google-adk's data."""
    loaded = asyncio.run(store.load(conversation))
    return [without_extension(message) for message in loaded.messages]


def folds(store, conversation=CONVERSATION):
    return asyncio.run(store.folds(conversation))


class RunnerHarness:
    """Runs an agent with google-adk's Runner; every `ask` is one run."""

    def __init__(self, base_url, *plugins, sessions=None, agent=None, run_config=None):
        self.sessions = sessions or InMemorySessionService()
        self.agent = agent or log_reader(base_url)
        self.run_config = run_config
        app = App(name="ship", root_agent=self.agent, plugins=list(plugins))
        self.runner = Runner(app=app, session_service=self.sessions)

    async def ask(self, text):
        if await self.sessions.get_session(app_name="ship", **SESSION_KEYS) is None:
            await self.sessions.create_session(app_name="ship", **SESSION_KEYS)
        message = types.Content(role="user", parts=[types.Part(text=text)])
        events = self.runner.run_async(new_message=message, run_config=self.run_config, **SESSION_KEYS)
        return [event async for event in events]

    def run(self, *texts):
        async def ask_all():
            try:
                return [event for text in texts for event in await self.ask(text)]
            finally:
                await self.close()

        return asyncio.run(ask_all())

    async def close(self):
        await self.runner.close()
        for agent in (self.agent, *self.agent.sub_agents):
            await close_connections(agent)

    def session(self):
        return asyncio.run(self.sessions.get_session(app_name="ship", **SESSION_KEYS))

    def session_messages(self):
        """The messages of the session's events, in order."""
        messages = [
            message for event in self.session().events if event.content for message in messages_of(event.content)
        ]
        return [without_extension(message) for message in messages]


async def close_connections(agent):
    """Close the model's connections: google-adk leaves them open and has no public way to close them."""
    if isinstance(agent, LlmAgent):
        await agent.model._completions_http_client.aclose()
        del agent.model._completions_http_client


def log_reader(base_url, **options):
    model = ApigeeLlm(model="apigee/openai/gpt-4o", proxy_url=base_url)
    settings = {"name": "mate", "instruction": "You read the ship's log.", "tools": [read_log], **options}
    return LlmAgent(model=model, **settings)


@pytest.fixture
def provider():
    with LoopbackProvider(reading_script(), max_context_tokens=WINDOW) as provider_server:
        yield provider_server


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def model():
    return ModelInfo("gpt-4o", max_input_tokens=WINDOW)
