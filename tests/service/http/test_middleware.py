import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.service.http.middleware import CLIENT_CLOSED_REQUEST, request_id_of
from tests.service.guarded import MOST_BYTES, Guarded


def error_of(answer):
    """The error, in the one shape that every error has."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


def test_every_answer_has_the_id_of_its_request_and_so_has_the_log():
    guarded = Guarded()
    answers = guarded.ask(
        ("GET", "/open", {}),
        ("GET", "/nowhere", {}),
        ("POST", "/broken", {"content": b"x"}),
        ("GET", "/open", {"headers": {"x-request-id": "mine-7"}}),
    )

    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == 4
    assert ids[3] == "mine-7"
    lines = [line for line in guarded.watched.logged() if line["message"] == "request"]
    assert [line["request_id"] for line in lines] == ids
    assert [line["status"] for line in lines] == [200, 404, 500, 200]


@pytest.mark.parametrize("given", ["", "two words", "a\tb", "x" * 129, "-", "sk-proj-" + "a1" * 20, "é"])
def test_an_id_that_is_none_is_replaced(given):
    made = request_id_of({"x-request-id": given})

    assert made.startswith("req_")
    assert given == "" or given not in made


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "not_found"), ("DELETE", "/open", 405, "method_not_allowed")],
    ids=["404", "405"],
)
def test_what_starlette_refuses_has_the_shape_of_all_errors(method, path, status, code):
    answer = Guarded().ask((method, path, {}))[0]

    assert answer.status_code == status
    assert error_of(answer)["code"] == code
    assert status != 405 or answer.headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("method", "path", "options", "param", "problem"),
    [
        ("GET", "/open?number=secretword", {}, "number", "number must be an integer."),
        ("GET", "/open?word=SECRETWORD", {}, "word", "word has an invalid format."),
        ("POST", "/strict", {"json": {"secretword is long": "x"}}, "…", "… must be an integer."),
        ("POST", "/strict", {"json": {"sk-proj-secretword" + "a1" * 9: "x"}}, "…", "… must be an integer."),
        (
            "POST",
            "/strict",
            {"content": b"{secretword", "headers": {"content-type": "application/json"}},
            None,
            "is not valid JSON",
        ),
        ("POST", "/strict", {"json": ["secretword"]}, "body", "body must be an object."),
        ("POST", "/strict", {}, "body", "body is missing."),
    ],
    ids=["number", "pattern", "key", "secret key", "json", "shape", "missing"],
)
def test_what_does_not_fit_an_endpoint_is_a_400_that_says_where_and_quotes_nothing(
    method, path, options, param, problem
):
    answer = Guarded().ask((method, path, options))[0]

    assert answer.status_code == 400
    assert problem in error_of(answer)["message"]
    assert param is None or error_of(answer)["param"] == param
    assert "secretword" not in answer.text.lower()


@pytest.mark.parametrize("size", [MOST_BYTES - 1, MOST_BYTES, MOST_BYTES + 1, 50 * MOST_BYTES])
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "in chunks"])
@pytest.mark.parametrize("path", ["/things", "/strict"])
def test_a_body_is_taken_up_to_the_limit_and_refused_beyond_it(size, chunked, path):
    async def pieces():
        left = size
        while left:
            yield b"x" * min(300, left)
            left -= min(300, left)

    answer = Guarded().post(path, content=pieces() if chunked else b"x" * size)

    if size <= MOST_BYTES:
        assert answer.status_code == (200 if path == "/things" else 400)
    else:
        assert answer.status_code == 413
        assert error_of(answer)["code"] == "body_too_large"
        assert str(MOST_BYTES) in error_of(answer)["message"]


def test_a_body_that_says_it_is_too_large_is_refused_unread():
    assert Guarded().post("/nowhere", content=b"x" * (MOST_BYTES + 1)).status_code == 413
    assert Guarded().post("/nowhere", content=b"", headers={"content-length": "9" * 30}).status_code == 413


def test_a_failure_that_nobody_expected_is_told_by_its_id_alone():
    guarded = Guarded()
    answer = guarded.post("/broken", content=b"the plan is secretword")

    assert answer.status_code == 500
    assert error_of(answer)["code"] == "internal_error"
    assert "secretword" not in answer.text + guarded.watched.lines.getvalue()
    failed = next(line for line in guarded.watched.logged() if line["level"] == "error")
    assert failed["error"][0]["type"] == "KeyError"
    assert any("guarded.py" in place for place in failed["error"][0]["at"])
    assert failed["request_id"] == answer.headers["x-request-id"]


def through(guarded, path, *, query=b"", incoming=None):
    """Everything that the app sends for one request, piece by piece; the client may go away in between."""
    sent = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET" if incoming is None else "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query,
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    messages = iter(incoming or [{"type": "http.request", "body": b"", "more_body": False}])

    async def receive():
        message = next(messages, None)
        if message is None:
            await asyncio.Event().wait()
        return message

    async def send(message):
        sent.append(message)

    with guarded.logging():
        asyncio.run(guarded.app(scope, receive, send))
    return sent


def test_a_stream_passes_piece_by_piece():
    sent = through(Guarded(), "/stream")

    assert [message.get("body") for message in sent[1:4]] == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]
    assert any(name == b"x-request-id" for name, _ in sent[0]["headers"])


def test_a_stream_that_breaks_is_cut_off_and_not_ended():
    guarded = Guarded()
    with pytest.raises(ValueError, match="in the middle"):
        through(guarded, "/stream", query=b"gate=broken")

    line = guarded.watched.logged()[-1]
    assert (line["message"], line["route"], line["status"]) == ("request", "/stream", 200)


def test_a_client_that_goes_away_is_no_failure_of_the_server():
    guarded = Guarded()
    sent = through(
        guarded,
        "/broken",
        incoming=[{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}],
    )

    assert sent == []
    assert [line["status"] for line in guarded.watched.logged()] == [CLIENT_CLOSED_REQUEST]


def test_the_log_says_who_asked_for_which_kind_of_thing_and_not_for_which():
    guarded = Guarded()
    made = guarded.key()
    guarded.get("/things/private-7?q=private", headers={"authorization": f"Bearer {made.token}"})

    line = guarded.watched.logged()[-1]
    assert (line["route"], line["tenant"], line["key_id"]) == ("/things/{thing}", "acme", made.key.id)
    assert "private" not in guarded.watched.lines.getvalue()


def test_every_request_is_counted_under_its_route():
    guarded = Guarded()
    guarded.ask(("GET", "/things/1", {}), ("GET", "/things/2", {}), ("GET", "/no/where", {}), ("BREW", "/open", {}))
    text = guarded.service.metrics.render().decode()

    assert 'minutebook_http_requests_total{method="GET",route="/things/{thing}",status="200"} 2.0' in text
    assert 'minutebook_http_requests_total{method="GET",route="none",status="404"} 1.0' in text
    assert 'method="other"' in text
    assert "where" not in text


@given(st.binary(max_size=200))
def test_no_body_at_all_makes_the_server_fail(body):
    answer = Guarded().post("/strict", content=body, headers={"content-type": "application/json"})

    assert answer.status_code in {200, 400}
    json.loads(answer.content)
