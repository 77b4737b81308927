"""One manager for many conversations and threads; one transcript for one writer and many readers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from minutebook import Transcript
from minutebook.testing import coding_session
from tests.every import MANAGERS
from tests.history.test_manager_guarantees import curated

SESSIONS = [coding_session(seed=seed, turns=2) for seed in range(4)]


@pytest.mark.parametrize("name", ["window 4 slack 3", "budget", "clear, strip, budget", "truncate 30 keep 2"])
def test_threads_that_share_a_manager_get_their_own_views(name):
    manager = MANAGERS[name]

    def work(number):
        transcript = Transcript(SESSIONS[number % 4])
        return [list(curated(manager, transcript) or ()) for _ in range(3)]

    with ThreadPoolExecutor(8) as pool:
        views = list(pool.map(work, range(32)))

    for number, found in enumerate(views):
        assert found == [list(curated(manager, SESSIONS[number % 4]) or ())] * 3


@pytest.mark.parametrize("name", ["window 4 slack 3", "budget", "clear, strip, budget"])
def test_readers_of_one_growing_transcript_see_views_of_some_length_of_it(name):
    manager = MANAGERS[name]
    chat = SESSIONS[0][:80]
    possible = [curated(manager, chat[:length]) for length in range(len(chat) + 1)]
    transcript = Transcript()

    def read(_):
        return [curated(manager, transcript) for _ in range(10)]

    with ThreadPoolExecutor(6) as pool:
        reading = [pool.submit(read, number) for number in range(5)]
        transcript.extend(chat)
        views = [view for future in reading for view in future.result()]

    assert all(view in possible for view in views)
    assert curated(manager, transcript) == possible[-1]
