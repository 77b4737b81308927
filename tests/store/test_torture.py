"""The checker of `make torture` finds each kind of violation."""

import asyncio

import pytest

from minutebook.store.url import open_store
from torture.checker import ConversationChecker, Violations
from torture.writers import turn

FIRST, SECOND = turn("client 0 0"), turn("client 0 1")


@pytest.fixture
def checker(tmp_path):
    return ConversationChecker(f"sqlite:///{tmp_path / 'chat.db'}", "a")


def violations_after(checker, *appends):
    """Append entries, and check the conversation."""

    async def append_all():
        async with open_store(checker.url) as store:
            for entries in appends:
                await store.append("a", entries, broken="mark")

    asyncio.run(append_all())
    checker.check()
    return checker.violations


def test_complete_turns_in_order_are_no_violation(checker):
    assert violations_after(checker, FIRST, SECOND) == Violations()
    assert checker.unacknowledged == 2


def test_a_turn_that_was_acknowledged_and_is_not_stored_is_lost(checker):
    checker.acknowledged |= {"client 0 0", "client 0 1"}

    assert violations_after(checker, FIRST) == Violations(lost=1)


def test_without_a_conversation_all_acknowledged_turns_are_lost(checker):
    checker.acknowledged.add("client 0 0")
    checker.check()

    assert checker.violations == Violations(lost=1)


@pytest.mark.parametrize("count", range(1, 5))
def test_a_turn_without_its_end_is_partial(checker, count):
    assert violations_after(checker, FIRST[:count], SECOND).partial == 1


def test_a_turn_without_its_start_is_partial(checker):
    assert violations_after(checker, FIRST[4:], SECOND).partial == 1


def test_a_turn_that_is_stored_twice_is_a_duplicate(checker):
    assert violations_after(checker, FIRST, FIRST, SECOND).duplicates == 1


def test_turns_in_another_order_are_out_of_order(checker):
    assert violations_after(checker, SECOND, FIRST).out_of_order == 2


def test_a_second_check_reads_only_new_entries(checker):
    assert violations_after(checker, FIRST) == Violations()
    assert violations_after(checker, SECOND) == Violations()
    assert list(checker.stored.elements()) == ["client 0 0", "client 0 1"]
