"""A summarizer that keeps failing is not called for a while, whoever calls: a handle, a run, or the service."""

import asyncio
import gc
from datetime import UTC, datetime, timedelta

import pytest

from minutebook import Conversation, MemoryStore
from minutebook.agent import ModelReply
from minutebook.conversation import AsyncConversation
from minutebook.testing import ScriptedModel, fail, say
from tests.agent.parts import InProcessAdapter
from tests.service.serving import served
from tests.service.test_tenants import bearer, keys_for


class UnreliableSummarizer:
    """Raises, unless it has a text."""

    def __init__(self):
        self.calls, self.text = 0, None

    async def summarize(self, request):
        self.calls += 1
        if self.text is None:
            raise RuntimeError("no model today")
        return self.text


@pytest.fixture
def wait(monkeypatch):
    """Lets time pass for circuit breakers."""
    passed = [timedelta(0)]
    monkeypatch.setattr("minutebook.compaction.manager.now", lambda: datetime.now(UTC) + passed[0])

    def wait(minutes):
        passed[0] += timedelta(minutes=minutes)

    return wait


def test_a_handle_stops_calling_a_failing_summarizer_and_tries_again_after_a_delay(wait):
    summarizer = UnreliableSummarizer()
    with Conversation("a", strategy="summarize", summarizer=summarizer, max_tokens=1_000) as chat:

        def talk(views):
            for number in range(views):
                chat.append(f"Question {number}: " + "why " * 60)
                assert chat.view().tokens <= 1_000
                chat.fit()  # calls no summarizer, and does not close the circuit
                chat.append({"role": "assistant", "content": "Because. " * 60})
            return summarizer.calls

        assert talk(40) == 3
        wait(minutes=4)
        assert talk(10) == 3
        wait(minutes=1)
        assert talk(40) == 4, "one call, which fails"
        wait(minutes=5)
        summarizer.text = "They talked about reasons."
        assert talk(40) > 6, "it works again, so it is called whenever it is due"


def test_runs_and_views_of_a_handle_share_the_failures(wait):
    summarizer = UnreliableSummarizer()

    async def scenario():
        async with MemoryStore() as store:
            chat = AsyncConversation("a", store=store, strategy="summarize", summarizer=summarizer, max_tokens=1_000)
            for number in range(30):
                answer = {"role": "assistant", "content": "Because. " * 60}
                await chat.run(InProcessAdapter(ModelReply(answer)), f"Question {number}: " + "why " * 60)
                await chat.view()

    asyncio.run(scenario())

    assert summarizer.calls == 3


SUMMARIES = """
conversation: {policy: summaries}
policies:
  summaries: {strategy: summarize, max_tokens: 1000, model: gpt-4o-mini}
"""


def test_the_service_stops_calling_a_failing_summary_model_and_tries_again_after_a_delay(wait, tmp_path):
    calls, summary, histories = [], [], {}

    def answer(request):
        if request.model != "gpt-4o-mini":
            return say("Because. " * 60)
        calls.append(request)
        return say(summary[0]) if summary else fail(400, "no model today")

    with served(ScriptedModel(otherwise=answer), config=SUMMARIES, folder=tmp_path) as here:
        client = here.client()

        def talk(conversation, turns):
            history = histories.setdefault(conversation, [])
            for number in range(turns):
                history.append({"role": "user", "content": f"Question {number}: " + "why " * 60})
                reply = client.chat.completions.create(
                    model="gpt-4o", messages=history, extra_headers={"X-Conversation-Id": conversation}
                )
                history.append({"role": "assistant", "content": reply.choices[0].message.content})
            return len(calls)

        assert talk("one", 12) == 3
        assert talk("two", 12) == 3, "conversations of one policy share the failures"
        wait(minutes=5)
        assert talk("two", 12) == 4, "one call, which fails"
        wait(minutes=5)
        summary.append("They talked about reasons.")
        assert talk("one", 12) > 5, "it works again, so it is called whenever it is due"
    gc.collect()  # the connections to the summary model are closed, or this warns


def test_the_failures_of_one_tenant_do_not_stop_the_compaction_of_another(wait, tmp_path):
    calls, store = [], MemoryStore()
    tokens = keys_for(store, acme={"tenant": "acme"}, other={"tenant": "other"})

    def answer(request):
        if request.model != "gpt-4o-mini":
            return say("Because. " * 60)
        calls.append(request)
        return fail(400, "no model today")

    with served(ScriptedModel(otherwise=answer), config=SUMMARIES, folder=tmp_path, store=store) as here:

        def talk(tenant):
            with here.http(headers={**bearer(tokens[tenant]), "x-conversation-id": "one"}) as http:
                for number in range(12):
                    message = {"role": "user", "content": f"Question {number}: " + "why " * 60}
                    body = {"model": "gpt-4o", "messages": [message]}
                    assert http.post("/v1/chat/completions", json=body).status_code == 200
            return len(calls)

        assert talk("acme") == 3
        assert talk("other") == 6
    gc.collect()
