"""Broken histories in the formats of Anthropic, Responses and Gemini: `check` finds each, `repair` makes each acceptable."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from minutebook.cli.main import cli
from minutebook.formats import SourceConversation, SourceMessage, convert, read
from minutebook.testing import LoopbackProvider, ScriptedModel, call, coding_session, say
from minutebook.testing.provider.anthropic import messages_problem
from minutebook.testing.provider.gemini import gemini_problem
from minutebook.testing.provider.responses import responses_problem
from minutebook.testing.script import ScriptedFailure

Entry = dict[str, Any]


def _blocks(entry: Entry, name: str) -> bool:
    content = entry.get("content")
    return isinstance(content, list) and any(block["type"] == name for block in content)


def _parts(entry: Entry, name: str) -> bool:
    return any(name in part for part in entry["parts"])


class Protocol:
    """The list of a request, which of its entries are calls and results, and the rules of the provider."""

    def __init__(
        self,
        name: str,
        is_call: Callable[[Entry], bool],
        is_result: Callable[[Entry], bool],
        user: Entry,
        problem: Callable[[Entry], ScriptedFailure | None],
    ) -> None:
        self.name = name
        self.is_call = is_call
        self.is_result = is_result
        self.user = user
        self.problem = problem


PROTOCOLS = {
    "anthropic": Protocol(
        "messages",
        lambda entry: _blocks(entry, "tool_use"),
        lambda entry: _blocks(entry, "tool_result"),
        {"role": "user", "content": [{"type": "text", "text": "wait"}]},
        lambda body: messages_problem(body, max_tokens_needed=False),
    ),
    "openai-responses": Protocol(
        "input",
        lambda entry: entry.get("type") == "function_call",
        lambda entry: entry.get("type") == "function_call_output",
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "wait"}]},
        lambda body: responses_problem({key: value for key, value in body.items() if key != "id"}),
    ),
    "gemini": Protocol(
        "contents",
        lambda entry: _parts(entry, "functionCall"),
        lambda entry: _parts(entry, "functionResponse"),
        {"role": "user", "parts": [{"text": "wait"}]},
        gemini_problem,
    ),
}
DAMAGES = ("orphan", "drop", "double", "interleave")


def valid_request(name: str, random: Random) -> Entry:
    messages = [
        *coding_session(random.randrange(10_000), turns=random.randint(1, 3)),
        {"role": "user", "content": "Go on."},
    ]
    items = [SourceMessage(message) for message in messages]
    body: Entry = convert(SourceConversation(items=items, model="scripted"), name).value
    if name == "gemini" and random.random() < 0.5:  # the API's own contents have no ids
        for content in body["contents"]:
            for part in content["parts"]:
                for key in part.keys() & {"functionCall", "functionResponse"}:
                    part[key].pop("id", None)
    return body


def damage(body: Entry, name: str, kind: str, random: Random) -> None:
    """Damage a request in place."""
    protocol = PROTOCOLS[name]
    entries = body[protocol.name]
    calls = [index for index, entry in enumerate(entries) if protocol.is_call(entry)]
    results = [index for index, entry in enumerate(entries) if protocol.is_result(entry)]
    if kind == "orphan":
        del entries[random.choice(calls)]
    elif kind == "drop":
        del entries[random.choice(results)]
    elif kind == "double":
        index = random.choice(results)
        entries.insert(random.randint(index + 1, len(entries)), json.loads(json.dumps(entries[index])))
    else:
        entries.insert(random.choice(results), protocol.user)


def require_repair(name: str, kind: str, seed: int) -> None:
    random = Random(f"{name} {kind} {seed}")
    body = valid_request(name, random)
    assert PROTOCOLS[name].problem(body) is None
    damage(body, name, kind, random)
    runner, text = CliRunner(), json.dumps(body)

    found = runner.invoke(cli, ["check", "-"], input=text)
    repaired = runner.invoke(cli, ["repair", "-"], input=text)

    assert found.exit_code == 6, found.output
    assert repaired.exit_code == 0, repaired.output
    value = json.loads(repaired.stdout)
    problem = PROTOCOLS[name].problem(value)
    assert problem is None, problem
    assert {key: inner for key, inner in value.items() if key != PROTOCOLS[name].name} == {
        key: inner for key, inner in body.items() if key != PROTOCOLS[name].name
    }


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_broken_history_is_found_and_repaired(name: str, kind: str) -> None:
    for seed in range(8):
        require_repair(name, kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_thousand_broken_histories_are_found_and_repaired(name: str, kind: str) -> None:
    for seed in range(8, 258):
        require_repair(name, kind, seed)


def _post(provider: LoopbackProvider, body: Entry) -> Entry:
    request = urllib.request.Request(
        f"{provider.anthropic_url}/v1beta/models/gemini-3:generateContent", json.dumps(body).encode(), method="POST"
    )
    try:
        with urllib.request.urlopen(request) as response:
            answer: Entry = json.load(response)
    except urllib.error.HTTPError as error:
        answer = json.load(error)
    return answer


def test_the_loopback_provider_serves_gemini_and_rejects_broken_requests() -> None:
    model = ScriptedModel(call("find_order", number=17), say("It is packed."))
    question: Entry = {"role": "user", "parts": [{"text": "Where is order 17?"}]}
    with LoopbackProvider(model) as provider:
        first = _post(provider, {"contents": [question]})
        used = first["candidates"][0]["content"]
        dangling = _post(provider, {"contents": [question, used, question]})
        response = {"functionResponse": {"id": "call_1", "name": "find_order", "response": {"output": "packed"}}}
        second = _post(provider, {"contents": [question, used, {"role": "user", "parts": [response]}]})

    assert used["parts"] == [{"functionCall": {"id": "call_1", "name": "find_order", "args": {"number": 17}}}]
    assert dangling["error"]["status"] == "INVALID_ARGUMENT"
    assert "number of function response parts" in dangling["error"]["message"]
    assert second["candidates"][0]["content"]["parts"] == [{"text": "It is packed."}]
    (conversation,) = read(json.dumps(second).encode())
    assert (conversation.format, conversation.model) == ("gemini", "gemini-3")
    assert conversation.items[0].usage == second["usageMetadata"]
