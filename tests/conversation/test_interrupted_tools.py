"""A tool that was running when its process was killed does not run again, unless it is declared idempotent."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from minutebook import Conversation, tool
from minutebook.testing import LoopbackProvider, ScriptedModel, call
from tests.agent.parts import adapter_for


def tools_of(log, *, idempotent, dies):
    """Tools that write their calls to a file. `pay` kills the process if it should."""

    @tool(idempotent=idempotent)
    def pay(amount: int) -> str:
        """Pay an amount."""
        with Path(log).open("a") as file:
            file.write(f"{amount}\n")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"Paid {amount}."

    @tool(idempotent=idempotent)
    def look(path: str) -> str:
        """Look at a path."""
        return f"Saw {path}."

    return [pay, look]


def run_until_killed(database, log, url, idempotent):
    class Provider:
        base_url = url

    with adapter_for(Provider) as adapter, Conversation("c", store=database, system="You pay.") as chat:
        chat.run(adapter, "Pay 5.", tools=tools_of(log, idempotent=idempotent, dies=True))


def kill_during_a_call(tmp_path, provider, *, idempotent):
    database, log = str(tmp_path / "chat.db"), str(tmp_path / "payments")
    arguments = (database, log, provider.base_url, idempotent)
    process = multiprocessing.get_context("forkserver").Process(target=run_until_killed, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return database, log


@pytest.mark.parametrize("request_text", [None, "What happened?"])
def test_calls_that_were_running_get_an_interrupted_result(tmp_path, request_text):
    model = ScriptedModel(call("look", path="a") + call("pay", amount=5), "It was interrupted.", "Bye.")
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        database, log = kill_during_a_call(tmp_path, provider, idempotent=False)
        with Conversation("c", store=database) as chat:
            assert [message["role"] for message in chat] == ["system", "user"]
            tools = tools_of(log, idempotent=False, dies=False)
            response = chat.run(adapter, request_text, tools=tools)
            roles = [message["role"] for message in chat]
            requests = chat.requests()
            chat.run(adapter, "Thanks.", tools=tools)
            assert len(chat) == len(roles) + 2  # the interrupted calls are stored once

    assert provider.problems == []
    assert response.text == "It was interrupted."
    assert Path(log).read_text() == "5\n"
    assert roles == ["system", "user", "assistant", "tool", "tool", *(["user"] if request_text else []), "assistant"]
    assert all(
        "interrupted" in message["content"] for message in provider.requests[1].messages if message["role"] == "tool"
    )
    assert [request.finish for request in requests] == ["tool_calls", "stop"]
    assert all(request.usage for request in requests)


def test_an_idempotent_tool_runs_again(tmp_path):
    model = ScriptedModel(*[call("pay", amount=5)] * 2, "Paid.")
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        database, log = kill_during_a_call(tmp_path, provider, idempotent=True)
        with Conversation("c", store=database) as chat:
            chat.run(adapter, tools=tools_of(log, idempotent=True, dies=False))
            roles = [message["role"] for message in chat]

    assert Path(log).read_text() == "5\n5\n"
    assert roles == ["system", "user", "assistant", "tool", "assistant"]


def test_calls_that_have_results_are_not_interrupted(tmp_path):
    model = ScriptedModel(call("pay", amount=5), "Paid.", "Hello.")
    database, log = str(tmp_path / "chat.db"), str(tmp_path / "payments")
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        for request in ("Pay 5.", "Hello."):
            with Conversation("c", store=database) as chat:
                chat.run(adapter, request, tools=tools_of(log, idempotent=False, dies=False))
                messages = list(chat)

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert "interrupted" not in str(messages)
