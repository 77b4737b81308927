"""No deleted text is left in the file after `vacuum(rewrite=True)`."""

import asyncio
from random import Random

from minutebook.store import open_store
from minutebook.testing.contract.samples import text_entries

GONE, STAYS = "gone-zqx", "stays"
CONVERSATIONS = 60


def test_a_rewrite_removes_the_copies_that_sqlite_leaves_when_it_moves_rows(tmp_path):
    """Rows of different lengths, written in any order, are moved between pages. Some copies are left in the former ones."""
    choice = Random(2)

    async def scenario():
        async with open_store(tmp_path / "chat.db") as store:
            for _ in range(1_500):
                number = choice.randrange(CONVERSATIONS)
                word, recipient = (GONE, "alice") if number % 2 else (STAYS, "bob")
                texts = [f"{word} {'x' * choice.choice([3, 40, 200, 350])}" for _ in range(choice.choice([1, 2, 6]))]
                await store.append(f"c{number}", text_entries(*texts), recipient=recipient)
            await store.erase(recipient="alice")
            await store.vacuum(rewrite=True)
            assert [(await store.header(f"c{number}")).recipient for number in range(0, CONVERSATIONS, 2)] == [
                "bob"
            ] * 30

    asyncio.run(scenario())

    data = (tmp_path / "chat.db").read_bytes()
    assert GONE.encode() not in data
    assert STAYS.encode() in data
