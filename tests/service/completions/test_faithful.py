"""What the provider receives is what the client sent, also if the client edits its history."""

import json

import pytest

from minutebook.testing import ScriptedModel, call
from tests.service.completions.test_completions import TOOLS, user
from tests.service.serving import served

SYSTEM = {"role": "system", "content": "You are brief."}
HERE = {"x-conversation-id": "c"}


def image(data):
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return {"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}


class Client:
    """Resends its history with every request, and keeps the plain text of the answers."""

    def __init__(self, here, **headers):
        self._here, self._http, self._headers = here, here.http(), {**HERE, **headers}
        self.history = [SYSTEM]

    def ask(self, *messages, **fields):
        """Send the history and the messages; return the reconciliation. The answer is added to the history."""
        self.history += messages
        body = {"model": "m", "messages": self.history, **fields}
        response = self._http.post("/v1/chat/completions", json=body, headers=self._headers)
        assert response.status_code == 200, response.text
        assert self._here.provider.requests[-1].messages == self.history
        answer = response.json()["choices"][0]["message"]
        kept = {"role": "assistant", "content": answer["content"]}
        self.history.append(kept | ({"tool_calls": answer["tool_calls"]} if answer.get("tool_calls") else {}))
        return response.headers["x-history-reconcile"]


@pytest.fixture
def client():
    with served() as here:
        yield Client(here)


def test_an_edited_image_reaches_the_provider(client):
    assert client.ask(image("AAAA")) == "appended"
    client.history[1] = image("BBBB")

    assert client.ask(user("Sure?")) == "forked"


def test_changed_indentation_reaches_the_provider(client):
    client.ask(user("if x:\n    y()"))
    client.history[1] = user("if x:\n  y()")

    assert client.ask(user("And now?")) == "forked"


def test_edited_arguments_and_results_reach_the_provider():
    with served(ScriptedModel(call("look_up", at="a"), "Found.", "More.", "Less.")) as here:
        client = Client(here)
        client.ask(user("Look it up."), tools=TOOLS)
        calls = client.history[-1]["tool_calls"]
        client.ask({"role": "tool", "tool_call_id": calls[0]["id"], "content": "one"}, tools=TOOLS)
        client.history[2] = {
            **client.history[2],
            "tool_calls": [{**calls[0], "function": {"name": "look_up", "arguments": '{"at": "b"}'}}],
        }
        assert client.ask(user("Again."), tools=TOOLS) == "forked"
        client.history[3] = {**client.history[3], "content": "two"}
        assert client.ask(user("Once more."), tools=TOOLS) == "forked"


def test_the_providers_own_fields_are_not_added_to_the_clients_text(client):
    client.ask(user("one"))
    client.history[-1] = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}

    assert client.ask(user("two")) == "appended"


def test_an_edited_first_message_forks_with_the_clients_system_prompt(client):
    client.ask(user("one"))
    client.history = [SYSTEM]

    assert client.ask(user("ONE, edited")) == "forked"


def test_a_fork_at_the_start_has_a_system_prompt_that_the_record_lacks():
    with served() as here:
        client = Client(here, **{"x-history-resend": "all"})
        client.history = []
        client.ask(user("one"))
        client.history = [SYSTEM]
        assert client.ask(user("ONE")) == "forked"
        client.history[0] = {"role": "system", "content": "You are long-winded."}
        assert client.ask(user("two")) == "appended"


def test_a_client_that_sends_everything_can_drop_its_system_prompt():
    with served() as here:
        client = Client(here, **{"x-history-resend": "all"})
        client.ask(user("one"))
        assert client.history[0] == SYSTEM
        del client.history[0]

        assert client.ask(user("two")) == "appended"


def test_a_client_that_sends_everything_can_replace_its_system_prompt_and_its_first_message():
    with served() as here:
        client = Client(here, **{"x-history-resend": "all"})
        client.ask(user("one"))
        client.history = []

        assert client.ask(user("ONE")) == "forked"


@pytest.mark.parametrize("resend", ["auto", "all"])
def test_a_system_prompt_alone_replaces_the_history(resend):
    with served() as here:
        client = Client(here, **{"x-history-resend": resend})
        client.ask(user("one"))
        client.history = [SYSTEM]

        assert client.ask() == "forked"


@pytest.mark.parametrize(
    ("limits", "code", "param"),
    [
        ({"item_bytes": 500}, "item_too_large", "messages[3]"),
        ({"items_per_conversation": 6}, "conversation_full", "conversation"),
    ],
)
def test_an_edit_that_exceeds_a_limit_does_not_fork(limits, code, param, tmp_path):
    with served(config=f"limits: {json.dumps(limits)}", folder=tmp_path) as here:
        client = Client(here)
        client.ask(user("one"))
        client.history[1:] = [user("ONE"), client.history[2], user("x" * 600), client.history[2], user("more")]
        body = {"model": "m", "messages": client.history}
        refused = here.http().post("/v1/chat/completions", json=body, headers=HERE).json()["error"]
        assert (refused["code"], refused["param"]) == (code, param)

        newest = {"model": "m", "messages": [user("two")]}
        answer = here.http().post("/v1/chat/completions", json=newest, headers={**HERE, "x-history-resend": "new"})
        assert "x-conversation-branch" not in answer.headers


def test_a_regenerated_answer_is_requested_with_the_same_messages(client):
    client.ask(user("one"))
    client.ask(user("two"))
    client.history.pop()

    assert client.ask() == "forked"


def test_a_client_that_keeps_only_texts_does_not_fork():
    with served(ScriptedModel(call("look_up", at="a"), "Found.", "Thanks.")) as here:
        client = Client(here)
        client.ask(user("Look it up."), tools=TOOLS)
        tool_call = client.history[-1]["tool_calls"][0]
        client.ask({"role": "tool", "tool_call_id": tool_call["id"], "content": "one"}, tools=TOOLS)
        texts = [client.history[0], client.history[1], client.history[-1], user("Good.")]
        response = client._http.post("/v1/chat/completions", json={"model": "m", "messages": texts}, headers=HERE)

        assert response.headers["x-history-reconcile"] == "appended"
        assert here.provider.requests[-1].messages == [*client.history, user("Good.")]


def test_a_header_states_that_only_new_messages_are_sent():
    with served() as here:
        http = here.http()
        for text in ("one", "one"):
            body = {"model": "m", "messages": [user(text)]}
            headers = {**HERE, "x-history-resend": "new"}
            assert http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        roles = [message["role"] for message in here.provider.requests[-1].messages]

        assert roles == ["user", "assistant", "user"]
        refused = http.post("/v1/chat/completions", json=body, headers={**HERE, "x-history-resend": "some"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "X-History-Resend")


def test_an_unrecorded_request_reaches_the_provider_byte_for_byte():
    body = b'{ "model":"m", "messages":[{"role":"user","content":"caf\\u00e9"}],"x":1.0,"y":12345678901234567890123 }'
    with served() as here:
        headers = {"content-type": "application/json"}
        assert here.http().post("/v1/chat/completions", content=body, headers=headers).status_code == 200
        assert here.provider.requests[-1].body["y"] == 12345678901234567890123
