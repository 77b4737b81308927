"""What holds of an answer on every endpoint that makes one: chat completions, responses and threads."""

import asyncio

import pytest

from minutebook.conversation.policy import Policy
from minutebook.conversation.trimming import TRIMMED_MARKER
from minutebook.testing import LoopbackProvider, ScriptedModel, fail, overflow, say
from tests.service.guarded import Watched
from tests.service.observability.test_metrics import samples
from tests.service.serving import served
from tests.service.talking import TOOLS, WHOLE, adding
from tests.service.talking_tools import found

PAYLOAD = "100000"
"""Stands in the arguments and results of tool calls alone."""


class Chat:
    """A client of chat completions, which resends its whole history and runs its tools itself."""

    def __init__(self, here):
        self.http, self.conversation, self.history = here.http(), "c", []

    def post(self, **headers):
        body, headers = (
            {"model": "gpt-4o", "messages": self.history},
            {"x-conversation-id": self.conversation, **headers},
        )
        answer = self.http.post("/v1/chat/completions", json=body, headers=headers)
        if answer.status_code == 200:
            self.history = [*self.history, answer.json()["choices"][0]["message"]]
        return answer

    def ask(self, text, **headers):
        self.history = [*self.history, {"role": "user", "content": text}]
        return self.post(**headers)

    def ask_with_tool(self, number):
        self.ask(f"Question {number}")
        made = self.history[-1]["tool_calls"][0]
        self.history = [*self.history, {"role": "tool", "tool_call_id": made["id"], "content": found(number)}]
        return self.post()


class Responses:
    """A client of responses, which names its conversation and runs its tools itself."""

    def __init__(self, here):
        self.http = here.http()
        self.conversation = self.http.post("/v1/conversations").json()["id"]

    def ask(self, given, **headers):
        body = {"model": "gpt-4o", "conversation": self.conversation, "input": given}
        return self.http.post("/v1/responses", json=body, headers=headers)

    def ask_with_tool(self, number):
        made = self.ask(f"Question {number}").json()["output"][0]
        output = {"type": "function_call_output", "call_id": made["call_id"], "output": found(number)}
        return self.ask([output])


class Threads:
    """A client of threads, whose tools the service runs."""

    def __init__(self, here):
        self.http = here.http()
        self.conversation = self.http.post("/threads").json()["id"]

    def ask(self, text, **headers):
        path, body = f"/threads/{self.conversation}/messages", {"text": text, "model": "gpt-4o"}
        return self.http.post(path, json=body, headers={**WHOLE, **headers})

    def ask_with_tool(self, number):
        return self.ask(f"Question {number}")


@pytest.fixture(params=[Chat, Responses, Threads])
def family(request):
    return request.param


def recorded(here, client):
    return asyncio.run(here.service.store.load(client.conversation)).messages


def text_of(answer):
    body = answer.json()
    if "choices" in body:
        return body["choices"][0]["message"]["content"]
    return body["text"] if "tools" in body and "thread_id" in body else body["output"][0]["content"][0]["text"]


BUDGET = "conversation: {policy: b}\npolicies: {b: {manager: token_budget, max_tokens: 100000}}\n"
LONG = "word " * 60


def test_a_view_is_shortened_after_every_overflow(family, tmp_path):
    fill = [say("answer " * 40)] * 6
    model = ScriptedModel(*fill, overflow(1000, 900), overflow(1000, 900), say("Now it fits."))
    with served(model, config=BUDGET, folder=tmp_path) as here:
        client = family(here)
        answers = [client.ask(f"Question {number} {LONG}") for number in range(7)]
        sent = [len(request.messages) for request in here.provider.requests[-3:]]

    assert answers[-1].status_code == 200, answers[-1].text
    assert text_of(answers[-1]) == "Now it fits."
    assert sent[0] > sent[1] > sent[2]


def test_a_view_that_is_always_too_long_is_an_error_after_three_attempts(family, tmp_path):
    model = ScriptedModel(*[say("answer " * 40)] * 6, otherwise=overflow(1000, 900))
    with served(model, config=BUDGET, folder=tmp_path) as here:
        client = family(here)
        answers = [client.ask(f"Question {number} {LONG}") for number in range(7)]
        attempts = len(here.provider.requests) - 6

    assert answers[-1].status_code == 400
    assert answers[-1].json()["error"]["code"] == "context_length_exceeded"
    assert attempts == 3


def test_a_compaction_is_counted_and_traced(family, tmp_path):
    config = "conversation: {policy: p}\npolicies: {p: {strategy: turns, keep_turns: 2, trigger: 0.01}}\n"
    watched = Watched()
    with served(ScriptedModel(otherwise="Yes."), config=config, folder=tmp_path) as here:
        here.service.telemetry = watched.telemetry()
        client = family(here)
        for number in range(30):
            assert client.ask(f"Question {number} {LONG}").status_code == 200
        folds = asyncio.run(here.service.store.folds(client.conversation))
        metrics = samples(here.service.metrics)

    spans = [span for span in watched.spans.get_finished_spans() if span.name == "compact"]
    assert folds
    assert metrics["minutebook_compactions_total", ("strategy", "turns")] == len(folds)
    assert metrics["minutebook_tokens_folded_total",] > 0
    assert [span.attributes["minutebook.compaction.id"] for span in spans] == [stored.fold.id for stored in folds]


TURNS = 4


def talk(here, family):
    client = family(here)
    for number in range(TURNS):
        answer = client.ask_with_tool(number)
        assert answer.status_code == 200, answer.text
    return client


@pytest.mark.parametrize("preserve", [1, 2])
def test_tool_payloads_of_older_turns_are_trimmed_in_the_record(family, preserve, tmp_path):
    retention = f"conversation: {{retention: {{preserve_turns: {preserve}, tool_persistence: trimmed}}}}\n"
    with served(adding(TURNS), config=TOOLS + retention, folder=tmp_path) as here:
        client = talk(here, family)
        messages = recorded(here, client)

    results = [message["content"] for message in messages if message["role"] == "tool"]
    arguments = [each["tool_calls"][0]["function"]["arguments"] for each in messages if each.get("tool_calls")]
    assert results[:-preserve] == [TRIMMED_MARKER.format(status="ok")] * (TURNS - preserve)
    assert arguments[:-preserve] == ["{}"] * (TURNS - preserve)
    assert all(PAYLOAD in each for each in (*results[-preserve:], *arguments[-preserve:]))
    assert len(messages) == 4 * TURNS


def test_tool_payloads_stay_in_the_record_by_default(family, tmp_path):
    with served(adding(TURNS), config=TOOLS, folder=tmp_path) as here:
        client = talk(here, family)
        messages = recorded(here, client)

    assert [PAYLOAD in each["content"] for each in messages if each["role"] == "tool"] == [True] * TURNS


def test_resent_payloads_that_were_trimmed_match_the_record(tmp_path):
    config = "conversation: {retention: {preserve_turns: 1, tool_persistence: none}}\n"
    with served(adding(TURNS), config=config, folder=tmp_path) as here:
        client = Chat(here)
        decisions = [client.ask_with_tool(number).headers["x-history-reconcile"] for number in range(TURNS)]

    assert decisions == ["appended"] * TURNS


KEY = {"idempotency-key": "k1"}


def test_a_retry_gets_the_recorded_answer_of_another_server(family, tmp_path):
    db = f"sqlite:///{tmp_path / 'chat.db'}"
    with LoopbackProvider(ScriptedModel("Once.", "Twice.")) as provider:
        with served(provider=provider, db=db) as here:
            client = family(here)
            first = client.ask("Hello", **KEY)
        with served(provider=provider, db=db) as here:
            again = family(here)
            again.conversation = client.conversation
            second = again.ask("Hello", **KEY)
            messages = recorded(here, client)

    assert text_of(first) == text_of(second) == "Once."
    assert second.headers["idempotent-replayed"] == "true"
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert len(provider.requests) == 1


def test_a_retry_of_a_failed_request_stores_the_messages_once(family, tmp_path):
    with served(ScriptedModel(fail(400, "no"), "Now."), db=f"sqlite:///{tmp_path / 'chat.db'}") as here:
        client = family(here)
        failed = client.ask("Hello", **KEY)
        if isinstance(client, Chat):
            client.history = []
        answer = client.ask("Hello", **KEY)
        messages = recorded(here, client)

    assert failed.status_code == 400
    assert text_of(answer) == "Now."
    assert [message["role"] for message in messages] == ["user", "assistant"]


class Failing:
    """A manager that always fails."""

    def curate(self, messages, *, session):
        raise ZeroDivisionError


def test_a_failed_manager_is_bypassed_and_a_long_view_is_still_shortened(family):
    model = ScriptedModel(*[say("answer " * 40)] * 6, overflow(1000, 900), say("Now it fits."))
    with served(model) as here:
        here.service.policy("gpt-4o")
        for name in ("token_budget", "retention"):
            here.service._policies["gpt-4o", name] = Policy("failing", Failing())
        client = family(here)
        answers = [client.ask(f"Question {number} {LONG}") for number in range(7)]
        sent = [len(request.messages) for request in here.provider.requests[-3:]]

    assert {answer.headers["x-history-bypass"] for answer in answers} == {"PromptEvaluationError"}
    assert text_of(answers[-1]) == "Now it fits."
    assert sent[0] < sent[1] > sent[2]
