import asyncio

from hypothesis import given
from hypothesis import strategies as st

from minutebook.record.message import is_system, is_user
from minutebook.service.threads.objects import answer_text, read_messages
from minutebook.store.memory import MemoryStore
from tests.service.parts import entries, turns
from tests.strategies import conversations


async def read_pages(messages, limit):
    store = MemoryStore()
    await store.append("c", entries(messages), expected_version=0)
    pages, position = [], 0
    while position is not None:
        _, page = await read_messages(store, "c", start=position, limit=limit)
        pages.append(page.messages)
        position = page.next
    return pages


@given(conversations(), st.integers(1, 5))
def test_pages_contain_every_message_once_for_any_page_size(messages, limit):
    pages = asyncio.run(read_pages(messages, limit))
    whole = asyncio.run(read_pages(messages, 10_000))

    listed = [row for page in pages for row in page]
    positions = [position for row in listed for position in range(row.start, row.stop)]
    assert [listed] == whole
    assert positions == [position for position, message in enumerate(messages) if not is_system(message)]
    assert all(len(page) == limit for page in pages[:-1])


@given(conversations())
def test_a_thread_message_is_a_user_message_or_a_complete_answer(messages):
    (listed,) = asyncio.run(read_pages(messages, 10_000))

    for row in listed:
        body = row.to_json("c", expose_tool_details=True)
        assert (body["role"] == "user") is is_user(messages[row.start])
        assert isinstance(body["text"], str)
    assert all(row.stop - row.start == 1 for row in listed if is_user(messages[row.start]))


def test_an_answer_longer_than_a_page_of_the_store_is_one_message():
    messages = [turns(1)[0]] + [message for at in range(150) for message in turns(at + 1)[-3:-1]] + [turns(1)[-1]]
    pages = asyncio.run(read_pages(messages, 1))

    assert [(row.start, row.stop) for page in pages for row in page] == [(0, 1), (1, 302)]


def test_the_text_of_an_answer_is_that_before_and_after_its_tool_calls():
    first, second = {"role": "assistant", "content": "I look."}, {"role": "assistant", "content": "Here."}

    assert answer_text([first, {"role": "tool", "content": "x", "tool_call_id": "a"}, second]) == "I look.\n\nHere."
