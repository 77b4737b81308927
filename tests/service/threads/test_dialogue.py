import asyncio

from hypothesis import given
from hypothesis import strategies as st

from minutebook.record.message import is_system, is_user
from minutebook.service.threads.objects import rows_of, said_in
from minutebook.store.memory import MemoryStore
from tests.service.parts import entries, turns
from tests.strategies import conversations


async def paged(messages, limit):
    store = MemoryStore()
    await store.append("c", entries(messages), expected_version=0)
    found, place = [], 0
    while place is not None:
        _, page = await rows_of(store, "c", start=place, limit=limit)
        found.append(page.rows)
        place = page.next
    return found


@given(conversations(), st.integers(1, 5))
def test_pages_hold_every_message_once_and_are_the_same_rows_however_they_are_cut(messages, limit):
    pages = asyncio.run(paged(messages, limit))
    whole = asyncio.run(paged(messages, 10_000))

    rows = [row for page in pages for row in page]
    places = [place for row in rows for place in range(row.start, row.stop)]
    assert [rows] == whole
    assert places == [at for at, message in enumerate(messages) if not is_system(message)]
    assert all(len(page) == limit for page in pages[:-1])


@given(conversations())
def test_a_row_is_what_one_side_said(messages):
    (rows,) = asyncio.run(paged(messages, 10_000))

    for row in rows:
        said = row.to_json("c", expose_tool_details=True)
        assert (said["role"] == "user") is is_user(messages[row.start])
        assert isinstance(said["text"], str)
    assert all(row.stop - row.start == 1 for row in rows if is_user(messages[row.start]))


def test_a_turn_longer_than_a_page_of_the_store_is_still_one_row():
    messages = [turns(1)[0]] + [message for at in range(150) for message in turns(at + 1)[-3:-1]] + [turns(1)[-1]]
    pages = asyncio.run(paged(messages, 1))

    assert [(row.start, row.stop) for page in pages for row in page] == [(0, 1), (1, 302)]


def test_an_answer_s_words_are_those_before_and_after_its_tools():
    first, second = {"role": "assistant", "content": "I look."}, {"role": "assistant", "content": "Here."}

    assert said_in([first, {"role": "tool", "content": "x", "tool_call_id": "a"}, second]) == "I look.\n\nHere."
