"""The openai-agents SDK with its session for OpenAI's conversations, against the service."""

import asyncio

import pytest

from minutebook import check
from minutebook.record.finding import errors

agents = pytest.importorskip("agents", reason="openai-agents is not installed")
openai = pytest.importorskip("openai")
TURNS = 20


@agents.function_tool
def look_up(at: str) -> str:
    """Look something up.

    Args:
        at: Where.
    """
    return f"Found {at}. " + "fact " * 40


async def run_conversation(service, *, streaming):
    agents.set_tracing_disabled(disabled=True)
    async with openai.AsyncOpenAI(base_url=service.base_url, api_key="none") as client:
        model = agents.OpenAIResponsesModel("gpt-4o", client)
        agent = agents.Agent("clerk", instructions="You look things up.", tools=[look_up], model=model)
        session = agents.OpenAIConversationsSession(openai_client=client)
        expected = []
        for turn in range(TURNS):
            question = f"Question {turn}: " + "word " * 20
            if streaming:
                run = agents.Runner.run_streamed(agent, question, session=session)
                async for _ in run.stream_events():
                    pass
            else:
                run = await agents.Runner.run(agent, question, session=session)
            expected += [("user", question), ("assistant", run.final_output)]
        return await session._get_session_id(), expected


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_an_agent_with_a_conversations_session_has_its_whole_history_stored(service, recorded, streaming):
    conversation, expected = asyncio.run(run_conversation(service, streaming=streaming))
    messages = recorded(conversation)
    assert service.provider.problems == []
    assert not errors(check(messages))
    texts = [
        (message["role"], message["content"])
        for message in messages
        if message["role"] in {"user", "assistant"} and message.get("content")
    ]
    assert texts == expected
