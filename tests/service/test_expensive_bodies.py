"""The most expensive bodies on every route: each is answered, and other requests are answered meanwhile."""

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from threading import Event

import pytest

from minutebook import MemoryStore
from tests.service.endpoints import asked, names_in, operations
from tests.service.serving import served
from tests.service.test_tenants import bearer, keys_for

BYTES = 10 * 1024 * 1024 - 1_000
MAX_MEDIAN_SECONDS = 1.0
"""On a quiet machine the median is a few milliseconds."""
TEXT = '{"model":"m","messages":[{"role":"user","content":"'
BODIES = {
    "escapes": (TEXT, '\\"', '"}]}'),
    "unfinished escapes": ("", '\\"', ""),
    "letters": (TEXT, "a", '"}]}'),
    "spaces": (TEXT, " ", '"}]}'),
    "lists": ('{"model":"m","input":[', "[],", "0]}"),
    "objects": ('{"model":"m","messages":[', '{"a":{}},', "{}]}"),
    "depth": ('{"model":"m","input":', "[", ""),
    "numbers": ('{"model":"m","input":[', "1.5,", "0]}"),
    "one number": ('{"model":"m","input":1.', "1", "}"),
    "messages": ('{"model":"m","messages":[{"role":"user","content":"a"}', ',{"role":"user","content":"a b c"}', "]}"),
    "items": ('{"model":"m","input":[{"role":"user","content":"a"}', ',{"role":"user","content":"a b c"}', "]}"),
}
CHAT_ROUTES = ("/v1/chat/completions", "/v1/responses", "/threads/{thread_id}/messages")


def body_of(kind):
    start, unit, end = BODIES[kind]
    return (start + unit * ((BYTES - len(start) - len(end)) // len(unit)) + end).encode()


@pytest.fixture(scope="module")
def here():
    store = MemoryStore()
    token = keys_for(store, owner={"tenant": "acme", "requests_per_minute": 1_000_000})["owner"]
    with served(store=store) as here:
        yield here, token


def health_seconds(here, done):
    """How long each request took until `done`."""
    seconds, http = [], here.http()
    while not done.is_set():
        started = time.perf_counter()
        assert http.get("/healthz").status_code == 200
        seconds.append(time.perf_counter() - started)
        done.wait(0.005)
    return seconds


def answered(here, requests, headers):
    """The answers to requests with large bodies, while the health of the service is checked."""
    done, http = Event(), here.http(headers={"content-type": "application/json", **headers})
    with ThreadPoolExecutor(1) as pool:
        health = pool.submit(health_seconds, here, done)
        try:
            answers = [
                asked(http, method, path, dict.fromkeys(names_in(path), "c"), content=body, json=None)
                for method, path, body in requests
            ]
        finally:
            done.set()
        seconds = health.result()
    print(f"healthz: median {median(seconds) * 1e3:.1f} ms, maximum {max(seconds) * 1e3:.0f} ms")  # noqa: T201 - shown with -rP
    assert median(seconds) < MAX_MEDIAN_SECONDS
    return answers


def routes(here):
    found = operations(here.http().get("/openapi.json").json())
    return [(method, path) for method, path in found if method in {"post", "put", "patch", "delete"}]


def test_without_a_key_no_body_is_parsed(here):
    served_, _ = here
    body = body_of("unfinished escapes")
    answers = answered(served_, [(method, path, body) for method, path in routes(served_)], {})
    assert {answer.status_code for answer in answers} == {401}


@pytest.mark.parametrize("kind", BODIES)
def test_an_expensive_body_is_answered_on_the_chat_routes(here, kind):
    served_, token = here
    body = body_of(kind)
    for headers in ({}, {"x-conversation-id": f"c-{kind.replace(' ', '-')}"}):
        answers = answered(served_, [("post", path, body) for path in CHAT_ROUTES], bearer(token) | headers)
        assert all(answer.status_code < 500 for answer in answers), [answer.text[:200] for answer in answers]


@pytest.mark.slow
@pytest.mark.parametrize("kind", BODIES)
def test_an_expensive_body_is_answered_on_every_route(here, kind):
    served_, token = here
    body = body_of(kind)
    answers = answered(served_, [(method, path, body) for method, path in routes(served_)], bearer(token))
    assert all(answer.status_code < 500 for answer in answers), [answer.text[:200] for answer in answers]
