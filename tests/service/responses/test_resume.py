"""A stream that is cut at any event, and goes on from there: here, on another server, and when nobody remembers it."""

import json

import pytest

from minutebook.testing import ScriptedModel, call, say, think
from tests.servers import require_postgres, shared
from tests.service.responses.test_responses import MODEL, WEATHER
from tests.service.serving import served

ANSWER = think("Let me think about it.") + say("The first answer, in a few words.") + call("weather", city="Bonn")


def events_of(text):
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(block.split("\n")[1].removeprefix("data: ")) for block in blocks[:-1]]


def heard_until(http, body, index):
    """The events of a stream up to one, after which the line is cut."""
    heard, rest = [], ""
    with http.stream("POST", "/v1/responses", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        for piece in answer.iter_text():
            *blocks, rest = (rest + piece).split("\n\n")
            heard += [json.loads(block.split("\n")[1].removeprefix("data: ")) for block in blocks if "event:" in block]
            if len(heard) > index:
                return heard[: index + 1]
    return heard[: index + 1]


def resumed(http, name, after):
    query = {"stream": "true"} if after is None else {"stream": "true", "starting_after": after}
    return events_of(http.get(f"/v1/responses/{name}", params=query).text)


@pytest.fixture(scope="module")
def whole():
    """How many events there are, and the text."""
    with served(ScriptedModel(ANSWER)) as here:
        body = {"model": MODEL, "input": "Weather?", "tools": [WEATHER], "stream": True}
        return events_of(here.http().post("/v1/responses", json=body).text)


def text_of(events):
    kinds = ("response.output_text.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta")
    return {kind: "".join(event["delta"] for event in events if event["type"] == kind) for kind in kinds}


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_a_response_resumed_after_any_event_has_the_same_text(whole, step, tmp_path):
    db = f"sqlite:///{tmp_path / 'a.db'}"
    model = ScriptedModel(otherwise=ANSWER)
    with served(model, db=db) as here, served(db=db, provider=here.provider) as other:
        body = {"model": MODEL, "input": "Weather?", "tools": [WEATHER], "stream": True}
        for index in range(0, len(whole), step):
            heard = heard_until(here.http(), body, index)
            name = heard[0]["response"]["id"]

            rest = resumed(here.http(), name, index)
            afar = resumed(other.http(), name, index)

            assert heard[-1]["sequence_number"] == index
            assert [event["sequence_number"] for event in rest] == list(range(index + 1, len(whole)))
            assert text_of(heard + rest) == text_of(whole)
            assert [event["type"] for event in heard + rest] == [event["type"] for event in whole]
            assert afar == rest
            here.service.runs._runs.pop(name)  # as when it was long ago
            assert resumed(here.http(), name, index) == rest
            assert resumed(here.http(), name, None) == heard + rest


def test_on_postgresql_another_server_sends_the_same_events():
    require_postgres()
    db = shared.empty()
    with served(ScriptedModel(otherwise=ANSWER), db=db) as here, served(db=db, provider=here.provider) as other:
        client = here.client()
        heard = [
            event.to_dict() for event in client.responses.create(model=MODEL, input="Hi", tools=[WEATHER], stream=True)
        ]
        name = heard[0]["response"]["id"]

        again = [event.to_dict() for event in other.client().responses.retrieve(name, stream=True)]

        assert again == heard
