"""The openai-agents SDK, with its own session for OpenAI's conversations, against the service."""

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


async def talk(service, *, streaming):
    agents.set_tracing_disabled(disabled=True)
    async with openai.AsyncOpenAI(base_url=service.base_url, api_key="none") as client:
        model = agents.OpenAIResponsesModel("gpt-4o", client)
        agent = agents.Agent("clerk", instructions="You look things up.", tools=[look_up], model=model)
        session = agents.OpenAIConversationsSession(openai_client=client)
        heard = []
        for turn in range(TURNS):
            asked = f"Question {turn}: " + "word " * 20
            if streaming:
                run = agents.Runner.run_streamed(agent, asked, session=session)
                async for _ in run.stream_events():
                    pass
            else:
                run = await agents.Runner.run(agent, asked, session=session)
            heard += [("user", asked), ("assistant", run.final_output)]
        return await session._get_session_id(), heard


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_an_agent_with_a_conversations_session_has_its_whole_history_kept(service, recorded, streaming):
    conversation, heard = asyncio.run(talk(service, streaming=streaming))
    kept = recorded(conversation)
    assert service.provider.problems == []
    assert not errors(check(kept))
    spoken = [
        (each["role"], each["content"])
        for each in kept
        if each["role"] in {"user", "assistant"} and each.get("content")
    ]
    assert spoken == heard
