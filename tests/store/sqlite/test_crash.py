"""Acknowledged means stored: writers that are killed, and writers in two processes. `make torture` does more of it."""

import apsw
import pytest

from tests.store.writing import acknowledged, start, whole_turns
from torture.checker import Violations
from torture.concurrency import write_from_two_processes
from torture.kills import kill_writers

KILLS, WRITERS = 10, 4


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'chat.db'}"


def test_no_acknowledged_turn_of_a_killed_writer_is_lost_and_no_retry_is_stored_twice(url, tmp_path):
    result = kill_writers(lambda _: url, KILLS)

    assert result.violations == Violations()
    assert result.kills == KILLS
    assert result.acknowledged > KILLS
    with apsw.Connection(str(tmp_path / "chat.db")) as db:
        assert db.execute("PRAGMA integrity_check").get == "ok"


def test_a_killed_writer_that_starts_over_stores_nothing_twice(url):
    for max_keys in (4, 8, 13, 100):
        acknowledged(start(url, "a", WRITERS, 5, "same"), max_keys)

    assert sorted(whole_turns(url, "a")) == sorted(
        f"same {writer} {at}" for writer in range(WRITERS) for at in range(5)
    )


def test_two_processes_write_one_conversation_and_each_keeps_its_order(url):
    result = write_from_two_processes(url, writers=20, messages=10)

    assert result.violations == Violations()
    assert result.acknowledged == 200
