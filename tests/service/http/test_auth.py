import asyncio

import pytest

from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.service.access.api_keys import SCOPES, Caller
from minutebook.service.http.requests import is_loopback, require_access, require_keys_for_remote
from minutebook.store.types import ConversationHeader
from tests.service.guarded import Guarded
from tests.service.http.test_middleware import error_of
from tests.service.parts import NOON


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_only_a_valid_key_is_accepted():
    guarded = Guarded()
    made = guarded.key()
    answers = guarded.ask(
        ("GET", "/things/1", {"headers": bearer(made.token)}),
        ("GET", "/things/1", {"headers": {"authorization": f"bearer  {made.token} "}}),
        ("GET", "/things/1", {}),
        ("GET", "/things/1", {"headers": bearer("sk-of-another-service")}),
        ("GET", "/things/1", {"headers": bearer(made.token[:-1])}),
        ("GET", "/things/1", {"headers": {"authorization": made.token}}),
        ("GET", "/things/1", {"headers": {"authorization": "Bearer"}}),
    )

    assert [answer.status_code for answer in answers] == [200, 200, 401, 401, 401, 401, 401]
    assert answers[0].json() == {"tenant": "acme", "key": made.key.id}
    for answer in answers[2:]:
        assert error_of(answer)["type"] == "authentication_error"
        assert error_of(answer)["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_needs_the_scope_or_admin(scope):
    guarded = Guarded()
    made = guarded.key(scopes=[scope])
    read, write = guarded.ask(
        ("GET", "/things/1", {"headers": bearer(made.token)}), ("POST", "/things", {"headers": bearer(made.token)})
    )

    assert read.status_code == (200 if scope in {"read", "admin"} else 403)
    assert write.status_code == (200 if scope in {"write", "admin"} else 403)
    for answer in (read, write):
        if answer.status_code == 403:
            assert error_of(answer)["code"] == "insufficient_scope"


def test_a_revoked_key_is_rejected_immediately():
    guarded = Guarded()
    made = guarded.key()
    asyncio.run(guarded.service.keys.revoke(made.key.id))

    assert guarded.get("/things/1", headers=bearer(made.token)).status_code == 401


def test_without_keys_only_this_machine_is_accepted():
    guarded = Guarded()
    here = guarded.ask(("GET", "/things/1", {}), ("GET", "/things/1", {"headers": bearer("none")}))
    ipv6 = guarded.ask(("GET", "/things/1", {}), client=("::1", 1))
    mapped = guarded.ask(("GET", "/things/1", {}), client=("::ffff:127.0.0.1", 1))
    far = guarded.ask(("GET", "/things/1", {}), client=("192.0.2.7", 1))

    assert [answer.status_code for answer in here + ipv6 + mapped + far] == [200, 200, 200, 200, 401]
    assert here[0].json() == {"tenant": "default", "key": None}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": "evil.example:8000"},
        {"host": "[::1"},
        {"x-forwarded-for": "192.0.2.7"},
        {"forwarded": "for=192.0.2.7"},
    ],
    ids=["origin", "opaque origin", "another name", "no name", "proxy", "new proxy"],
)
def test_without_keys_requests_of_foreign_pages_and_proxies_are_rejected(headers):
    assert Guarded().get("/things/1", headers=headers).status_code == 401


@pytest.mark.parametrize("headers", [{"origin": "http://localhost:3000"}, {"host": "localhost"}, {"host": "chat"}])
def test_without_keys_requests_of_local_pages_are_accepted(headers):
    assert Guarded().get("/things/1", headers=headers).status_code == 200


def test_a_key_is_accepted_from_any_address():
    guarded = Guarded()
    made = guarded.key()
    headers = bearer(made.token) | {"origin": "https://app.example", "x-forwarded-for": "192.0.2.7"}

    assert guarded.ask(("GET", "/things/1", {"headers": headers}), client=("192.0.2.7", 1))[0].status_code == 200


def test_the_rate_limit_error_has_the_seconds_to_wait():
    guarded = Guarded(requests_per_minute=2)
    made = guarded.key()
    asked = ("GET", "/things/1", {"headers": bearer(made.token)})
    answers = guarded.ask(asked, asked, asked)

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert error_of(answers[2])["type"] == "rate_limit_error"
    assert "2 requests per minute" in error_of(answers[2])["message"]
    assert answers[2].headers["retry-after"] == "30"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST.", "::ffff:127.0.0.1"]
)
def test_loopback_needs_no_keys(host):
    assert is_loopback(host)
    require_keys_for_remote(host, has_keys=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com", "localhost.example.com", ""])
def test_other_addresses_need_keys(host):
    require_keys_for_remote(host, has_keys=True)
    with pytest.raises(InvalidSetting, match="minutebook keys create"):
        require_keys_for_remote(host, has_keys=False)


def test_a_key_that_is_bound_to_a_recipient_finds_no_other_conversations():
    hers = ConversationHeader("acme", "c1", "alice", NOON, NOON, NOON)

    assert require_access(Caller("acme", recipient="alice"), hers) is hers
    assert require_access(Caller("acme"), hers) is hers
    with pytest.raises(ConversationNotFound):
        require_access(Caller("acme", recipient="bob"), hers)
