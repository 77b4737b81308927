import asyncio
from datetime import UTC, datetime, timedelta

from minutebook.conversation.requests import usage_totals
from minutebook.service.access.api_keys import ApiKeys
from minutebook.service.app import build_service, expire_all_tenants, remove_expired, run_service
from minutebook.service.config.loader import ConfigHolder
from minutebook.store.memory import MemoryStore
from minutebook.store.types import NewDocument
from minutebook.testing.contract.samples import text_entries
from tests.service.serving import served

MONTH = timedelta(days=30)


class Clock:
    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now


def service_on(store):
    environment = {"MINUTEBOOK_DB": "memory:", "MINUTEBOOK_UPSTREAM_URL": "http://127.0.0.1:9"}
    return build_service(ConfigHolder(environment=environment), store=store)


def test_expired_conversations_of_every_tenant_are_removed_and_api_keys_are_not():
    clock = Clock()
    store = MemoryStore(clock=clock, expire_after=MONTH)

    async def scenario():
        service = service_on(store)
        token = (await service.keys.create("phone", tenant="acme")).token
        for tenant in (store.tenant, "acme"):
            await store.for_tenant(tenant).append("old", text_entries("x"))
        clock.now += MONTH + timedelta(seconds=1)
        await store.append("new", text_entries("x"))

        assert await expire_all_tenants(service) == 2
        assert await expire_all_tenants(service) == 0

        for tenant, left in ((store.tenant, ["new"]), ("acme", [])):
            everything = await store.for_tenant(tenant).with_expiry(None).list()
            assert [header.id for header in everything.items] == left
        assert [key.name for key in await ApiKeys(store).list()] == ["phone"]
        assert (await ApiKeys(store).verify(token)).tenant == "acme"

    asyncio.run(scenario())


def test_a_running_service_removes_expired_conversations():
    clock = Clock()
    store = MemoryStore(clock=clock, expire_after=MONTH)

    async def scenario():
        service = service_on(store)
        tenant = store.for_tenant("acme")
        await service.keys.create("phone", tenant="acme")
        await tenant.append("old", text_entries("x"))
        async with remove_expired(service, seconds=0):
            clock.now += MONTH + timedelta(seconds=1)
            while (await tenant.with_expiry(None).list()).items:  # noqa: ASYNC110 - lets the task run
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_service_without_the_setting_removes_nothing():
    clock = Clock()
    store = MemoryStore(clock=clock)

    async def scenario():
        await store.append("old", text_entries("x"))
        clock.now += timedelta(days=10_000)
        async with run_service(service_on(store)):
            return (await store.list()).items

    assert len(asyncio.run(scenario())) == 1


def test_the_setting_makes_an_old_conversation_not_found(tmp_path):
    path = tmp_path / "chat.db"
    config = "database: {expire_after: 30d}"
    with served(db=f"sqlite:///{path}", config=config, folder=tmp_path) as here:
        assert here.service.store.expire_after == MONTH
        http = here.http()
        conversation = http.post("/v1/conversations", json={}).json()["id"]
        assert http.get(f"/v1/conversations/{conversation}").status_code == 200
        here.service.store.backend.set_clock(lambda: datetime.now(UTC) + MONTH + timedelta(seconds=60))

        assert http.get(f"/v1/conversations/{conversation}").status_code == 404


def test_a_running_service_removes_old_minutes_of_every_tenant_and_keeps_their_usage():
    clock = Clock()
    store = MemoryStore(clock=clock)
    body = {"number": 1, "model": "m", "asked_at": clock.now.isoformat(), "usage": {"prompt_tokens": 5}}

    async def scenario():
        service = service_on(store)
        tenant = store.for_tenant("acme")
        await service.keys.create("phone", tenant="acme")
        await tenant.append("a", text_entries("x"), documents=[NewDocument("request", "old", body)])
        clock.now += MONTH
        await tenant.append("a", text_entries("y"), documents=[NewDocument("request", "new", {**body, "number": 2})])
        clock.now += timedelta(seconds=1)
        async with remove_expired(service, seconds=0):
            while len((await tenant.documents("a", "request")).items) > 1:  # noqa: ASYNC110 - lets the task run
                await asyncio.sleep(0)
        (total,) = await usage_totals(tenant)
        return [document.id for document in (await tenant.documents("a", "request")).items], total

    left, total = asyncio.run(asyncio.wait_for(scenario(), 30))
    assert left == ["new"]
    assert (total.requests, total.usage.input_tokens) == (2, 10)
