"""Old minutes are removed in batches, and their usage is counted exactly once."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from minutebook import AsyncConversation, MemoryStore
from minutebook.agent.messages import Usage
from minutebook.conversation import requests
from minutebook.conversation.requests import remove_requests, usage_totals
from minutebook.errors import RequestNotFound
from minutebook.store.types import REQUEST_KIND, RESERVED_TENANT, NewDocument
from minutebook.testing.contract.samples import text_entries
from tests.store.backends import BACKENDS

DAY = timedelta(days=1)
TOMORROW = datetime.now(UTC) + DAY


def minutes(number, *, model="small", day="2026-03-01", conversation="a", tokens=10):
    body = {
        "number": number,
        "model": model,
        "asked_at": f"{day}T12:00:00+00:00",
        "usage": {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1},
    }
    return NewDocument(REQUEST_KIND, f"{conversation}-{number}", body)


async def fill(store, conversation, count, **fields):
    documents = [minutes(number, conversation=conversation, **fields) for number in range(1, count + 1)]
    await store.append(conversation, text_entries("1"), documents=documents)


def rows(totals):
    return [(str(total.day), total.model, total.requests, total.usage.input_tokens) for total in totals]


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_the_usage_of_removed_minutes_stays(make, tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "_PAGE_SIZE", 4)

    async def main():
        async with make(tmp_path) as store:
            await fill(store, "a", 7)
            await fill(store, "b", 2, model="large", day="2026-03-02")
            await fill(store.for_tenant("other"), "a", 1)
            before = rows(await usage_totals(store))
            removed = await remove_requests(store, TOMORROW)
            left = [
                *(await store.documents("a", REQUEST_KIND)).items,
                *(await store.documents("b", REQUEST_KIND)).items,
            ]
            again = await remove_requests(store, TOMORROW)
            numbers = [(await store.header(name)).requests for name in ("a", "b")]
            others = rows(await usage_totals(store.for_tenant("other")))
            return before, removed, left, again, numbers, rows(await usage_totals(store)), others

    before, removed, left, again, numbers, totals, others = asyncio.run(main())
    assert totals == before == [("2026-03-01", "small", 7, 70), ("2026-03-02", "large", 2, 20)]
    assert (removed, left, again, numbers) == (9, [], 0, [7, 2])
    assert others == [("2026-03-01", "small", 1, 10)]


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_processes_that_remove_minutes_at_the_same_time_count_each_once(make, tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "_PAGE_SIZE", 3)

    async def main():
        async with make(tmp_path) as store:
            for name in "abcd":
                await fill(store, name, 5)
            await asyncio.gather(*(remove_requests(store, TOMORROW) for _ in range(3)))
            return rows(await usage_totals(store)), (await store.requests_before(TOMORROW)).items

    assert asyncio.run(main()) == ([("2026-03-01", "small", 20, 200)], ())


def test_minutes_that_were_counted_before_a_crash_are_deleted_and_not_counted_again():
    class Crash(BaseException):
        pass

    class CrashingStore(MemoryStore):
        crashes = True

        async def delete_documents(self, kind, document_ids):
            if self.crashes:
                raise Crash
            return await super().delete_documents(kind, document_ids)

    async def main():
        store = CrashingStore()
        await fill(store, "a", 3)
        with pytest.raises(Crash):
            await remove_requests(store, TOMORROW)
        store.crashes = False
        between = rows(await usage_totals(store))
        await store.put_document("a", minutes(4))
        await remove_requests(store, TOMORROW)
        return between, rows(await usage_totals(store)), (await store.requests_before(TOMORROW)).items

    between, totals, left = asyncio.run(main())
    assert between == [("2026-03-01", "small", 3, 30)]
    assert totals == [("2026-03-01", "small", 4, 40)]
    assert left == ()


def test_minutes_after_the_time_stay():
    async def main():
        store = MemoryStore(clock=lambda: datetime(2026, 3, 1, tzinfo=UTC))
        await fill(store, "a", 2)
        return await remove_requests(store, datetime(2026, 3, 1, tzinfo=UTC)), (await store.header("a")).requests

    assert asyncio.run(main()) == (0, 2)


def test_requests_are_numbered_on_after_their_minutes_were_removed():
    async def main():
        store = MemoryStore()
        for text in ("one", "two"):
            chat = AsyncConversation("a", store=store)
            await chat.append({"role": "user", "content": text})
            await chat.view()
            await chat.append({"role": "assistant", "content": "yes"})
        await remove_requests(store, TOMORROW)
        chat = AsyncConversation("a", store=store)
        await chat.append({"role": "user", "content": "three"})
        view = await chat.view()
        with pytest.raises(RequestNotFound):
            await chat.request(2)
        return view.number, (await chat.request(3)).number

    assert asyncio.run(main()) == (3, 3)


def test_totals_are_not_conversations_of_the_tenant():
    async def main():
        store = MemoryStore()
        await fill(store, "a", 1)
        await remove_requests(store, TOMORROW)
        reserved = await store.for_tenant(RESERVED_TENANT).list()
        return [header.id for header in (await store.list()).items], len(reserved.items), await usage_totals(store)

    names, reserved, (total,) = asyncio.run(main())
    assert (names, reserved) == (["a"], 1)
    assert total.usage == Usage(10, 1)
