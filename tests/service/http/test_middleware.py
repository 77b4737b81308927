import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.service.http.middleware import CLIENT_CLOSED_REQUEST, request_id_of
from tests.service.guarded import MOST_BYTES, Guarded
from tests.service.serving import served


def error_of(answer):
    """The error, in the one shape that every error has."""
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]


def test_responses_and_log_lines_have_the_request_id():
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
def test_an_invalid_request_id_is_replaced(given):
    made = request_id_of({"x-request-id": given})

    assert made.startswith("req_")
    assert given == "" or given not in made


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "not_found"), ("DELETE", "/open", 405, "method_not_allowed")],
    ids=["404", "405"],
)
def test_errors_of_starlette_have_the_common_format(method, path, status, code):
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
def test_an_invalid_request_is_a_400_with_the_field_and_without_its_value(method, path, options, param, problem):
    answer = Guarded().ask((method, path, options))[0]

    assert answer.status_code == 400
    assert problem in error_of(answer)["message"]
    assert param is None or error_of(answer)["param"] == param
    assert "secretword" not in answer.text.lower()


@pytest.mark.parametrize("size", [MOST_BYTES - 1, MOST_BYTES, MOST_BYTES + 1, 50 * MOST_BYTES])
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "in chunks"])
@pytest.mark.parametrize("path", ["/things", "/strict"])
def test_a_body_above_the_limit_is_rejected(size, chunked, path):
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


def test_a_body_with_a_too_large_content_length_is_rejected_unread():
    assert Guarded().post("/nowhere", content=b"x" * (MOST_BYTES + 1)).status_code == 413
    assert Guarded().post("/nowhere", content=b"", headers={"content-length": "9" * 30}).status_code == 413


def test_an_unexpected_error_is_reported_by_request_id_only():
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


def test_a_stream_is_not_buffered():
    sent = through(Guarded(), "/stream")

    assert [message.get("body") for message in sent[1:4]] == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]
    assert any(name == b"x-request-id" for name, _ in sent[0]["headers"])


def test_a_failed_stream_is_not_completed():
    guarded = Guarded()
    with pytest.raises(ValueError, match="in the middle"):
        through(guarded, "/stream", query=b"gate=broken")

    line = guarded.watched.logged()[-1]
    assert (line["message"], line["route"], line["status"]) == ("request", "/stream", 200)


def test_a_disconnect_is_logged_as_client_closed_request():
    guarded = Guarded()
    sent = through(
        guarded,
        "/broken",
        incoming=[{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}],
    )

    assert sent == []
    assert [line["status"] for line in guarded.watched.logged()] == [CLIENT_CLOSED_REQUEST]


def test_the_log_has_the_caller_and_the_route_without_ids():
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
def test_no_body_causes_a_server_error(body):
    answer = Guarded().post("/strict", content=body, headers={"content-type": "application/json"})

    assert answer.status_code in {200, 400}
    json.loads(answer.content)


def test_pages_of_listed_origins_may_call_the_service(tmp_path):
    config = "server: {cors_origins: ['https://chat.example.com']}\n"
    with served(config=config, folder=tmp_path) as here, here.http() as http:
        preflight = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        allowed = http.options("/v1/chat/completions", headers={"origin": "https://chat.example.com", **preflight})
        denied = http.options("/v1/chat/completions", headers={"origin": "https://evil.example.com", **preflight})
        answer = http.get("/healthz", headers={"origin": "https://chat.example.com"})

    assert (allowed.status_code, denied.status_code) == (200, 400)
    assert allowed.headers["access-control-allow-origin"] == "https://chat.example.com"
    assert "authorization" in allowed.headers["access-control-allow-headers"]
    assert "access-control-allow-origin" not in denied.headers
    assert answer.headers["access-control-allow-origin"] == "https://chat.example.com"
    assert "x-conversation-id" in answer.headers["access-control-expose-headers"]


def test_without_the_setting_no_other_origin_is_allowed():
    with served() as here, here.http() as http:
        answer = http.get("/healthz", headers={"origin": "https://chat.example.com"})

    assert "access-control-allow-origin" not in answer.headers
