import asyncio

import pytest

from minutebook.testing.contract.samples import summary_fold, text_entries
from tests.store.backends import BACKENDS


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a_fold_covers_the_folds_within_it_and_no_other(backend, tmp_path):
    async def scenario():
        async with BACKENDS[backend](tmp_path) as store:
            await store.append("a", text_entries(*(f"{number}" for number in range(12))))
            for start in (0, 1, 2, 6, 7, 10):
                await store.add_fold("a", summary_fold(f"f{start}", start, start + 1))
            await store.add_fold("a", summary_fold("wide", 1, 7))

            everything = [fold.id for fold in (await store.load("a")).folds]
            middle = [fold.id for fold in (await store.load("a", since=6, limit=2)).folds]
            between = (await store.load("a", since=8, limit=2)).folds
            end = [fold.id for fold in (await store.load("a", last_messages=2)).folds]
            assert (everything, middle, between, end) == (["f0", "wide", "f7", "f10"], ["wide", "f7"], (), ["f10"])

            await store.undo_fold("a", "wide")
            assert [fold.id for fold in (await store.load("a", since=1, limit=6)).folds] == ["f1", "f2", "f6"]

    asyncio.run(scenario())
