import asyncio
import hashlib
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import MemoryStore
from minutebook.errors import DocumentNotFound, InvalidSetting, RequestRefused, StoreUnavailable
from minutebook.service.access.api_keys import CACHE_SECONDS, ApiKeys
from minutebook.store.types import RESERVED_TENANT
from tests.service.clocks import Clock
from tests.store.backends import BACKENDS


def keys_on(store, clock=None, **options):
    clock = clock or Clock()
    return ApiKeys(store, clock=clock.now, monotonic=clock.monotonic, **options)


async def refusal_of(keys, token):
    with pytest.raises(RequestRefused) as refused:
        await keys.verify(token)
    assert refused.value.status == 401
    assert dict(refused.value.headers)["www-authenticate"].startswith("Bearer")
    assert not token or token not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_a_key_has_its_rights_on_every_replica(make, tmp_path):
    async def main():
        async with make(tmp_path) as store:
            made = await keys_on(store).create(
                "phone", tenant="acme", scopes=["chat"], recipient="alice", requests_per_minute=5, tokens_per_day=7
            )
            return made, await keys_on(store).verify(made.token)

    made, caller = asyncio.run(main())
    assert made.token.startswith(f"mb_{made.key.id}_")
    assert (caller.tenant, caller.key_id, caller.recipient) == ("acme", made.key.id, "alice")
    assert caller.scopes == {"chat"}
    assert (caller.requests_per_minute, caller.tokens_per_day) == (5, 7)


def test_only_the_hash_and_the_last_characters_of_a_token_are_stored():
    async def main():
        store = MemoryStore()
        made = await ApiKeys(store).create("phone", tenant="acme")
        return made, (await store.for_tenant(RESERVED_TENANT).document("key", made.key.id)).body

    made, body = asyncio.run(main())
    secret = made.token.split("_", 2)[2]
    assert body["sha256"] == hashlib.sha256(made.token.encode()).hexdigest()
    assert body["last4"] == secret[-4:]
    assert secret[:8] not in str(body)
    assert made.token not in repr(made)
    assert "sha256" not in made.key.to_json()


def changed(token, place):
    """The same token with another character there."""
    return token[:place] + ("a" if token[place] != "a" else "b") + token[place + 1 :]


@given(st.data())
def test_a_changed_token_is_rejected(data):
    async def main():
        keys = keys_on(MemoryStore())
        made = await keys.create("phone", tenant="acme")
        place = data.draw(st.integers(0, len(made.token) - 1))
        await refusal_of(keys, changed(made.token, place))
        await refusal_of(keys, made.token[:place])
        await refusal_of(keys, made.token + "x")

    asyncio.run(main())


@given(st.text(max_size=80))
def test_any_other_text_is_rejected_without_quoting_it(text):
    async def main():
        keys = keys_on(MemoryStore())
        with pytest.raises(RequestRefused) as refused:
            await keys.verify(text)
        assert refused.value.status == 401
        assert refused.value.problem == "Unknown API key."

    asyncio.run(main())


def test_a_revocation_is_effective_immediately_here_and_elsewhere_after_the_cache_expires():
    async def main():
        store, clock = MemoryStore(), Clock()
        here, elsewhere = keys_on(store, clock), keys_on(store, clock)
        made = await here.create("phone", tenant="acme")
        await elsewhere.verify(made.token)
        await here.revoke(made.key.id)

        assert "revoked" in await refusal_of(here, made.token)
        clock.pass_by(CACHE_SECONDS)
        assert "revoked" in await refusal_of(elsewhere, made.token)
        assert [key.state(clock.now()) for key in await here.list()] == ["ended"]

    asyncio.run(main())


def test_a_rotated_key_works_until_the_overlap_is_over():
    async def main():
        store, clock = MemoryStore(), Clock()
        keys = keys_on(store, clock)
        old = await keys.create("phone", tenant="acme", scopes=["read"], recipient="alice", tokens_per_day=9)
        new = await keys.rotate(old.key.id, overlap_seconds=60)

        before, after = await keys.verify(old.token), await keys.verify(new.token)
        assert (before.tenant, before.scopes, before.recipient, before.tokens_per_day) == (
            after.tenant,
            after.scopes,
            after.recipient,
            after.tokens_per_day,
        )
        clock.pass_by(60)
        assert "revoked" in await refusal_of(keys, old.token)
        await keys.verify(new.token)

    asyncio.run(main())


def test_a_revoked_key_cannot_be_rotated():
    async def main():
        keys = keys_on(MemoryStore())
        made = await keys.create("phone", tenant="acme")
        await keys.revoke(made.key.id)
        with pytest.raises(InvalidSetting, match="revoked"):
            await keys.rotate(made.key.id, overlap_seconds=60)
        assert len(await keys.list()) == 1
        await refusal_of(keys, made.token)

    asyncio.run(main())


def test_a_rotated_key_can_be_revoked_immediately():
    async def main():
        keys = keys_on(MemoryStore())
        made = await keys.create("phone", tenant="acme")
        await keys.rotate(made.key.id, overlap_seconds=3_600)
        await keys.revoke(made.key.id)
        await refusal_of(keys, made.token)

    asyncio.run(main())


def test_the_replacement_of_a_key_has_the_same_lifetime():
    async def main():
        clock = Clock()
        keys = keys_on(MemoryStore(), clock)
        made = await keys.create("phone", tenant="acme", expires_at=clock.now() + timedelta(days=1))
        clock.pass_by(3_600)
        new = await keys.rotate(made.key.id)
        clock.pass_by(23 * 3_600)

        assert "expired" in await refusal_of(keys, made.token)
        assert new.key.expires_at - new.key.created_at == timedelta(days=1)
        await keys.verify(new.token)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tenant": RESERVED_TENANT}, "another name"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": "a", "scopes": []}, "scopes"),
        ({"tenant": "a", "scopes": ["everything"]}, "scopes"),
        ({"tenant": "a", "recipient": ""}, "recipient"),
        ({"tenant": "a", "requests_per_minute": 0}, "requests_per_minute"),
        ({"tenant": "a", "tokens_per_day": -1}, "tokens_per_day"),
        ({"tenant": "a", "expires_at": Clock().now()}, "a time in the future"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_key_with_an_invalid_field_is_not_created(options, problem):
    async def main():
        keys = keys_on(MemoryStore())
        with pytest.raises(InvalidSetting, match=problem):
            await keys.create("phone", **options)
        assert await keys.list() == []

    asyncio.run(main())


def test_a_token_cannot_be_the_name_of_a_key():
    async def main():
        keys = keys_on(MemoryStore())
        made = await keys.create("phone", tenant="acme")
        with pytest.raises(InvalidSetting, match="a description of its use") as refused:
            await keys.create(made.token, tenant="acme")
        assert made.token not in str(refused.value)

    asyncio.run(main())


def test_a_service_that_had_keys_always_requires_a_key():
    async def main():
        clock = Clock()
        keys = keys_on(MemoryStore(), clock)
        before = await keys.any()
        made = await keys.create("phone", tenant="acme")
        await keys.revoke(made.key.id)
        clock.pass_by(CACHE_SECONDS)
        return before, await keys.any()

    assert asyncio.run(main()) == (False, True)


def test_other_replicas_notice_the_first_key():
    async def main():
        store, clock = MemoryStore(), Clock()
        here, elsewhere = keys_on(store, clock), keys_on(store, clock)
        before = await elsewhere.any()
        await here.create("phone", tenant="acme")
        clock.pass_by(CACHE_SECONDS)
        return before, await elsewhere.any()

    assert asyncio.run(main()) == (False, True)


def test_the_last_use_of_a_key_is_stored_by_flush():
    async def main():
        clock = Clock()
        keys = keys_on(MemoryStore(), clock)
        made = await keys.create("phone", tenant="acme")
        clock.pass_by(100)
        await keys.verify(made.token)
        before = (await keys.get(made.key.id)).last_used_at
        await keys.flush()
        return clock, before, (await keys.get(made.key.id)).last_used_at

    clock, before, after = asyncio.run(main())
    assert before is None
    assert after == clock.now()


def test_an_unknown_key_cannot_be_revoked():
    with pytest.raises(DocumentNotFound):
        asyncio.run(keys_on(MemoryStore()).revoke("0f3a9c1b2d4e"))


@pytest.mark.parametrize("stale_seconds", [0.0, 60.0])
def test_without_the_store_a_cached_key_is_valid_for_stale_seconds(stale_seconds):
    async def main():
        store, clock = MemoryStore(), Clock()
        keys = keys_on(store, clock, stale_seconds=stale_seconds)
        made = await keys.create("phone", tenant="acme")
        await keys.verify(made.token)
        await keys.any()
        await store.close()
        clock.pass_by(CACHE_SECONDS + 1)
        if not stale_seconds:
            with pytest.raises(StoreUnavailable):
                await keys.verify(made.token)
            return
        assert (await keys.verify(made.token)).key_id == made.key.id
        assert await keys.any()
        clock.pass_by(stale_seconds)
        with pytest.raises(StoreUnavailable):
            await keys.verify(made.token)

    asyncio.run(main())


def test_keys_are_hidden_from_all_tenants():
    async def main():
        store = MemoryStore()
        await ApiKeys(store).create("phone", tenant="acme")
        return [len((await store.for_tenant(tenant).list()).items) for tenant in ("acme", "default", RESERVED_TENANT)]

    assert asyncio.run(main()) == [0, 0, 1]
