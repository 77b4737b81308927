"""Every kind of broken provider, on every endpoint, whole and streamed."""

import json
import resource
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from minutebook.agent.retry import MAX_REASON_CHARACTERS
from tests.service.serving import served


def completion(**message):
    choice = {"index": 0, "message": {"role": "assistant", "content": "Yes.", **message}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def chunk(**delta):
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def both(message):
    """The same fields in a whole answer and in a stream."""
    return json.dumps(completion(**message)).encode(), b"data: %s\n\n" % json.dumps(chunk(**message)).encode()


def raw(content):
    return content, b"data: %s\n\n" % content


MAX_BYTES = 300_000
"""Maximum size of a provider's response in these tests."""
REASON = {"error": {"message": "No good.", "type": "bad_type", "param": "messages", "code": "no_good"}}
FAULTS = {
    "HTML": (200, *raw(b"<html>Welcome</html>")),
    "nothing": (200, b"", b""),
    "garbage": (200, *raw(b"\x00\x01 {]")),
    "invalid UTF-8": (200, *raw(b'{"choices": "\xff\xfe"}')),
    "a list": (200, *raw(b"[]")),
    "a text": (200, *raw(b'"Yes."')),
    "NaN": (200, *raw(b'{"choices": NaN}')),
    "an error with status 200": (200, *raw(json.dumps(REASON).encode())),
    "deep nesting": (200, *raw(b'{"choices": ' + b"[" * 100_000)),
    "valid deep nesting": (200, *raw(b'{"choices": ' + b"[" * 200 + b"]" * 200 + b"}")),
    "choices as a text": (200, *raw(b'{"choices": "Yes."}')),
    "a choice as a number": (200, *raw(b'{"choices": [1]}')),
    "a content as a number": (200, *both({"content": 1})),
    "calls as a text": (200, *both({"tool_calls": "look"})),
    "arguments as a number": (200, *both({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": 1}}]})),
    "usage as a text": (200, *raw(b'{"choices": [], "usage": {"prompt_tokens": "many"}}')),
    "no choices": (200, *raw(b'{"choices": []}')),
    "an endless answer": (200, *both({"content": "x" * MAX_BYTES})),
    "an endless line": (200, b" " * (MAX_BYTES + 1), b"data: " + b"x" * MAX_BYTES),
    "a redirect": (302, b"", b""),
    "an HTML error": (502, b"<html>Bad gateway</html>", None),
    "an unavailable provider": (503, json.dumps(REASON).encode(), None),
    "a rejected key": (401, json.dumps(REASON).encode(), None),
    "a refusal": (400, json.dumps(REASON).encode(), None),
    "a refusal as a text": (400, b'{"error": "No such model."}', None),
    "a refusal as a detail": (400, b'{"detail": "No such model."}', None),
    "a refusal as a list": (422, b'{"detail": [{"loc": ["body"], "msg": "No such model."}]}', None),
    "a number of many digits": (400, json.dumps({"error": f"The context window is {'9' * 5_000}."}).encode(), None),
    "a long refusal": (400, json.dumps({"error": {"message": "No good. " * 30_000}}).encode(), None),
    "a numeric code": (400, json.dumps({"error": {**REASON["error"], "code": 1234}}).encode(), None),
    "an unprocessable request": (422, json.dumps(REASON).encode(), None),
    "a rate limit": (429, json.dumps(REASON).encode(), None),
}
RETRIED = {"nothing", "no choices", "an HTML error", "an unavailable provider", "a rate limit"}
"""Faults after which an agent repeats its request, with pauses."""
LATER = {"no choices"}
"""Faults of a stream whose first event is valid."""
OWN_STATUSES = {400, 422, 429}
"""Statuses of the provider that the client gets."""


NAMELESS_CALL = {"index": 0, "id": "a", "type": "function", "function": {"arguments": "{}"}}
CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
UNRECORDABLE = {
    "a call without a name": both({"content": None, "tool_calls": [NAMELESS_CALL]}),
    "two calls with one id": both({"content": None, "tool_calls": [CALL, {**CALL, "index": 1}]}),
}
"""Answers that are passed through but cannot be recorded."""
ODD = {
    "usage below zero": b'"usage": {"prompt_tokens": -1, "completion_tokens": -1}',
    "usage of another type": b'"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": "x"}}',
}
"""Fields of answers that are accepted."""
FULL_WINDOW = "a full window"
OVERFLOW = json.dumps({"error": {"message": "This model's maximum context length is exceeded.", "code": 400}}).encode()
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def answer_of(fault):
    if fault in FAULTS:
        return FAULTS[fault]
    if fault in ODD:
        whole, streamed = both({"content": "Yes."})
        return 200, whole[:-1] + b", " + ODD[fault] + b"}", streamed + b"data: {%s}\n\n" % ODD[fault] + END
    if fault == "content as parts":
        whole, streamed = both({"content": [{"type": "text", "text": "Yes."}]})
        return 200, whole, streamed + END
    if fault == "arguments as an object":
        function = {"name": "look", "arguments": {"a": 1}}
        whole, streamed = both({"content": None, "tool_calls": [{**CALL, "function": function}]})
        return 200, whole, streamed + END
    whole, streamed = UNRECORDABLE[fault]
    return 200, whole, streamed + END


def answer_in_window(request):
    """An error with status 200 if the request has more than 30 messages."""
    if len(request["messages"]) > 30:
        return 200, *raw(OVERFLOW)
    whole, streamed = both({"content": "Yes."})
    return 200, whole, streamed + END


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = request["messages"][-1]["content"]
        status, whole, streamed = answer_in_window(request) if last == FULL_WINDOW else answer_of(last)
        content = streamed if request.get("stream") and streamed is not None else whole
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        if status == 302:
            self.send_header("location", "http://127.0.0.1:1/")
        if status == 429:
            self.send_header("retry-after", "7")
            self.send_header("x-ratelimit-remaining-tokens", "0")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def here():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        with served(environment={"MINUTEBOOK_UPSTREAM_URL": url}) as here:
            here.service.upstream.max_answer_bytes = MAX_BYTES
            yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def chat(http, fault, stream, conversation):
    headers = {"x-conversation-id": conversation} if conversation else {}
    body = {"model": "m", "messages": [{"role": "user", "content": fault}], "stream": stream}
    return http.post("/v1/chat/completions", json=body, headers=headers)


def response(http, fault, stream, conversation):
    headers = {"x-conversation-id": conversation} if conversation else {}
    body = {"model": "m", "input": fault, "stream": stream, "store": conversation is not None}
    return http.post("/v1/responses", json=body, headers=headers)


def thread_message(http, fault, stream, conversation):
    path = f"/threads/{http.post('/threads', json={}).json()['id']}/messages"
    headers = {"accept": "text/event-stream" if stream else "application/json"}
    return http.post(path, json={"text": fault, "model": "m"}, headers=headers)


ENDPOINTS = {
    "chat, recorded": (chat, True),
    "chat, passed through": (chat, False),
    "responses, recorded": (response, True),
    "responses, unrecorded": (response, False),
    "threads": (thread_message, True),
}


def error_of(answer):
    """The error of an answer, also one that is sent within a stream; None if it has none."""
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json().get("error")
    data = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    errors = [each.get("error") or (each.get("response") or {}).get("error") for each in data]
    return next((error for error in errors if error), None)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_fault_of_the_provider_is_reported_as_one(here, endpoint, stream):
    send, recorded = ENDPOINTS[endpoint]
    problems = []
    with here.http() as http:
        for number, (fault, (status, *_)) in enumerate(FAULTS.items()):
            if endpoint == "threads" and fault in RETRIED:
                continue
            conversation = f"{number}-{endpoint.replace(', ', '-')}-{stream}" if recorded else None
            answer = send(http, fault, stream, conversation)
            expected = status if status in OWN_STATUSES else 502
            # A slow machine opens a stream before the provider has answered.
            may_be_in_stream = stream and (endpoint == "threads" or fault in LATER or answer.text.startswith(": ping"))
            if answer.status_code != expected and not (answer.status_code == 200 and may_be_in_stream):
                problems.append((fault, answer.status_code, answer.text[:200]))
            elif error_of(answer) is None:
                problems.append((fault, "no error", answer.text[:200]))
        assert http.get("/healthz").status_code == 200
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"maximum memory of this process: {megabytes:,.0f} MB")  # noqa: T201 - shown with -rP
    assert problems == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("endpoint", [*ENDPOINTS][:4])
def test_the_providers_own_error_reaches_the_client(here, endpoint, stream):
    send, recorded = ENDPOINTS[endpoint]
    conversation = f"own-{endpoint.replace(', ', '-')}-{stream}" if recorded else None
    with here.http() as http:
        answer = send(http, "a rate limit", stream, conversation)
        unprocessable = send(http, "an unprocessable request", stream, None)

        assert answer.json() == REASON
        assert (answer.headers["retry-after"], answer.headers["x-ratelimit-remaining-tokens"]) == ("7", "0")
        assert (unprocessable.status_code, unprocessable.json()) == (422, REASON)
        if recorded:
            request = http.get(f"/v1/conversations/{conversation}/requests/1").json()
            assert request["failed"] == "no_good"
            assert request["error"] == {**REASON["error"], "status": 429}


@pytest.mark.parametrize("fault", ["a refusal as a text", "a refusal as a detail", "a refusal as a list"])
@pytest.mark.parametrize("endpoint", [*ENDPOINTS][:4])
def test_the_text_of_a_provider_without_error_fields_reaches_the_client(here, endpoint, fault):
    send, _ = ENDPOINTS[endpoint]
    with here.http() as http:
        answer = send(http, fault, False, None)
    assert (answer.status_code, answer.json()["error"]["message"]) == (FAULTS[fault][0], "No such model.")


@pytest.mark.parametrize("endpoint", [*ENDPOINTS][:4])
def test_a_long_text_of_the_provider_is_cut(here, endpoint):
    with here.http() as http:
        answer = ENDPOINTS[endpoint][0](http, "a long refusal", False, None)

    assert answer.status_code == 400
    assert len(answer.json()["error"]["message"]) <= MAX_REASON_CHARACTERS


@pytest.mark.parametrize("endpoint", [*ENDPOINTS][:4])
def test_a_numeric_code_of_the_provider_reaches_the_client(here, endpoint):
    send, _ = ENDPOINTS[endpoint]
    with here.http() as http:
        answer = send(http, "a numeric code", False, None)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, 1234)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", UNRECORDABLE)
@pytest.mark.parametrize("endpoint", [name for name, (_, recorded) in ENDPOINTS.items() if recorded][:2])
def test_an_answer_that_cannot_be_recorded_is_no_error_of_the_client(here, endpoint, fault, stream):
    send, _ = ENDPOINTS[endpoint]
    conversation = f"unrecordable-{fault}-{endpoint}-{stream}".replace(" ", "-").replace(",", "")
    with here.http() as http:
        answer = send(http, fault, stream, conversation)
        request = http.get(f"/v1/conversations/{conversation}/requests/1").json()
    if not stream:
        assert answer.status_code == 502
    assert error_of(answer)["message"] == "The provider returned an invalid response."
    assert request["failed"] == "upstream_error"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", [*ODD, "content as parts"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_odd_fields_of_an_answer_do_not_lose_it(here, endpoint, fault, stream):
    send, recorded = ENDPOINTS[endpoint]
    conversation = f"odd-{fault}-{endpoint}-{stream}".replace(" ", "-").replace(",", "")
    with here.http() as http:
        answer = send(http, fault, stream, conversation if recorded else None)
        assert (answer.status_code, error_of(answer)) == (200, None), answer.text
        assert "Yes." in answer.text
        if recorded and endpoint != "threads":
            stored = http.get(f"/v1/conversations/{conversation}/items").json()["data"]
            assert [part["text"] for part in stored[0]["content"]] == ["Yes."]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("endpoint", [*ENDPOINTS][:4])
def test_arguments_that_are_an_object_are_accepted(here, endpoint, stream):
    send, recorded = ENDPOINTS[endpoint]
    conversation = f"object-{endpoint}-{stream}".replace(" ", "-").replace(",", "")
    with here.http() as http:
        answer = send(http, "arguments as an object", stream, conversation if recorded else None)
        assert (answer.status_code, error_of(answer)) == (200, None), answer.text
        if recorded:
            stored = http.get(f"/v1/conversations/{conversation}/items").json()["data"]
            assert json.loads(stored[0]["arguments"]) == {"a": 1}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("endpoint", ["chat", "responses", "threads"])
def test_an_overflow_that_is_reported_with_status_200_is_answered_with_a_shorter_view(here, endpoint, stream):
    texts = [*(f"message {number}" for number in range(40)), FULL_WINDOW]
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    headers = {"x-conversation-id": f"full-{endpoint}-{stream}"}
    with here.http(headers=headers) as http:
        if endpoint == "chat":
            answer = http.post("/v1/chat/completions", json={"model": "m", "messages": messages, "stream": stream})
        elif endpoint == "responses":
            answer = http.post("/v1/responses", json={"model": "m", "input": messages, "stream": stream})
        else:
            thread = http.post("/v1/conversations", json={"items": messages[:20]}).json()["id"]
            http.post(f"/v1/conversations/{thread}/items", json={"items": messages[20:-1]})
            accept = {"accept": "text/event-stream" if stream else "application/json"}
            answer = http.post(f"/threads/{thread}/messages", json={"text": FULL_WINDOW, "model": "m"}, headers=accept)
    assert answer.status_code == 200, answer.text
    assert "Yes." in answer.text
    assert "error" not in answer.text.replace('"error":null', "")
    assert answer.text.count("response.created") == (2 if stream and endpoint == "responses" else 0)
