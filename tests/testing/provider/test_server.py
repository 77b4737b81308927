"""The server: raw requests, parallel clients, disconnects and closing."""

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from minutebook.testing.provider.server import LoopbackProvider
from minutebook.testing.script import ScriptedModel, call, cut, say, slow

HELLO = [{"role": "user", "content": "hello"}]
FINE = ScriptedModel(otherwise="fine")


def port_of(provider):
    return int(provider.anthropic_url.rpartition(":")[2])


def send(provider, method, path, body=b"", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port_of(provider), timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def ask(provider, messages=HELLO, model="m"):
    status, body = send(provider, "POST", "/v1/chat/completions", json.dumps({"model": model, "messages": messages}))
    return body["choices"][0]["message"]["content"] if status == 200 else body["error"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(raw):
    with LoopbackProvider(FINE) as provider:
        status, body = send(provider, "POST", "/v1/chat/completions", raw)

        assert (status, body["error"]["type"]) == (400, "invalid_request_error")
        assert (provider.requests[0].body, provider.requests[0].status) == ({}, 400)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "body", [{}, {"model": "m"}, {"model": "m", "messages": 3}, {"messages": HELLO}, {"model": "m", "messages": [3]}]
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_request_without_model_or_messages_is_refused_even_if_not_strict(path, body, strict):
    with LoopbackProvider(FINE, strict=strict) as provider:
        status, _ = send(provider, "POST", path, json.dumps(body), {"anthropic-version": "2023-06-01"})

    assert status == 400


def test_options_of_wrong_types_do_not_break_the_server():
    body = {"model": "m", "messages": HELLO, "stream_options": 3, "thinking": "yes", "tools": "none", "max_tokens": 9}
    with LoopbackProvider(FINE) as provider:
        for path in ("/v1/chat/completions", "/v1/messages"):
            status, _ = send(provider, "POST", path, json.dumps(body), {"anthropic-version": "2023-06-01"})
            assert status in {200, 400}


def test_a_body_that_is_nested_too_deeply_is_refused():
    deep = "[" * 100_000 + "]" * 100_000
    body = f'{{"model": "m", "messages": [{{"role": "user", "content": "x", "extra": {deep}}}]}}'
    with LoopbackProvider(FINE) as provider:
        assert send(provider, "POST", "/v1/chat/completions", body)[0] == 400


def test_a_connection_that_is_cut_immediately_sends_no_status():
    with LoopbackProvider(ScriptedModel(cut())) as provider, pytest.raises(http.client.RemoteDisconnected):
        ask(provider)


def test_unknown_paths_and_methods_are_refused():
    with LoopbackProvider(FINE) as provider:
        assert send(provider, "POST", "/v1/embeddings", b"{}")[0] == 404
        assert send(provider, "GET", "/", b"")[0] == 404
        assert send(provider, "GET", "/v1/chat/completions")[0] == 405
        assert send(provider, "DELETE", "/v1/models")[0] == 405
        assert send(provider, "POST", "/v1/messages/batches", b"{}")[1]["error"]["type"] == "not_found_error"


def test_a_query_string_is_ignored():
    with LoopbackProvider(FINE) as provider:
        body = {"model": "m", "messages": HELLO, "max_tokens": 9}
        headers = {"anthropic-version": "2023-06-01"}

        assert send(provider, "POST", "/v1/messages?beta=true", json.dumps(body), headers)[0] == 200


@pytest.mark.parametrize("header", [{"X-Api-Key": "right"}, {"Authorization": "Bearer right"}])
def test_a_key_is_accepted_in_either_header(header):
    body = json.dumps({"model": "m", "messages": HELLO, "max_tokens": 9})
    with LoopbackProvider(FINE, api_key="right") as provider:
        assert send(provider, "POST", "/v1/messages", body, {"anthropic-version": "x", **header})[0] == 200
        assert send(provider, "POST", "/v1/messages", body, {"anthropic-version": "x"})[0] == 401


def test_anthropics_version_header_is_required():
    with LoopbackProvider(FINE) as provider:
        _, body = send(provider, "POST", "/v1/messages", json.dumps({"model": "m", "messages": HELLO}))

    assert body["error"]["message"] == "anthropic-version: header is required"


def test_a_large_body_is_read_completely():
    with LoopbackProvider(FINE) as provider:
        assert ask(provider, [{"role": "user", "content": "word " * 1_000_000}]) == "fine"
        assert len(provider.requests[0].last_text) == 5_000_000


def test_one_connection_serves_many_requests():
    with LoopbackProvider(FINE) as provider:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(provider), timeout=10)
        body = {"model": "m", "messages": HELLO}
        ports = set()
        for stream in (False, True, False):
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": stream}))
            ports.add(connection.sock.getsockname())
            assert connection.getresponse().read()
        connection.close()

    assert len(ports) == 1


def test_a_chunked_body_is_read():
    body = json.dumps({"model": "m", "messages": HELLO}).encode()
    with LoopbackProvider(FINE) as provider:
        for _ in range(2):
            assert send(provider, "POST", "/v1/chat/completions", iter([body[:9], body[9:]]))[0] == 200

        assert provider.requests[1].messages == HELLO


@pytest.mark.parametrize("length", [b"many", b"-5"])
def test_an_invalid_content_length_is_refused_and_the_connection_closed(length):
    with LoopbackProvider(FINE) as provider, socket.create_connection(("127.0.0.1", port_of(provider))) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %b\r\n\r\n" % length)
        answer = b"".join(iter(lambda: client.recv(4096), b""))

    assert answer.startswith(b"HTTP/1.1 400")


def test_a_disconnect_during_a_stream_does_not_affect_other_clients(capfd):
    disconnected = threading.Event()
    script = ScriptedModel(say("word " * 2000) + slow(between_seconds=1), otherwise="fine")
    with LoopbackProvider(script, wait=lambda _: disconnected.wait(10)) as provider:
        with socket.create_connection(("127.0.0.1", port_of(provider))) as client:
            body = json.dumps({"model": "m", "messages": HELLO, "stream": True}).encode()
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            assert client.recv(12) == b"HTTP/1.1 200"
        disconnected.set()

        assert ask(provider) == "fine"

    assert capfd.readouterr() == ("", "")


def test_closing_frees_the_port_and_ends_every_thread():
    before = set(threading.enumerate())
    provider = LoopbackProvider(FINE)
    idle = http.client.HTTPConnection("127.0.0.1", port_of(provider), timeout=10)
    idle.request("GET", "/v1/models")
    idle.getresponse().read()

    provider.close()
    provider.close()

    assert idle.sock.recv(1) == b""
    idle.close()
    assert set(threading.enumerate()) <= before
    with socket.create_server(("127.0.0.1", port_of(provider))) as server:
        assert server.getsockname()[1] == port_of(provider)


def test_requests_can_be_read_after_closing():
    with LoopbackProvider(FINE) as provider:
        ask(provider)

    assert [(r.number, r.path, r.status, r.model, r.last_text) for r in provider.requests] == [
        (1, "/v1/chat/completions", 200, "m", "hello")
    ]


def test_slow_steps_call_wait():
    waited = []
    script = ScriptedModel(say("a b") + slow(30, between_seconds=5), say("quick"))
    with (
        LoopbackProvider(script, wait=waited.append) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key="any", max_retries=0) as client,
    ):
        list(client.chat.completions.create(model="m", messages=HELLO, stream=True))
        ask(provider)

    assert waited == [30, 5, 5, 5, 5]


def test_slow_steps_do_not_wait_by_default():
    with LoopbackProvider(ScriptedModel(say("a b") + slow(3600))) as provider:
        assert ask(provider) == "a b"


def test_parallel_clients_share_one_script_and_every_step_is_played_once():
    script = ScriptedModel(*(call("t", number=number) for number in range(60)))
    with (
        LoopbackProvider(script) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key="any", max_retries=0) as client,
        ThreadPoolExecutor(12) as pool,
    ):

        def first_call(_):
            return client.chat.completions.create(model="m", messages=HELLO).choices[0].message.tool_calls[0]

        calls = list(pool.map(first_call, range(60)))

    assert {call.id for call in calls} == {f"call_{number}" for number in range(1, 61)}
    assert {call.function.arguments for call in calls} == {f'{{"number": {number}}}' for number in range(60)}
    assert [request.number for request in provider.requests] == list(range(1, 61))


def test_each_conversation_may_have_its_own_script():
    scripts = {name: ScriptedModel(*(f"{name} {turn}" for turn in range(5))) for name in "abcdefgh"}
    with LoopbackProvider(lambda request: scripts[request.model]) as provider, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: [ask(provider, model=name) for _ in range(5)], scripts))

        assert answers == [[f"{name} {turn}" for turn in range(5)] for name in scripts]
        assert ask(provider, model="zzz")["code"] == "model_not_found"


def test_equal_scripts_are_played_separately():
    scripts = {name: ScriptedModel("first", "second") for name in "ab"}
    with LoopbackProvider(lambda request: scripts[request.headers["x-conversation"]]) as provider:

        def ask_as(name):
            body = json.dumps({"model": "m", "messages": HELLO})
            answer = send(provider, "POST", "/v1/chat/completions", body, {"X-Conversation": name})[1]
            return answer["choices"][0]["message"]["content"]

        assert [ask_as("a"), ask_as("b"), ask_as("a")] == ["first", "first", "second"]
