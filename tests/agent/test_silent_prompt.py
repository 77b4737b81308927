"""A prompt with tools and an empty text."""

import asyncio

import pytest

from minutebook import Session, Transcript
from minutebook.agent.prompt_message import text_prompt
from minutebook.testing import LoopbackProvider, ScriptedModel
from tests.agent.parts import READ, open_adapter, roles_and_texts

BEFORE = {
    "nothing": [],
    "a question": [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Yes?"}],
    "other instructions": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}],
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_an_empty_prompt_adds_no_message_and_changes_none(before):
    async def main():
        with LoopbackProvider(ScriptedModel("Done.")) as provider, Session() as session:
            async with open_adapter(provider) as adapter:
                prompt = text_prompt("chat", "", [READ])
                await adapter.evaluate(prompt, session=session, request="Go on.", conversation=Transcript(before))
            return provider.requests[0], roles_and_texts(session)

    request, messages = asyncio.run(main())
    assert [message["content"] for message in request.messages] == [
        *(message["content"] for message in before),
        "Go on.",
    ]
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["read"]
    assert messages == [("user", "Go on."), ("assistant", "Done.")]
