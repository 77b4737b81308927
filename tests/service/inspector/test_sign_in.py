"""/ui of the service: sign-in, sessions, scopes, tenants and recipients."""

import asyncio
import re
from contextlib import contextmanager

import pytest

from minutebook import MemoryStore
from minutebook.service.access.api_keys import ApiKeys
from minutebook.service.inspector.web import path_id
from minutebook.testing import ScriptedModel, overflow
from minutebook.testing import say as say_text
from tests.service.serving import served


@contextmanager
def service_with_keys(**keys):
    """A service with a conversation of each key's tenant, and the keys."""
    store = MemoryStore()

    async def create():
        created = {}
        for name, options in keys.items():
            settings = {"tenant": "acme", "scopes": ["read"], "requests_per_minute": 100_000, **options}
            created[name] = await ApiKeys(store, cache_seconds=0).create(name, **settings)
        return created

    created = asyncio.run(create())
    with served(store=store) as here:
        yield here, created


def say(here, token, text, conversation="order/17"):
    headers = {"authorization": f"Bearer {token}", "x-conversation-id": conversation}
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
    response = here.http().post("/v1/chat/completions", json=body, headers=headers)
    assert response.status_code == 200, response.text


def signed_in(here, token):
    http = here.http()
    response = http.post("/ui/login", data={"key": token}, headers={"origin": here.url})
    assert response.status_code == 303, response.text
    return http


ADMIN = {"scopes": ["admin"]}


def test_a_key_opens_a_session_whose_cookie_has_no_key():
    with service_with_keys(reader={}, admin=ADMIN) as (here, keys):
        say(here, keys["admin"].token, "Where is my parcel?")
        http = here.http()
        assert http.get("/ui/").headers["location"] == "/ui/login"
        response = http.post("/ui/login", data={"key": keys["reader"].token}, headers={"origin": here.url})
        cookie = response.headers["set-cookie"]
        page = http.get("/ui/").text

    assert keys["reader"].token not in cookie
    assert keys["reader"].key.id not in cookie
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/ui"):
        assert attribute.lower() in cookie.lower()
    assert "Where is my parcel?" in page
    assert f"/ui/c/{path_id('order/17')}" in page


@pytest.mark.parametrize("key", ["", "mb_000000000000_" + "a" * 43, "nonsense"])
def test_a_wrong_key_is_refused(key):
    with service_with_keys(reader={}) as (here, _):
        response = here.http().post("/ui/login", data={"key": key}, headers={"origin": here.url})

    assert response.status_code == 401
    assert "set-cookie" not in response.headers


def test_a_key_without_the_scope_read_cannot_sign_in():
    with service_with_keys(chat={"scopes": ["chat"]}) as (here, keys):
        response = here.http().post("/ui/login", data={"key": keys["chat"].token}, headers={"origin": here.url})

    assert response.status_code == 403


@pytest.mark.parametrize("origin", [{}, {"origin": "https://evil.example"}, {"origin": "null"}])
def test_forms_of_other_sites_are_refused(origin):
    with service_with_keys(reader={}) as (here, keys):
        response = here.http().post("/ui/login", data={"key": keys["reader"].token}, headers=origin)

    assert response.status_code == 403


def test_signing_out_needs_the_token_of_the_page_and_ends_the_session():
    with service_with_keys(reader={}) as (here, keys):
        http = signed_in(here, keys["reader"].token)
        cookies = dict(http.cookies)
        token = re.search(r'name="csrf" value="([^"]+)"', http.get("/ui/").text)[1]
        refused = http.post("/ui/logout", data={"csrf": "wrong"}, headers={"origin": here.url})
        assert http.get("/ui/").status_code == 200
        ended = http.post("/ui/logout", data={"csrf": token}, headers={"origin": here.url})
        again = here.http(cookies=cookies).get("/ui/")

    assert refused.status_code == 403
    assert ended.status_code == 303
    assert again.headers["location"] == "/ui/login"


def test_a_revoked_key_ends_its_sessions():
    with service_with_keys(reader={}) as (here, keys):
        http = signed_in(here, keys["reader"].token)
        assert http.get("/ui/").status_code == 200
        asyncio.run(here.service.keys.revoke(keys["reader"].key.id))
        assert http.get("/ui/").headers["location"] == "/ui/login"


def test_other_tenants_and_recipients_are_not_found_on_any_page():
    keys = {
        "admin": ADMIN,
        "other": {"tenant": "rival"},
        "bound": {"recipient": "somebody-else"},
    }
    with service_with_keys(**keys) as (here, created):
        say(here, created["admin"].token, "Where is my plumbago?")
        for name in ("other", "bound"):
            http = signed_in(here, created[name].token)
            assert "plumbago" not in http.get("/ui/").text
            assert "plumbago" not in http.get("/ui/", params={"q": "plumbago"}).text.replace(
                'value="plumbago"', ""
            ).replace("“plumbago”", "")
            base = f"/ui/c/{path_id('order/17')}"
            for address in (
                base,
                f"{base}/rows",
                f"{base}/m/0",
                f"{base}/m/0/raw",
                f"{base}/series.json",
                f"/ui/live?c={path_id('order/17')}",
            ):
                response = http.get(address)
                assert response.status_code == 404, address
                assert "plumbago" not in response.text


def test_a_service_without_keys_shows_its_pages_on_this_machine_only():
    with served() as here:
        assert here.http().get("/ui/").status_code == 200
        assert here.http(headers={"host": "evil.example"}).get("/ui/").status_code in {303, 401}


def test_recorded_requests_are_shown_as_they_were_sent():
    with service_with_keys(admin=ADMIN) as (here, keys):
        for turn in range(3):
            say(here, keys["admin"].token, f"question {turn}")
        http = signed_in(here, keys["admin"].token)
        base = f"/ui/c/{path_id('order/17')}"
        series = http.get(f"{base}/series.json").json()
        page = http.get(base).text

    assert len(series["sent"]) == 3
    assert series["messages"] == 6
    assert "Recorded requests." in page


def test_a_view_that_the_provider_rejected_as_too_long_is_a_mark_of_its_request(tmp_path):
    model = ScriptedModel(*[say_text("answer " * 40)] * 6, overflow(1000, 900), say_text("Now it fits."))
    config = "conversation: {policy: b}\npolicies: {b: {manager: token_budget, max_tokens: 100000}}\n"
    with served(model, config=config, folder=tmp_path) as here:
        http = here.http(headers={"x-conversation-id": "order 17"})
        for number in range(7):
            body = {"model": "gpt-4o", "messages": [{"role": "user", "content": f"Question {number} {'word ' * 60}"}]}
            assert http.post("/v1/chat/completions", json=body).status_code == 200
        address = f"/ui/c/{path_id('order 17')}"
        marks = here.http().get(f"{address}/series.json").json()["marks"]
        page = here.http().get(f"{address}/timeline").text

    assert [number for number, names in marks.items() if "overflow" in names] == ["7"]
    assert "overflow, sent again shorter" in page


def test_a_recorded_policy_that_is_not_replayed_is_named(tmp_path):
    config = "conversation: {policy: short}\npolicies: {short: {manager: [{name: turn_window, turns: 2}]}}\n"
    with served(config=config, folder=tmp_path) as here:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}
        assert here.http(headers={"x-conversation-id": "a"}).post("/v1/chat/completions", json=body).status_code == 200
        page = ""
        while "All requests together" not in page:
            page = here.http().get("/ui/c/a/whatif").text

    assert "The first column is token_budget, not the recorded policy short." in page


def test_a_change_of_the_conversation_is_an_event():
    with service_with_keys(admin=ADMIN) as (here, keys):
        say(here, keys["admin"].token, "first")
        http = signed_in(here, keys["admin"].token)
        with http.stream("GET", f"/ui/live?c={path_id('order/17')}") as response:
            events = (line for line in response.iter_lines() if line.startswith("data: "))
            before = next(events)
            say(here, keys["admin"].token, "second")
            assert next(events) != before
