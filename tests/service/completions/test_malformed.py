"""Malformed messages in a request are refused with 400, which names the field; never with 500."""

import pytest
from hypothesis import given

from tests.record.test_any_json import ANY_INPUT
from tests.service.serving import served

HEADERS = {"x-conversation-id": "c"}
FIRST = {"role": "user", "content": "Hello"}


def post(http, messages, **headers):
    return http.post("/v1/chat/completions", json={"model": "m", "messages": messages}, headers=headers)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "assistant", "content": None, "tool_calls": "x"}, "tool_calls"),
        ({"role": [], "content": "x"}, "role"),
        ({"role": "user", "content": [{"type": []}]}, "content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "content[0]"),
    ],
)
def test_a_malformed_message_in_an_existing_conversation_is_refused_by_name(message, field):
    with served() as here:
        http = here.http()
        assert post(http, [FIRST], **HEADERS).status_code == 200

        response = post(http, [FIRST, message], **HEADERS)

        assert response.status_code == 400
        assert field in response.json()["error"]["message"]


@pytest.fixture(scope="module")
def http():
    with served() as here:
        client = here.http()
        assert post(client, [FIRST], **HEADERS).status_code == 200
        yield client


@pytest.mark.fuzz
@given(messages=ANY_INPUT)
def test_any_json_value_as_messages_gives_an_answer_or_a_client_error(http, messages):
    try:
        response = post(http, messages, **HEADERS)
    except (ValueError, UnicodeEncodeError):  # NaN and lone surrogates cannot be sent
        return
    assert response.status_code < 500, response.text


def test_a_stream_field_that_is_null_means_no_stream(http):
    body = {"model": "m", "messages": [FIRST], "stream": None}
    response = http.post("/v1/chat/completions", json=body)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
