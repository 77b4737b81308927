"""Every route with every kind of caller."""

import pytest

from minutebook import MemoryStore
from tests.service.endpoints import asked, names_in, operations
from tests.service.serving import served
from tests.service.test_tenants import bearer, keys_for, made_by

OPEN = {"/healthz", "/readyz", "/openapi.json", "/docs"}
"""Routes without authentication."""
CALLERS = {
    "no key": None,
    "a wrong key": "mb_wrong_key",
    "read": {"tenant": "acme", "scopes": ("read",)},
    "chat": {"tenant": "acme", "scopes": ("chat",)},
    "write": {"tenant": "acme", "scopes": ("write",)},
    "metrics": {"tenant": "acme", "scopes": ("metrics",)},
    "another tenant": {"tenant": "other"},
    "another recipient": {"tenant": "acme", "recipient": "bob"},
}


def required_scope(method, path):
    """The scope that the documentation names for a route."""
    if path in OPEN:
        return None
    if path == "/metrics":
        return "metrics"
    if path.startswith("/v1/models") or path in {"/v1/chat/completions", "/v1/responses"}:
        return "chat"
    if path.startswith("/threads") and method == "post":
        return "chat"
    if path.endswith("/cancel"):
        return "chat"
    if path in {"/v1/responses/input_tokens", "/v1/responses/compact"} or method == "get":
        return "read"
    return "write"


@pytest.fixture(scope="module")
def here():
    store = MemoryStore()
    options = {name: {"requests_per_minute": 1_000_000, **each} for name, each in CALLERS.items() if type(each) is dict}
    tokens = keys_for(store, owner={"tenant": "acme", "requests_per_minute": 1_000_000}, **options)
    with served(store=store) as here, here.http(headers=bearer(tokens["owner"])) as owner:
        ids = made_by(owner, store) | {"model_id": "scripted"}
        yield here, tokens, ids, operations(owner.get("/openapi.json").json())


@pytest.mark.parametrize("name", CALLERS)
def test_every_route_checks_its_caller(here, name):
    served_, tokens, ids, routes = here
    token = tokens.get(name, CALLERS[name])
    problems = []
    with served_.http(headers=bearer(token) if token else {}) as http:
        for method, path in routes:
            scope = required_scope(method, path)
            # Not the owner's recipient: the id of its conversation is made from it, and another tenant may have the same.
            status = asked(http, method, path, ids | {"recipient": "mallory"}).status_code
            has_ids = bool(set(names_in(path)) - {"model_id"})
            if scope is None:
                is_right = status == 200
            elif name in {"no key", "a wrong key"}:
                is_right = status == 401
            elif name in {"read", "chat", "write", "metrics"} or scope == "metrics":  # an admin key has no metrics
                is_right = (status == 403) == (name != scope)
            else:
                is_right = status == 404 if has_ids and "recipient" not in path else status not in {401, 403, 500}
            if not is_right:
                problems.append((method, path, status))
    assert problems == []
