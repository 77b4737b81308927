"""A stored conversation as one object: `AsyncConversation`, and `Conversation` with the same methods."""

import asyncio
import inspect
import json
import multiprocessing
import warnings
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import CannotFit, MemoryStore, ToolResultTruncator, TruncateStrategy, TurnStrategy, open_store, view_of
from minutebook.conversation import AsyncConversation, Conversation
from minutebook.errors import (
    BrokenConversation,
    ConversationBusy,
    ConversationErased,
    InvalidMessage,
    InvalidSetting,
    MissingSetting,
    RequestNotFound,
)
from minutebook.store.loop_thread import run_sync

TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "find_order", "arguments": '{"number": 17}'}}


def completion(text, *, tool_calls=None, model="gpt-4o"):
    """A chat completion as the official client returns it."""
    chat = pytest.importorskip("openai.types.chat")
    message = {"role": "assistant", "content": text, "tool_calls": tool_calls}
    return chat.ChatCompletion.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "finish_reason": "tool_calls" if tool_calls else "stop", "message": message}],
            "usage": {"prompt_tokens": 40, "completion_tokens": 2, "total_tokens": 42},
        }
    )


@pytest.fixture
def database(tmp_path):
    return tmp_path / "chat.db"


def test_a_conversation_continues_where_it_ended(database):
    with Conversation("order-17", store=database, model="gpt-4o", system="You are a support agent.") as chat:
        chat.append("Where is my order?")
        chat.append(completion("It was shipped."))

    with Conversation("order-17", store=database, system="Another text.") as chat:
        assert [message["content"] for message in chat] == [
            "You are a support agent.",
            "Where is my order?",
            "It was shipped.",
        ]
        assert chat[-1]["role"] == "assistant"
        assert len(chat[1:]) == 2


def test_a_file_name_is_a_sqlite_database(database):
    with Conversation("a", store=str(database)) as chat:
        chat.append("hello")

    assert database.read_bytes().startswith(b"SQLite format 3")


def test_a_view_has_only_keys_that_the_provider_knows():
    chat = Conversation(max_tokens=10_000)
    chat.append("Find my order.")
    call = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    chat.append(call, {"role": "tool", "tool_call_id": "call_1", "content": "not found", "is_error": True})
    chat.append("Thanks.")

    assert chat.view().messages == [
        {"role": "user", "content": "Find my order."},
        call,
        {"role": "tool", "tool_call_id": "call_1", "content": "not found"},
        {"role": "user", "content": "Thanks."},
    ]


def test_a_view_never_exceeds_the_budget_and_says_why_a_message_is_missing():
    chat = Conversation(system="Be brief.", max_tokens=300)
    for number in range(30):
        chat.append(f"Question {number}: " + "word " * 20)
        assert chat.view().tokens <= 300
        chat.append({"role": "assistant", "content": f"Answer {number}."})

    newest = chat.requests()[-1]
    assert newest.number == 30
    assert newest.tokens_after <= 300
    assert chat.why(3, request=30).status == "dropped"
    assert "300 tokens" in str(chat.why(3, request=30))
    assert str(chat.why(0, request=30)) == "sent"
    assert chat.request(1).messages == [chat[0], chat[1]]


def test_a_view_explains_messages_by_their_position_in_the_record_after_a_fold():
    chat = Conversation(system="Be brief.", max_tokens=10_000)
    for number in range(8):
        chat.append(f"Question {number}: " + "word " * 50)
        chat.append({"role": "assistant", "content": f"Answer {number}. " + "word " * 50})
    result = chat.compact()
    view = chat.view()

    assert result
    (fold,) = chat.folds()
    assert view[fold.start].status == "folded"
    assert view[fold.start].index == fold.start
    assert view.why(-1).index == len(chat) - 1


def test_undoing_a_fold_restores_the_view_byte_for_byte():
    chat = Conversation(system="Be brief.", max_tokens=10_000)
    for number in range(8):
        chat.append(f"Question {number}: " + "word " * 50)
        chat.append({"role": "assistant", "content": f"Answer {number}. " + "word " * 50})
    before = json.dumps(chat.fit().messages)
    chat.compact()
    compacted = json.dumps(chat.fit().messages)
    for fold in chat.folds():
        chat.undo(fold)

    assert compacted != before
    assert json.dumps(chat.fit().messages) == before


@pytest.mark.fuzz
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_undoing_the_folds_newest_first_restores_every_earlier_view_byte_for_byte(turns_between):
    chat = Conversation(system="Be brief.")
    views, new_folds = [], []
    for turns in [6, *turns_between]:
        for _ in range(turns):
            chat.append(f"Question after {len(chat)}: " + "word " * 50)
            chat.append({"role": "assistant", "content": f"Answer {len(chat)}. " + "word " * 50})
        before = {fold.id for fold in chat.folds()}
        views.append((json.dumps(chat.fit().messages), len(chat)))
        chat.compact(TurnStrategy(keep_turns=1))
        new_folds.append([fold for fold in chat.folds() if fold.id not in before])
    for folds, (view, length) in zip(reversed(new_folds), reversed(views), strict=True):
        for fold in folds:
            chat.undo(fold)
        shown = chat.fit().messages
        assert json.dumps(shown[: len(shown) - (len(chat) - length)]) == view

    assert chat.folds() == []
    assert chat.fit().messages == list(chat)


def test_the_record_has_the_messages_in_full_whatever_is_folded():
    chat = Conversation(system="Be brief.")
    for number in range(8):
        chat.append(f"Question {number}: " + "word " * 50, {"role": "assistant", "content": "word " * 50})
    messages = list(chat)
    chat.compact()
    chat.compact(TurnStrategy(keep_turns=1))

    assert len(chat.fit().messages) < len(messages)
    assert list(chat) == messages
    while folds := chat.folds():
        chat.undo(folds[-1])
    assert chat.fit().messages == messages


def test_a_strategy_folds_before_the_window_is_full_and_the_folds_are_stored(database):
    with Conversation("a", store=database, max_tokens=1_000, strategy=TruncateStrategy()) as chat:
        for number in range(20):
            chat.append(f"Question {number}: " + "word " * 60)
            chat.view()
            chat.append({"role": "assistant", "content": f"Answer {number}."})
        folds = chat.folds()

    with Conversation("a", store=database) as chat:
        assert folds
        assert chat.folds() == folds


def test_the_usage_of_an_answer_is_stored_with_its_request():
    chat = Conversation(model="gpt-4o")
    chat.append("hello")
    first = chat.view()
    chat.append(completion("hi"))
    chat.append("again")
    chat.view()

    assert chat.request(first.number).usage.input_tokens == 40
    assert chat.request(first.number).finish == "stop"
    assert chat.request(2).usage is None


def test_a_second_answer_does_not_replace_the_usage_of_the_first():
    chat = Conversation(model="gpt-4o")
    chat.append("hello")
    chat.view()
    chat.append(completion("hi"))
    second = completion("hi again")
    second.usage.prompt_tokens = 7
    chat.append(second)

    assert chat.request(1).usage.input_tokens == 40
    chat.append(second, request=1)
    assert chat.request(1).usage.input_tokens == 7


def test_an_append_that_fails_leaves_the_usage_for_the_next_one():
    chat = Conversation(model="gpt-4o")
    chat.append("hello")
    chat.view()
    with pytest.raises(BrokenConversation):
        chat.append(completion("hi"), {"role": "tool", "tool_call_id": "unknown", "content": "x"})
    chat.append(completion("hi"))

    assert chat.request(1).usage.input_tokens == 40


def test_the_usage_of_an_answer_can_be_given_to_an_earlier_request():
    chat = Conversation(model="gpt-4o")
    chat.append("hello")
    chat.view()
    chat.view()
    chat.append(completion("hi"), request=1)

    assert chat.request(1).usage.output_tokens == 2
    assert chat.request(2).usage is None


def test_fit_leaves_no_trace():
    chat = Conversation(max_tokens=1_000)
    chat.append("hello")

    assert chat.fit().messages == [{"role": "user", "content": "hello"}]
    assert chat.fit().number is None
    assert chat.requests() == []


def test_managers_prepare_the_view_before_the_budget_cuts_it():
    chat = Conversation(max_tokens=1_000, manager=ToolResultTruncator(20))
    call = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}
    chat.append("Find it.")
    chat.append(call, {"role": "tool", "tool_call_id": "call_1", "content": "word " * 400})
    chat.append("And now?")

    assert len(chat.view().messages[2]["content"]) < 200
    assert len(chat[2]["content"]) == 2_000


def test_the_tokens_of_tools_count():
    chat = Conversation(max_tokens=500)
    for number in range(10):
        chat.append(f"Question {number}: " + "word " * 20)
        chat.append({"role": "assistant", "content": "yes"})
    tools = [{"type": "function", "function": {"name": "search", "description": "word " * 200, "parameters": {}}}]

    assert chat.view(tools=tools).tokens < 300 < chat.view().tokens


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": "8k"}, "max_tokens='8k'"),
        ({"manager": "budget"}, "manager='budget'"),
        ({"policy": "token_budget", "strategy": "truncate"}, "policy='token_budget'"),
        ({"policy": "no such policy"}, "no such policy"),
        ({"id": ""}, "id=''"),
        ({"recipient": ""}, "recipient=''"),
    ],
)
def test_a_wrong_setting_is_refused_at_once(settings, text):
    with pytest.raises(InvalidSetting) as caught:
        AsyncConversation(**settings)

    assert text in str(caught.value)


def test_bad_input_changes_nothing():
    chat = Conversation()
    chat.append("hello")
    for bad in (None, 5, {"role": "model", "parts": []}, {"content": "no role"}, [["nested"]]):
        with pytest.raises(InvalidMessage):
            chat.append("good", bad)
    with pytest.raises(BrokenConversation, match="Append the missing message first, or rewind") as broken:
        chat.append({"role": "tool", "tool_call_id": "unknown", "content": "x"})
    assert "Transcript" not in str(broken.value)
    with pytest.raises(InvalidSetting, match="at least one message"):
        chat.append()

    assert len(chat) == 1


def test_an_empty_conversation_has_no_view():
    with pytest.raises(MissingSetting, match="append one first"):
        Conversation(system="Be brief.").view()


def test_a_request_that_does_not_exist_is_named():
    chat = Conversation()
    chat.append("hello")
    with pytest.raises(RequestNotFound):
        chat.request(1)
    chat.view()

    with pytest.raises(RequestNotFound, match="has no request 7; its newest request is "):
        chat.request(7)
    with pytest.raises(InvalidSetting, match="the record had 1 messages at request 1"):
        chat.why(9, request=1)


def test_a_message_that_cannot_fit_is_reported():
    chat = Conversation(max_tokens=20)
    chat.append("word " * 100)

    with pytest.raises(CannotFit):
        chat.view()
    assert chat.requests() == []


def test_an_idempotency_key_that_no_store_can_keep_is_refused():
    with pytest.raises(InvalidSetting, match="idempotency_key"):
        Conversation("order-17").append("hello", idempotency_key="\ud800")


def test_a_repeated_idempotency_key_appends_once():
    chat = Conversation(system="Be brief.")
    first = chat.append("hello", idempotency_key="k")
    chat.append({"role": "assistant", "content": "hi"})

    assert chat.append("hello", idempotency_key="k") == first
    assert len(chat) == 3


def test_a_key_that_another_handle_used_meanwhile_appends_nothing():
    store = MemoryStore()
    chat = Conversation("order-17", store=store, system="Be brief.")
    Conversation("order-17", store=store).append("hello", idempotency_key="k")

    assert chat.append("hello", idempotency_key="k") == 0
    assert list(chat) == chat.view().messages == [{"role": "user", "content": "hello"}]
    assert chat.append("Where is it?") == 1


@given(
    st.lists(st.tuples(st.sampled_from(["yes", "no"]), st.sampled_from([None, "k1", "k2"])), min_size=1, max_size=12)
)
@pytest.mark.fuzz
def test_a_repeated_key_returns_the_position_of_the_first_append_with_it(appends):
    chat = Conversation(system="Be brief.")
    first_positions = {}
    for text, key in appends:
        earlier = first_positions.get(key)
        if earlier is not None and chat[earlier]["content"] != text:
            continue  # the key is for other messages
        position = chat.append(text, idempotency_key=key)
        assert earlier in {None, position}
        if key is not None:
            first_positions[key] = position
        assert chat[position]["content"] == text

    assert Conversation(chat.id, store=chat.store)[:] == chat[:]


def test_a_conversation_of_a_recipient_continues_until_it_is_closed_or_erased():
    async def scenario():
        async with MemoryStore() as store:
            first = AsyncConversation(recipient="ada", store=store)
            await first.append("hello")
            again = AsyncConversation(recipient="ada", store=store)
            await again.append("again")
            await store.fork("ada", "a fork")
            await store.set_status("ada", "closed")
            second = AsyncConversation(recipient="ada", store=store)
            await second.append("a new one")
            await store.erase(recipient="ada")
            third = AsyncConversation(recipient="ada", store=store)
            await third.append("back again")
            fourth = await AsyncConversation(recipient="ada", store=store).open()
            return first, again, second, third, fourth

    first, again, second, third, fourth = asyncio.run(scenario())

    assert first.id == again.id == "ada"
    assert len({first.id, second.id, third.id}) == 3
    assert fourth.id == third.id
    assert [message["content"] for message in fourth] == ["back again"]


def test_two_handles_see_each_others_messages_folds_and_pins():
    async def scenario():
        async with MemoryStore() as store:
            one, other = (AsyncConversation("a", store=store, max_tokens=10_000) for _ in range(2))
            for number in range(6):
                await (one if number % 2 else other).append(f"Question {number}: " + "word " * 40)
                await (other if number % 2 else one).append({"role": "assistant", "content": "word " * 40})
            await one.pin(0)
            await one.compact()
            views = [await one.view(), await other.view()]
            return [one, other], views, await store.load("a")

    handles, views, loaded = asyncio.run(scenario())

    assert [list(handle) for handle in handles] == [loaded.messages] * 2
    assert views[0].messages == views[1].messages
    assert [view.number for view in views] == [1, 2]


def test_only_one_holder_has_the_lease():
    async def scenario():
        async with MemoryStore() as store:
            one, other = (AsyncConversation("a", store=store) for _ in range(2))
            async with one.lease(30):
                with pytest.raises(ConversationBusy):
                    await other.lease(30).__aenter__()
                await one.append("hello")
            async with other.lease(30):
                await other.append("hello too")
            return len(other)

    assert asyncio.run(scenario()) == 2


def test_a_fork_has_its_own_future():
    chat = Conversation("a", system="Be brief.", max_tokens=1_000)
    chat.append("hello")
    fork = chat.fork("b")
    fork.append({"role": "assistant", "content": "hi"})

    assert (chat.id, fork.id) == ("a", "b")
    assert (len(chat), len(fork)) == (2, 3)
    assert isinstance(fork, Conversation)
    assert fork.view().max_tokens == 1_000


def test_an_erased_conversation_is_gone():
    chat = Conversation("a")
    chat.append("hello")

    assert chat.erase().entries == 1
    assert (len(chat), list(chat)) == (0, [])
    with pytest.raises(ConversationErased):
        chat.append("hello again")


def test_a_conversation_is_not_open_before_the_first_call():
    chat = AsyncConversation("a")

    assert repr(chat) == "<AsyncConversation 'a': not open>"
    with pytest.raises(MissingSetting, match="async with"):
        len(chat)


def test_both_classes_have_the_same_methods_and_documentation():
    def public(cls):
        return {name for name in dir(cls) if not name.startswith("_")}

    assert public(AsyncConversation) - public(Conversation) == set()
    assert inspect.signature(Conversation).parameters.keys() == inspect.signature(AsyncConversation).parameters.keys()
    assert Conversation.append.__doc__ == AsyncConversation.append.__doc__


def test_a_blocking_conversation_in_a_coroutine_warns_once(monkeypatch):
    monkeypatch.setattr("minutebook.conversation.handle.sync_conversation._has_warned", False)

    async def scenario():
        chat = Conversation("a")
        chat.append("hello")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(scenario())

    assert ["AsyncConversation" in str(warning.message) for warning in caught] == [True]


@given(st.lists(st.sampled_from(["append", "view", "fit", "compact", "undo", "pin"]), max_size=25))
def test_any_sequence_of_calls_keeps_the_record_complete_and_every_view_within_the_budget(steps):
    chat = Conversation(system="Be brief.", max_tokens=400)
    contents = ["Be brief.", "hello"]
    chat.append("hello")
    for number, step in enumerate(steps):
        if step == "append":
            text = f"message {number} " + "word " * (number % 7 * 5)
            chat.append({"role": "assistant", "content": text}, f"next {number}")
            contents += [text, f"next {number}"]
        elif step in {"view", "fit"}:
            view = getattr(chat, step)()
            assert view.tokens <= 400
            assert view.messages[-1]["content"] == contents[-1]
        elif step == "undo":
            for fold in chat.folds():
                chat.undo(fold)
        elif step == "compact":
            chat.compact()
        elif step == "pin":
            chat.pin(1)

    assert [message["content"] for message in chat] == contents


def test_tasks_may_share_one_handle(database):
    async def scenario():
        async with AsyncConversation("a", store=database, max_tokens=10_000) as chat:
            await asyncio.gather(*(chat.append(f"message {number}") for number in range(20)))
            views = await asyncio.gather(*(chat.view() for _ in range(10)))
            return [message["content"] for message in chat], [view.number for view in views]

    contents, numbers = asyncio.run(scenario())

    assert sorted(contents) == sorted(f"message {number}" for number in range(20))
    assert sorted(numbers) == list(range(1, 11))


def test_handles_that_append_at_the_same_time_lose_nothing(database):
    async def scenario():
        async with open_store(database) as store:
            handles = [AsyncConversation("a", store=store) for _ in range(10)]
            await asyncio.gather(*(handle.append(f"message {number}") for number, handle in enumerate(handles)))
            return (await store.load("a")).messages

    assert sorted(message["content"] for message in asyncio.run(scenario())) == [f"message {n}" for n in range(10)]


def test_messages_that_the_caller_changes_later_do_not_change_the_record():
    message = {"role": "user", "content": [{"type": "text", "text": "original"}]}
    chat = Conversation()
    chat.append(message)
    message["content"][0]["text"] = "changed"
    chat[0]["content"][0]["text"] = "changed"
    next(iter(chat))["role"] = "changed"

    assert chat.view().messages == [{"role": "user", "content": [{"type": "text", "text": "original"}]}]


def test_a_conversation_of_another_recipient_is_not_opened(database):
    with Conversation("order-17", store=database, recipient="ada") as chat:
        chat.append("hello")

    with pytest.raises(InvalidSetting, match="'ada', the recipient of conversation 'order-17'"):
        Conversation("order-17", store=database, recipient="bob")


def test_a_recorded_request_has_the_messages_that_were_sent():
    chat = Conversation(system="Be brief.", max_tokens=10_000)
    for number in range(8):
        chat.append(f"Question {number}: " + "word " * 50)
        chat.append({"role": "assistant", "content": f"Answer {number}. " + "word " * 50})
    chat.compact()
    chat.append("And now?")
    view = chat.view()

    assert chat.request(view.number).messages == view.messages
    assert chat.why(-1, request=view.number).position == len(chat) - 1


def test_a_lone_surrogate_is_stored_and_sent_as_a_replacement_character():
    chat = Conversation()
    chat.append("a \ud800 b")

    assert chat[0]["content"] == "a \ud800 b"
    assert chat.view().messages == [{"role": "user", "content": "a \ufffd b"}]


def test_a_request_number_without_a_response_is_refused():
    chat = Conversation()
    chat.append("hello")
    chat.view()

    with pytest.raises(InvalidSetting, match="request=1"):
        chat.append({"role": "assistant", "content": "hi"}, request=1)
    assert len(chat) == 1


def test_a_choice_of_a_completion_is_an_answer():
    chat = Conversation()
    chat.append("hello")
    chat.append(completion("hi").choices[0])

    assert chat[-1] == {"role": "assistant", "content": "hi"}


def test_an_expired_conversation_starts_again(database):
    times = [datetime.now(UTC)]

    async def scenario():
        async with open_store(database, expire_after=timedelta(days=1), clock=lambda: times[0]) as store:
            chat = AsyncConversation("a", store=store, system="Be brief.")
            await chat.append("hello")
            times[0] += timedelta(days=2)
            await store.expire()
            await chat.append("again")
            return list(chat)

    assert [message["content"] for message in asyncio.run(scenario())] == ["Be brief.", "again"]


def test_a_forked_process_can_use_new_conversations(tmp_path):
    Conversation("parent", store=tmp_path / "parent.db").append("hello")
    script = multiprocessing.get_context("fork").Process(target=_append_in_child, args=(tmp_path / "child.db",))
    script.start()
    script.join(20)

    assert script.exitcode == 0
    assert len(Conversation("child", store=tmp_path / "child.db")) == 1


def _append_in_child(database):
    Conversation("child", store=database).append("hello")


def test_an_async_tool_that_would_block_the_loop_gets_an_error(monkeypatch):
    monkeypatch.setattr("minutebook.conversation.handle.sync_conversation._has_warned", True)

    async def tool():
        Conversation("other").append("hello")

    with pytest.raises(RuntimeError, match="AsyncConversation"):
        run_sync(tool())


class SlowStore(MemoryStore):
    """A store whose loads return later than they have read, as over a network."""

    async def load(self, *args, **settings):
        loaded = await super().load(*args, **settings)
        await asyncio.sleep(0.002)
        return loaded


def test_two_reads_at_the_same_time_add_no_message_twice():
    async def scenario():
        async with SlowStore() as store:
            one, other = (AsyncConversation("a", store=store) for _ in range(2))
            await one.append("first")
            await other.append("second")
            await asyncio.gather(one.folds(), one.requests(), one.folds())
            return [message["content"] for message in one]

    assert asyncio.run(scenario()) == ["first", "second"]


def test_requests_of_another_handle_have_all_their_messages():
    async def scenario():
        async with MemoryStore() as store:
            one, other = (AsyncConversation("a", store=store) for _ in range(2))
            await one.append("hello")
            await other.open()
            await one.append({"role": "assistant", "content": "hi"}, "again")
            view = await one.view()
            return view, (await other.requests())[-1]

    view, request = asyncio.run(scenario())

    assert request.messages == view.messages
    assert request.why(2).role == "user"


def test_first_messages_of_a_recipient_at_the_same_time_go_to_one_conversation(database):
    async def scenario():
        async with open_store(database) as store:
            for number in range(10):
                handles = [AsyncConversation(recipient=f"user {number}", store=store) for _ in range(5)]
                await asyncio.gather(*(handle.append("hello") for handle in handles))
            return [len((await store.list(recipient=f"user {number}")).items) for number in range(10)]

    assert asyncio.run(scenario()) == [1] * 10


def test_messages_that_contain_themselves_are_refused():
    content = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    content["content"][0]["of"] = content
    other_key = {"role": "user", "content": "hello"}
    other_key["of"] = other_key
    chat = Conversation()

    for message in (content, other_key):
        with pytest.raises(InvalidMessage, match=r"^message contains itself"):
            chat.append(message)
        with pytest.raises(InvalidMessage, match=r"^message contains itself"):
            view_of([message])
    assert len(chat) == 0


def test_the_error_of_a_missing_result_says_what_to_do_with_a_conversation():
    chat = Conversation()
    chat.append("Find it.", {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]})

    with pytest.raises(BrokenConversation, match="Append the missing message first, or rewind or clear") as caught:
        chat.append("hello?")

    assert "Transcript(" not in str(caught.value)


def test_empty_text_is_refused_and_nothing_is_stored():
    chat = Conversation("orders")
    with pytest.raises(InvalidMessage, match="message is an empty text"):
        chat.append("Hello.", "")

    assert list(chat) == []


def test_a_position_outside_of_a_view_is_refused_with_the_positions_of_the_view():
    chat = Conversation("orders", system="Be brief.")
    chat.append("Hello.")
    view = chat.view()
    for position in (2, -3):
        with pytest.raises(InvalidSetting, match=f"position={position}: expected 0 to 1"):
            view[position]

    assert view[-1].index == 1
