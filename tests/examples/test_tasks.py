"""The twelve tasks of `examples/tasks`, each run as a program against the loopback provider with the official clients."""

import inspect
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from textwrap import dedent

import pytest

from bench.tasks import MAX_NAMES, TASKS, path_of, size_of
from examples.tasks import data
from minutebook import AsyncConversation, Conversation, open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say

pytest.importorskip("openai")
pytest.importorskip("anthropic")
KEYS = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
ROOT = Path(__file__).parents[2]
has_run = pytest.mark.skipif(not hasattr(AsyncConversation, "stream"), reason="AsyncConversation has no stream yet")


@pytest.fixture
def run_task(tmp_path, monkeypatch):
    """Run a task as a program in an empty folder, with a provider on loopback, then some code; return what is printed."""
    monkeypatch.chdir(tmp_path)

    def run(number, provider=None, *, lines=(), then="", **environment):
        urls = (
            {}
            if provider is None
            else {"OPENAI_BASE_URL": provider.base_url, "ANTHROPIC_BASE_URL": provider.anthropic_url}
        )
        code = f"import runpy; globals().update(runpy.run_path({str(path_of(number))!r}, run_name='__main__'))\n"
        done = subprocess.run(
            [sys.executable, "-c", code + dedent(then)],
            input="\n".join([*lines, "", ""]),
            env=os.environ | KEYS | urls | environment | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def provider_of(*steps, **settings):
    return LoopbackProvider(ScriptedModel(*steps), **settings)


def contents(request):
    return [message["content"] for message in request.body["messages"]]


@pytest.mark.parametrize("number", TASKS)
def test_a_task_is_short_and_needs_few_names(number):
    size = size_of(path_of(number))

    assert size.lines <= TASKS[number].max_lines
    assert len(size.names) <= MAX_NAMES


def test_1_the_messages_that_fit(run_task):
    to_send = json.loads(run_task(1, then="import json; print(json.dumps(to_send))"))

    assert to_send[0] == {"role": "system", "content": data.SYSTEM}
    assert to_send[-1]["content"] == "So when does the desk arrive?"
    assert 20 < len(to_send) < len(data.support_chat())


def test_2_a_view_of_anthropic_messages_is_accepted(run_task):
    with provider_of(say("It arrives on Friday.")) as provider:
        run_task(2, provider)

        (request,) = provider.requests
        assert provider.problems == []
    assert request.body["system"] == [{"type": "text", "text": data.SYSTEM}]
    assert len(request.body["messages"]) < len(data.claude_chat())
    assert any(block["type"] == "tool_use" for message in request.body["messages"] for block in _blocks(message))


def _blocks(message):
    return message["content"] if isinstance(message["content"], list) else []


def test_3_a_chat_continues_after_a_restart(run_task):
    with provider_of("In Cologne.", "On Friday.", "You are welcome.") as provider:
        first = run_task(3, provider, lines=["Where is my desk?", "When does it arrive?"])
        second = run_task(3, provider, lines=["Thank you!"])

        assert provider.problems == []
        assert contents(provider.requests[-1]) == [
            "Be brief.",
            "Where is my desk?",
            "In Cologne.",
            "When does it arrive?",
            "On Friday.",
            "Thank you!",
        ]
    assert (first, second) == ("> In Cologne.\n> On Friday.\n> ", "> You are welcome.\n> ")


def test_4_an_answer_is_streamed_and_stored(run_task):
    with provider_of("It is in Cologne.") as provider:
        assert run_task(4, provider) == "It is in Cologne."
        assert provider.problems == []
    with Conversation("order-48213", store="chat.db") as chat:
        assert [message["content"] for message in chat] == ["Be brief.", "Where is my desk?", "It is in Cologne."]
        assert chat.request(1).messages == chat[:2]


def test_5_sixty_tool_calls_stay_within_the_budget(run_task):
    steps = [call("read_file", path=f"part_{number}.py") for number in range(60)]
    with provider_of(*steps, say("The build is fixed."), max_context_tokens=8_600) as provider:
        run_task(5, provider)

        assert provider.problems == []
        assert len(provider.requests) == 61
    with Conversation("agent", store="chat.db") as chat:
        assert len(chat) == 2 + 60 * 2 + 1
        assert chat[-1]["content"] == "The build is fixed."
        assert chat.request(61).tokens_after <= 8_000


@has_run
def test_6_a_run_prints_its_events_and_is_stored(run_task):
    with provider_of(call("read_file", path="build.py"), call("run_tests", target="all"), say("Fixed.")) as provider:
        assert "read_file" in run_task(6, provider)
        assert provider.problems == []
    with Conversation("agent", store="chat.db") as chat:
        assert [message["role"] for message in chat] == ["system", "user", *["assistant", "tool"] * 2, "assistant"]
        assert len(chat.requests()) == 3


def test_7_old_messages_are_summarized_and_a_fold_is_undone(run_task):
    summary = "The customer asked about the desk, the lamp and the invoice of several orders."
    with LoopbackProvider(ScriptedModel(otherwise=summary)) as provider:
        printed = run_task(7, provider)

        assert provider.problems == []
        assert provider.requests
        assert {request.body["model"] for request in provider.requests} == {"gpt-4o-mini"}
    assert "earlier messages summarized" in printed
    with Conversation("order-48213", store="chat.db") as chat:
        assert len(chat.folds()) == 0
        assert len(chat) == len(data.support_chat(12)) - 1


def test_8_a_manager_and_a_strategy_give_their_reasons(run_task):
    printed = run_task(
        8,
        then="""
            from examples.tasks.data import PHOTO, support_chat
            chat.append({"role": "user", "content": [{"type": "text", "text": "A leg is broken:"}, PHOTO]})
            chat.append({"role": "assistant", "content": "I am sorry. We send a new one."})
            chat.append(support_chat(2)[1:])
            view = chat.view()
            print(chat.why(0, request=view.number), view.messages[0]["content"][1]["text"])
            chat.append(support_chat(200)[1:])
            view = chat.view()
            print(chat.why(0, request=view.number), view.messages[0]["content"])
            """,
    )

    first, second = printed.splitlines()
    assert first == "changed: an old image [image]"
    assert second.startswith("folded: fold fold-0-")
    assert second.endswith(": small talk [small talk]")


@has_run
@pytest.mark.skipif("expire_after" not in inspect.signature(open_store).parameters, reason="stores do not expire yet")
def test_9_a_web_application_streams_stores_and_erases(run_task, tmp_path):
    pytest.importorskip("fastapi")
    with provider_of("In Cologne.", "Hello again.") as provider:
        printed = run_task(
            9,
            provider,
            DATABASE_URL=f"sqlite:///{tmp_path / 'chat.db'}",
            then="""
                from fastapi.testclient import TestClient
                with TestClient(app) as web:
                    first = web.post("/chat/ada", params={"text": "Where is my desk?"})
                    print(first.headers["content-type"], "In Cologne." in first.text)
                    print(web.delete("/users/ada").json())
                    print("Hello again." in web.post("/chat/ada", params={"text": "Hello?"}).text)
                """,
        )

        assert provider.problems == []
        assert contents(provider.requests[-1]) == ["Hello?"]
    assert printed.splitlines() == ["text/event-stream; charset=utf-8 True", "{'conversations': 1}", "True"]


def test_10_why_a_message_was_not_sent(run_task):
    with Conversation("order-48213", store="chat.db", max_tokens=500) as chat:
        chat.append(data.support_chat(15)[1:])
        for _ in range(9):
            chat.view()

    assert run_task(10) == "dropped: over 500 tokens: one of the oldest turns\n"


@has_run
def test_11_a_plan_runs_with_summaries_of_its_steps(run_task):
    steps = [
        call("planning_setup_plan", objective="Refactor", initial_steps=[{"title": "Read"}, {"title": "Split"}]),
        call("read_file", path="shop.py"),
        say("I have read the file and split it."),
    ]
    with provider_of(*steps) as provider:
        run_task(11, provider)

        assert provider.problems == []
        assert len(provider.requests) == 3
    with Conversation("refactor", store="chat.db") as chat:
        assert chat[-1]["content"] == "I have read the file and split it."


def test_12_the_service_records_requests_with_a_conversation_id(tmp_path):
    pytest.importorskip("fastapi")
    with provider_of("In Cologne.") as provider:
        environment = os.environ | {
            "OPENAI_BASE_URL": provider.base_url,
            "OPENAI_API_KEY": "none",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        command = f"{path_of(12).read_text(encoding='utf-8').strip()} --port 0 --json"
        with subprocess.Popen(
            ["sh", "-c", f"exec {command.splitlines()[-1]}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as service:
            try:
                started = json.loads(service.stdout.readline())
                body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Where is my desk?"}]}
                request = urllib.request.Request(
                    f"{started['url'].rstrip('/')}/v1/chat/completions",
                    json.dumps(body).encode(),
                    {"Content-Type": "application/json", "X-Conversation-Id": "order-48213"},
                )
                with urllib.request.urlopen(request) as response:
                    answer = json.load(response)
            finally:
                service.send_signal(signal.SIGINT)
                service.communicate(timeout=30)
    assert answer["choices"][0]["message"]["content"] == "In Cologne."
    with Conversation("order-48213", store=tmp_path / "chat.db") as chat:
        assert [message["content"] for message in chat] == ["Where is my desk?", "In Cologne."]
