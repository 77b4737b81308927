import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import MemoryStore
from minutebook.errors import InvalidSetting
from minutebook.service.access.api_keys import Caller
from minutebook.service.access.audit import AuditLog, erased_target
from tests.service.clocks import Clock
from tests.store.backends import BACKENDS

ADMIN = Caller("acme", "0f3a9c1b2d4e")


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_the_log_has_the_caller_the_action_and_the_target(make, tmp_path):
    async def main():
        async with make(tmp_path) as store:
            audit = AuditLog(store, clock=Clock().now)
            noted = [await audit.note(ADMIN, "fork", f"conv_{number}") for number in range(3)]
            return noted, [entry async for entry in audit.entries()]

    noted, entries = asyncio.run(main())
    assert entries == noted
    assert [(entry.number, entry.act, entry.target, entry.tenant, entry.key_id) for entry in entries] == [
        (number, "fork", f"conv_{number}", "acme", "0f3a9c1b2d4e") for number in range(3)
    ]


def test_a_new_log_is_empty():
    async def main():
        return [entry async for entry in AuditLog(MemoryStore()).entries()]

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("make", BACKENDS.values(), ids=BACKENDS)
def test_replicas_that_write_concurrently_share_one_log(make, tmp_path):
    async def main():
        async with make(tmp_path) as store:
            replicas = [AuditLog(store) for _ in range(4)]
            await asyncio.gather(*(replicas[number % 4].note(ADMIN, "fork", f"conv_{number}") for number in range(20)))
            return [entry async for entry in AuditLog(store).entries()]

    entries = asyncio.run(main())
    assert [entry.number for entry in entries] == list(range(20))
    assert sorted(entry.target for entry in entries) == sorted(f"conv_{number}" for number in range(20))


@given(st.text(max_size=100))
def test_any_text_can_be_a_target(target):
    async def main():
        audit = AuditLog(MemoryStore())
        noted = await audit.note(ADMIN, "fork", target)
        return noted, [entry async for entry in audit.entries()]

    noted, entries = asyncio.run(main())
    assert entries == [noted]


def test_an_erased_target_is_logged_as_its_hash():
    async def main():
        entry = await AuditLog(MemoryStore()).note(ADMIN, "erase", "alice")
        return entry.target

    target = asyncio.run(main())
    assert "alice" not in target
    assert target == erased_target("alice") != erased_target("bob")


def test_a_secret_in_a_target_is_redacted():
    async def main():
        audit = AuditLog(MemoryStore())
        entry = await audit.note(ADMIN, "fork", "sk-proj-" + "a1" * 20)
        with pytest.raises(InvalidSetting):
            await audit.note(ADMIN, "fork", "x" * 513)
        return entry.target

    assert asyncio.run(main()) == "[redacted]"
