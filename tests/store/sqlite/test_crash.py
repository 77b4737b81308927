"""Acknowledged means stored: writers that are killed, and writers in two processes. `make torture` does more of it."""

import apsw
import pytest

from tests.store.writing import acknowledged, start, whole_turns
from torture.killing import kill_writers
from torture.ledger import Found
from torture.sharing import share

KILLS, WRITERS = 10, 4


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'chat.db'}"


def test_no_acknowledged_turn_of_a_killed_writer_is_lost_and_no_retry_is_stored_twice(url, tmp_path):
    tally = kill_writers(lambda _: url, KILLS)

    assert tally.found == Found()
    assert tally.kills == KILLS
    assert tally.acknowledged > KILLS
    with apsw.Connection(str(tmp_path / "chat.db")) as db:
        assert db.execute("PRAGMA integrity_check").get == "ok"


def test_a_killed_writer_that_starts_over_stores_nothing_twice(url):
    for most in (4, 8, 13, 100):
        acknowledged(start(url, "a", WRITERS, 5, "same"), most)

    assert sorted(whole_turns(url, "a")) == sorted(
        f"same {writer} {at}" for writer in range(WRITERS) for at in range(5)
    )


def test_two_processes_write_one_conversation_and_each_keeps_its_order(url):
    tally = share(url, writers=20, messages=10)

    assert tally.found == Found()
    assert tally.acknowledged == 200
