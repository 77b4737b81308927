"""What `make torture` counts is counted: a check that finds nothing wrong must be able to."""

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
    async def story():
        async with open_store(ledger.url) as store:
            for entries in appends:
                await store.append("a", entries, broken="mark")

    asyncio.run(story())


def found(ledger, *appends):
    write(ledger, *appends)
    ledger.check()
    return ledger.found


def test_whole_turns_in_order_are_nothing_to_be_found(ledger):
    assert found(ledger, FIRST, SECOND) == Found()
    assert ledger.unheard == 2


def test_a_turn_that_was_acknowledged_and_is_not_there_is_lost(ledger):
    ledger.acknowledged |= {"client 0 0", "client 0 1"}

    assert found(ledger, FIRST) == Found(lost=1)


def test_nothing_at_all_is_a_loss_of_all_that_was_acknowledged(ledger):
    ledger.acknowledged.add("client 0 0")
    ledger.check()

    assert ledger.found == Found(lost=1)


@pytest.mark.parametrize("kept", range(1, 5))
def test_a_part_of_a_turn_is_a_half(ledger, kept):
    assert found(ledger, FIRST[:kept], SECOND).halves == 1


def test_a_turn_whose_beginning_is_missing_is_a_half(ledger):
    assert found(ledger, FIRST[4:], SECOND).halves == 1


def test_a_turn_that_is_there_twice_is_doubled(ledger):
    assert found(ledger, FIRST, FIRST, SECOND).doubled == 1


def test_turns_in_another_order_are_disordered(ledger):
    assert found(ledger, SECOND, FIRST).disordered == 2


def test_only_what_is_new_is_read_again(ledger):
    assert found(ledger, FIRST) == Found()
    assert found(ledger, SECOND) == Found()
    assert list(ledger.stored.elements()) == ["client 0 0", "client 0 1"]
