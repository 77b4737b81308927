"""The `recall` tool: the text of a message that a view has cleared."""

import pytest

from minutebook import Conversation, TokenBudgetManager
from minutebook.agent import builtin_tools, recall
from minutebook.agent.toolbox import RECALLED_CHARACTERS
from minutebook.prompt import tool
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from tests.agent.parts import adapter_for

PARTS = 6


def read(part: int) -> str:
    """Read a part of the log."""
    return f"part {part}: " + f"line {part} " * 450


@pytest.fixture(params=["function", "builtin"])
def recall_tool(request, tmp_path):
    return recall if request.param == "function" else builtin_tools("recall", root=tmp_path)[0]


def answers_of(chat, *calls, tools):
    """The results of the model's calls, after it has read all parts of a log that does not fit into the view."""
    model = ScriptedModel(*(call("read", part=part) for part in range(PARTS)), *calls, say("Done."))
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        chat.run(adapter, "Read the log.", tools=[read, *tools])
        requests = [request.body["messages"] for request in provider.requests]
    return requests, [message["content"] for message in chat if message["role"] == "tool"][PARTS:]


def test_the_model_gets_a_cleared_result_back_by_the_number_in_its_marker(recall_tool):
    chat = Conversation("a", manager=TokenBudgetManager(6_000, preset="quality"), max_tokens=6_000)

    requests, (answer,) = answers_of(chat, call("recall", message=2), tools=[recall_tool])

    shown = next(message for message in requests[PARTS] if message["role"] == "tool")
    assert shown["content"] == f"[cleared: {len(read(0))} characters, message 2]"
    assert answer == read(0)


def test_a_long_text_is_returned_in_pages_and_each_page_says_so():
    chat = Conversation("a")
    length = RECALLED_CHARACTERS + 10
    chat.append("x" * RECALLED_CHARACTERS + "y" * 10)
    chat.append({"role": "assistant", "content": "Long."})
    calls = [call("recall", message=0), call("recall", message=0, page=2), call("recall", message=0, page=3)]

    _, answers = answers_of(chat, *calls, tools=[recall])

    assert length == len(chat[0]["content"])
    assert answers == [
        "x" * RECALLED_CHARACTERS + "\n[page 1 of 2 of message 0]",
        "y" * 10 + "\n[page 2 of 2 of message 0]",
        "there is no page 3; message 0 has 2.",
    ]


def test_a_number_that_no_message_has_is_an_error_that_names_the_numbers():
    _, (answer,) = answers_of(Conversation("a"), call("recall", message=99), tools=[tool(recall)])

    assert answer == "there is no message 99; the numbers are 0 to 13."
