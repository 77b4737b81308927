"""The checks of `make torture` find the problems that they are for."""

import asyncio

import pytest

from minutebook.store.url import open_store
from torture.ledger import Found, Ledger
from torture.writing import turn

FIRST, SECOND = turn("client 0 0"), turn("client 0 1")


@pytest.fixture
def ledger(tmp_path):
    return Ledger(f"sqlite:///{tmp_path / 'chat.db'}", "a")


def write(ledger, *appends):
    async def scenario():
        async with open_store(ledger.url) as store:
            for entries in appends:
                await store.append("a", entries, broken="mark")

    asyncio.run(scenario())


def found(ledger, *appends):
    write(ledger, *appends)
    ledger.check()
    return ledger.found


def test_complete_turns_in_order_have_no_problems(ledger):
    assert found(ledger, FIRST, SECOND) == Found()
    assert ledger.unheard == 2


def test_an_acknowledged_turn_that_is_missing_is_lost(ledger):
    ledger.acknowledged |= {"client 0 0", "client 0 1"}

    assert found(ledger, FIRST) == Found(lost=1)


def test_all_acknowledged_turns_are_lost_if_the_conversation_is_missing(ledger):
    ledger.acknowledged.add("client 0 0")
    ledger.check()

    assert ledger.found == Found(lost=1)


@pytest.mark.parametrize("kept", range(1, 5))
def test_a_part_of_a_turn_is_a_half(ledger, kept):
    assert found(ledger, FIRST[:kept], SECOND).halves == 1


def test_a_turn_without_its_start_is_a_half(ledger):
    assert found(ledger, FIRST[4:], SECOND).halves == 1


def test_a_turn_that_is_stored_twice_is_doubled(ledger):
    assert found(ledger, FIRST, FIRST, SECOND).doubled == 1


def test_turns_in_another_order_are_disordered(ledger):
    assert found(ledger, SECOND, FIRST).disordered == 2


def test_only_new_entries_are_read(ledger):
    assert found(ledger, FIRST) == Found()
    assert found(ledger, SECOND) == Found()
    assert list(ledger.stored.elements()) == ["client 0 0", "client 0 1"]
