"""Access to every route of /ui. The list is that of the app, so a new route is checked without being named here."""

import asyncio
import json
import re

import pytest
from starlette.routing import Route

from minutebook import Fold
from minutebook.service.inspector.app import PAGES
from minutebook.service.inspector.sign_in import ROOT, create_service_pages
from minutebook.service.inspector.web import path_id
from tests.service.inspector.test_sign_in import ADMIN, say, service_with_keys, signed_in

SECRET = "plumbago"
PUBLIC = {"/login", "/logout", "/static/{digest}/{name:path}"}
"""Routes that work without signing in, or have tests of their own."""
KEYS = {"admin": ADMIN, "reader": {}, "other": {"tenant": "rival", "scopes": ["admin"]}, "bound": {"recipient": "x"}}


@pytest.fixture(scope="module")
def ui():
    """A service with a conversation and a fold, and the routes of its pages as (method, address)."""
    with service_with_keys(**KEYS) as (here, keys):
        for number in range(2):
            say(here, keys["admin"].token, f"Where is my {SECRET} {number}?")
        fold = Fold.over(range(2), reason=SECRET, shown=f"a summary of {SECRET}")
        asyncio.run(here.service.store.for_tenant("acme").add_fold("order/17", fold))
        values = {"{conversation}": path_id("order/17"), "{position}": "0", "{fold}": fold.id}
        found = []
        app_routes = [route for route in create_service_pages(here.service).routes if isinstance(route, Route)]
        for route in [*app_routes, *(route for page in PAGES for route in page.router.routes)]:
            address = route.path
            if address in PUBLIC:
                continue
            for name, value in values.items():
                address = address.replace(name, value)
            assert "{" not in address, "give the new parameter a value above"
            query = f"?c={path_id('order/17')}" if address == "/live" else ""
            found += [(method, f"{ROOT}{address}{query}") for method in sorted(route.methods - {"HEAD"})]
        yield here, keys, found


def token_of(http):
    return json.loads(re.search(r"hx-headers='([^']+)'", http.get(f"{ROOT}/").text)[1])["X-CSRF-Token"]


def require_not_framed(response):
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"], response.url
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_every_route_of_the_page_modules_is_checked(ui):
    _, _, found = ui
    assert len(found) >= sum(len(page.router.routes) for page in PAGES)
    assert {method for method, _ in found} == {"GET", "POST"}


def test_without_signing_in_every_route_is_refused(ui):
    here, _, found = ui
    for method, address in found:
        for headers in ({}, {"hx-request": "true"}, {"cookie": "minutebook_session=guess"}):
            response = here.http().request(method, address, headers={"origin": here.url, **headers})
            assert response.status_code in {303, 401, 403}, address
            if response.status_code == 303:
                assert response.headers["location"] == f"{ROOT}/login"
            assert SECRET not in response.text
            require_not_framed(response)


@pytest.mark.parametrize("name", ["other", "bound"])
def test_other_tenants_and_recipients_find_nothing_on_any_route(ui, name):
    here, keys, found = ui
    http = signed_in(here, keys[name].token)
    token = token_of(http)
    for method, address in found:
        headers = {"origin": here.url, "x-csrf-token": token, "content-type": "application/x-www-form-urlencoded"}
        body = f"csrf={token}" if method == "POST" else None
        response = http.request(method, address, headers=headers, content=body)
        if address != f"{ROOT}/":
            assert response.status_code in ({403, 404} if method == "POST" else {404}), address
        assert SECRET not in response.text, address
        require_not_framed(response)


def test_a_read_key_reads_every_page_and_changes_nothing(ui):
    here, keys, found = ui
    http = signed_in(here, keys["reader"].token)
    token = token_of(http)
    for method, address in found:
        if address.startswith(f"{ROOT}/live"):
            continue  # a stream without an end; its access is checked above
        headers = {"origin": here.url, "x-csrf-token": token, "content-type": "application/x-www-form-urlencoded"}
        body = f"csrf={token}" if method == "POST" else None
        response = http.request(method, address, headers=headers, content=body)
        assert response.status_code == (403 if address.endswith("/undo") else 200), address
        require_not_framed(response)


@pytest.mark.parametrize("name", ["origin", "token"])
def test_a_form_of_another_site_changes_nothing(ui, name):
    here, keys, found = ui
    http = signed_in(here, keys["admin"].token)
    token = token_of(http) if name == "origin" else "wrong"
    origin = "https://evil.example" if name == "origin" else here.url
    posts = [address for method, address in found if method == "POST"]
    for address in [*posts, f"{ROOT}/logout"]:
        headers = {"origin": origin, "x-csrf-token": token, "content-type": "application/x-www-form-urlencoded"}
        response = http.post(address, headers=headers, content=f"csrf={token}")
        assert response.status_code == 403, address
        require_not_framed(response)
    (fold,) = asyncio.run(here.service.store.for_tenant("acme").folds("order/17"))

    assert fold.undone_at is None
    assert len(posts) >= 2
