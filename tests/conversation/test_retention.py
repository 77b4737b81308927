import asyncio
import copy
import logging
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import PassthroughManager, check, view_of
from minutebook.conversation.config import (
    PERSISTENCE_RULES,
    SENDING_RULES,
    Persistence,
    RetentionConfig,
    Sent,
    persistence_rule,
    sending_rule,
    truth_table,
)
from minutebook.conversation.retention import PruningDecision, RetentionPolicy, _pruning_manager
from minutebook.conversation.trimming import (
    TrimResult,
    _size,
    messages_of_rows,
    tool_uses,
    tool_uses_for_clients,
    trim_all,
    without_payload,
)
from minutebook.errors import InvalidSetting
from minutebook.record import is_valid
from minutebook.record.finding import errors
from minutebook.record.message import is_user
from minutebook.record.transcript import Transcript
from minutebook.store.memory import MemoryStore
from tests.service.parts import call, entries, has_tools, turn, turns
from tests.service.parts import kept as stored
from tests.strategies import conversations

MODES = ("off", "shadow", "on")
FLAGS = list(product(MODES, (False, True), (False, True), ("full", "trimmed", "none")))


def policy(**settings):
    return RetentionPolicy(RetentionConfig(**settings))


def by_turn(messages):
    """The messages of each turn."""
    found = []
    for message in messages:
        if is_user(message):
            found.append([])
        found[-1].append(message)
    return found


def texts(messages):
    return [message["content"] for message in messages]


@pytest.mark.parametrize(("mode", "prune", "preserve", "persistence"), FLAGS)
def test_every_combination_of_flags_does_what_its_row_says(mode, prune, preserve, persistence):
    config = RetentionConfig(
        mode=mode,
        prune_tools_for_llm=prune,
        preserve_tools_for_latest_turns=preserve,
        tool_persistence=persistence,
        preserve_turns=1,
        max_loaded_messages=10,
    )
    row, stays = sending_rule(config), persistence_rule(config)
    messages = [*turns(11), {"role": "user", "content": "now"}]  # the second step leaves an older turn

    context = RetentionPolicy(config).build_context(turns(4))
    sent = by_turn(view_of(messages, RetentionPolicy(config).manager()).messages)
    store = asyncio.run(aged(turns(4), config))

    assert [has_tools(one) for one in by_turn(context.messages)] == [
        *[row.older is Sent.WITH_TOOLS] * 3,
        row.latest is Sent.WITH_TOOLS,
    ]
    assert len(sent) == (3 if mode == "on" else 12)
    assert [has_tools(one) for one in sent[-3:-1]] == [row.older is Sent.WITH_TOOLS, row.latest is Sent.WITH_TOOLS]
    assert [one[0]["content"] for one in sent[-3:]] == ["question 9", "question 10", "now"]
    assert [kept_of(one) for one in by_turn(store)] == [*[stays.older] * 3, stays.latest]


async def aged(messages, config):
    """What a store has after messages arrived turn by turn, aged out after each."""
    store = MemoryStore()
    for one in by_turn(messages):
        await store.append("c", entries(one))
        await RetentionPolicy(config).trim_old_turns(store, "c")
    return (await store.load("c")).messages


def kept_of(one_turn):
    """What is kept of the tool call of a turn."""
    used = tool_uses(one_turn)[0]
    if used["arguments"] != "{}":
        return Persistence.ALL
    return Persistence.NAME if used["result"] == "" else Persistence.STATUS


def test_there_is_one_row_for_every_combination():
    for mode, prune, preserve, persistence in FLAGS:
        config = RetentionConfig(
            mode=mode, prune_tools_for_llm=prune, preserve_tools_for_latest_turns=preserve, tool_persistence=persistence
        )
        assert sum(row == sending_rule(config) for row in SENDING_RULES) == 1
        assert sum(row == persistence_rule(config) for row in PERSISTENCE_RULES) == 1
    assert len(truth_table().splitlines()) == len(SENDING_RULES) + len(PERSISTENCE_RULES) + 3


def test_older_turns_are_included_as_text_only():
    context = policy().build_context(turns(4))

    assert texts(context.discarded) == ["question 0", "answer 0", "question 1", "answer 1"]
    assert all(set(message) == {"role", "content"} for message in context.discarded)
    assert context.messages == [*context.discarded, *context.preserved]


def test_preserved_turns_retain_full_tool_metadata():
    context = policy().build_context(turns(4))

    assert list(context.preserved) == turns(4)[8:]


def test_turns_are_real_turns_and_not_pairs_of_messages():
    """A turn with three calls is eight messages, and still one turn."""
    busy = [turn(0)[0], *[message for at in range(3) for message in turn(at)[1:3]], turn(0)[3]]

    context = policy(preserve_turns=1).build_context([*turns(2), *busy])

    assert list(context.preserved) == busy


def test_the_turn_being_answered_is_preserved_and_does_not_count():
    context = policy(preserve_turns=2).build_context([*turns(4), {"role": "user", "content": "and now?"}])

    assert texts(context.discarded)[-1] == "answer 1"
    assert texts(context.preserved)[0] == "question 2"
    assert texts(context.preserved)[-1] == "and now?"


@pytest.mark.parametrize(("preserve", "first"), [(0, None), (1, "question 3"), (3, "question 1"), (9, "question 0")])
def test_the_caller_may_preserve_another_number_of_turns(preserve, first):
    context = policy(preserve_turns=2).build_context(turns(4), preserve)

    assert (texts(context.preserved)[0] if context.preserved else None) == first
    assert is_valid(context.messages)


def test_a_negative_number_of_turns_is_refused():
    with pytest.raises(InvalidSetting, match="preserve_turns"):
        policy().build_context([], -1)


def test_what_stands_before_the_first_turn_is_sent_and_is_of_neither_part():
    system = {"role": "system", "content": "Be brief."}

    context = policy().build_context([system, *turns(3)])

    assert context.messages[0] == system
    assert system not in (*context.preserved, *context.discarded)
    assert policy().build_context([system]).messages == [system]
    assert policy().build_context([]).messages == []


def test_the_context_gets_shorter_as_turns_grow_old():
    """The regression of document 002: several turns with tools cost less than unpruned."""
    for count in range(12, 18):
        seen = []
        manager = RetentionPolicy(RetentionConfig(), report=seen.append).manager()
        view_of(turns(count), manager)

        assert seen[0].tokens_after < seen[0].tokens_before


@given(conversations(), st.integers(0, 3), st.booleans(), st.booleans())
def test_every_context_is_valid_and_leaves_its_input_alone(chat, preserve, prune, latest):
    config = RetentionConfig(preserve_turns=preserve, prune_tools_for_llm=prune, preserve_tools_for_latest_turns=latest)
    before = copy.deepcopy(chat)
    context = RetentionPolicy(config).build_context(chat)

    assert not [finding for finding in errors(check(context.messages)) if finding.kind != "empty_view"]
    assert chat == before
    assert [m for m in context.messages if is_user(m)] == [m for m in chat if is_user(m)]


def test_rows_with_tools_used_become_calls_and_results():
    rows = [
        {"role": "user", "text": "Where is my tea?"},
        {
            "role": "assistant",
            "text": "On its way.",
            "tools_used": [
                {"id": "a", "name": "find", "arguments": {"order": 17}, "status": "ok", "result": {"at": "sea"}},
                {"name": "mail", "arguments": "{}", "status": "error", "result": None},
            ],
        },
    ]

    context = policy().build_context(rows)

    assert is_valid(context.messages)
    assert tool_uses(context.messages) == [
        {"id": "a", "name": "find", "arguments": '{"order": 17}', "status": "ok", "result": '{"at": "sea"}'},
        {"id": "call_1_1", "name": "mail", "arguments": "{}", "status": "error", "result": "[trimmed: error]"},
    ]
    assert context.messages[-1] == {"role": "assistant", "content": "On its way."}
    assert "tools_used" not in str(policy(preserve_turns=0).build_context(rows).messages)
    assert texts(policy(preserve_turns=0).build_context(rows).messages) == ["Where is my tea?", "On its way."]


def test_messages_that_are_no_rows_are_not_changed_by_expanding():
    assert messages_of_rows(turns(2)) == turns(2)


def test_the_tools_that_were_used_are_listed_in_the_order_of_their_calls():
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call("b", "first"), call("a", "second")]},
        {"role": "tool", "tool_call_id": "a", "content": "two", "is_error": True},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": None, "tool_calls": [call("b", "third", "{}")]},
    ]

    used = tool_uses(messages)

    assert [(one["name"], one["status"], one["result"]) for one in used] == [
        ("first", "ok", "one"),
        ("second", "error", "two"),
        ("third", "pending", None),
    ]
    assert tool_uses_for_clients(used) == [
        {"name": "first", "status": "ok"},
        {"name": "second", "status": "error"},
        {"name": "third", "status": "pending"},
    ]
    assert tool_uses_for_clients(used, expose_tool_details=True) == used


def test_a_result_answers_the_calls_before_it_and_none_that_are_older():
    late = [
        {"role": "assistant", "content": None, "tool_calls": [call("a")]},
        *turn(1),
        turn(1)[2] | {"tool_call_id": "a"},
    ]

    assert [one["status"] for one in tool_uses(late)] == ["pending", "ok"]


def test_the_older_function_call_is_a_use_of_a_tool_too():
    messages = [
        {"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "find", "content": "there"},
    ]

    assert [(one["name"], one["arguments"], one["result"]) for one in tool_uses(messages)] == [
        ("find", '{"a": 1}', "there")
    ]


def view_after(count, **settings):
    """The view when the user asks after this number of finished turns."""
    messages = [{"role": "system", "content": "s"}, *turns(count), {"role": "user", "content": "now"}]
    return view_of(messages, policy(**settings).manager()).messages


def visible(messages):
    return sum(1 for message in messages if message["role"] in {"user", "assistant"} and message["content"])


def test_the_oldest_turns_are_left_out_when_there_are_more_visible_messages_than_the_maximum():
    assert texts(view_after(10))[1] == "question 0"
    assert texts(view_after(11))[1] == "question 9"
    assert texts(view_after(11))[0] == "s"


def test_tools_are_stripped_when_the_oldest_turns_are_left_out():
    """A step of its own before that would lose the prompt cache once more."""
    with_tools = [sum(map(has_tools, by_turn(view_after(count)[1:]))) for count in range(22)]

    assert with_tools == [*range(11), *range(2, 11), 2, 3]


def test_tools_of_the_latest_turns_are_stripped_at_once_where_none_may_keep_them():
    latest = [has_tools(view_after(count, preserve_tools_for_latest_turns=False)) for count in range(4)]

    assert latest == [False] * 4


@given(conversations(), st.integers(0, 8), st.integers(0, 3), st.booleans())
def test_the_limits_hold_in_every_view(chat, limit, preserve, latest):
    config = RetentionConfig(max_loaded_messages=limit, preserve_turns=preserve, preserve_tools_for_latest_turns=latest)
    opened = [*chat, {"role": "user", "content": "now"}]

    view = view_of(opened, RetentionPolicy(config).manager()).messages

    finished = by_turn([message for message in view if message["role"] != "system"][:-1]) if is_user(view[0]) else None
    minimum = min(preserve, sum(map(is_user, chat))) if limit else 0
    assert sum(map(is_user, view)) > minimum
    if finished is not None and len(finished) > preserve:
        assert visible(message for one in finished for message in one) <= limit


@given(conversations(), st.integers(0, 8), st.integers(0, 3))
def test_a_view_of_a_growing_conversation_equals_the_view_of_the_whole(chat, limit, preserve):
    manager = policy(max_loaded_messages=limit, preserve_turns=preserve).manager()
    growing = Transcript()
    for message in chat:
        growing.append(message)
        manager.curate(growing)

    assert list(manager.curate(growing)) == list(manager.curate(Transcript(chat)))


@given(conversations(), st.integers(0, 6), st.integers(0, 3), st.booleans())
def test_a_record_that_fits_is_not_taken_apart_and_every_other_is(chat, limit, preserve, prune):
    config = RetentionConfig(max_loaded_messages=limit, preserve_turns=preserve, prune_tools_for_llm=prune)
    parts = _pruning_manager(config).curate(Transcript(chat))

    view = RetentionPolicy(config, report=lambda _: None).manager().curate(Transcript(chat))

    assert view == parts
    assert list(view.origins) == list(parts.origins)
    assert view.notes() == parts.notes()
    assert [trail is None for trail in view.note_chains] == [trail is None for trail in parts.note_chains]


def test_preserved_turns_are_sent_whatever_the_limit():
    manager = policy(max_loaded_messages=2, preserve_turns=3).manager()

    assert view_of([*turns(5), {"role": "user", "content": "now"}], manager).messages[:-1] == turns(5)[8:]


def test_a_limit_of_nothing_sends_the_turn_that_is_answered_alone():
    manager = policy(max_loaded_messages=0).manager()

    assert view_of([*turns(3), {"role": "user", "content": "now"}], manager).messages == [
        {"role": "user", "content": "now"}
    ]


def test_the_turn_that_is_being_answered_keeps_its_tools_whatever_the_flags_say():
    running = [*turns(2), {"role": "user", "content": "go"}, *turn(7)[1:3], *turn(8)[1:3]]
    manager = policy(preserve_tools_for_latest_turns=False, preserve_turns=0).manager()

    assert view_of(running, manager).messages[-5:] == running[-5:]


def test_shadow_mode_sends_everything_and_says_what_it_would_have_done():
    seen = {}
    for mode in ("shadow", "on"):
        found = []
        manager = RetentionPolicy(RetentionConfig(mode=mode), report=found.append).manager()
        seen[mode] = (manager.curate(turns(12)), found)

    assert seen["shadow"][0] == turns(12)
    would, did = seen["shadow"][1][0], seen["on"][1][0]
    assert (would.mode, did.mode) == ("shadow", "on")
    assert (would.loaded, would.preserved, would.pruned) == (did.loaded, did.preserved, did.pruned) == (48, 12, 36)
    assert would.tokens_after == did.tokens_after < would.tokens_before


def test_a_decision_is_logged_with_its_numbers(caplog):
    with caplog.at_level(logging.INFO, "minutebook.retention"):
        view_of(turns(12), policy(mode="shadow").manager())

    assert caplog.records[0].message.startswith("pruned loaded=48 preserved=12 pruned=36 tokens_before=")
    assert caplog.records[0].message.endswith("mode=shadow")
    assert caplog.records[0].pruning["loaded"] == 48
    assert "question" not in caplog.text


def test_nothing_is_counted_where_nobody_listens():
    class Uncountable:
        name = "uncountable"

        def count(self, text):
            raise AssertionError

        message = count

    assert view_of(turns(4), policy().manager(), counter=Uncountable()).messages


def test_switched_off_nothing_is_pruned():
    assert policy(mode="off").manager() == PassthroughManager()
    assert policy(mode="off").build_context(turns(4)).messages == turns(4)


def test_a_decision_is_data():
    assert PruningDecision(1, 1, 0, 5, 5, "on") == PruningDecision(1, 1, 0, 5, 5, "on")


def loaded(messages, limit=None, excluding=None, **settings):
    async def work():
        return await policy(**settings).load_messages(await stored(messages), "c", limit, excluding)

    return asyncio.run(work())


def test_the_newest_messages_are_loaded_oldest_first_from_the_start_of_a_turn_on():
    assert loaded(turns(12)) == turns(12)[8:]
    assert loaded(turns(8), 7) == turns(8)[20:]
    assert loaded(turns(2)) == turns(2)


def test_the_preserved_turns_are_loaded_whatever_the_limit():
    assert loaded(turns(8), 1) == turns(8)[24:]
    assert loaded(turns(8), 1, preserve_turns=0) == turns(8)[28:]
    assert loaded(turns(8), 0) == []


def test_the_message_that_is_being_answered_is_left_out():
    asked = [*turns(12), {"role": "user", "content": "now"}]

    assert loaded(asked, excluding=48) == turns(12)[8:]
    assert loaded(asked, 1, excluding={48}) == turns(12)[40:]


def test_system_messages_at_the_front_come_along():
    system = {"role": "system", "content": "s"}

    assert loaded([system, *turns(8)], 4) == [system, *turns(8)[24:]]
    assert loaded([system, *turns(2)], 8) == [system, *turns(2)]


def test_a_thread_that_is_not_there_has_no_messages():
    assert asyncio.run(policy().load_messages(MemoryStore(), "nobody")) == []


def test_without_a_store_there_is_no_history_and_a_warning(caplog):
    async def closed():
        store = MemoryStore()
        await store.append("c", entries(turns(1)))
        await store.close()
        return await policy().load_messages(store, "c")

    assert asyncio.run(closed()) == []
    assert asyncio.run(policy().load_messages(None, "c")) == []
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_a_negative_limit_is_refused():
    with pytest.raises(InvalidSetting, match="limit"):
        loaded(turns(1), -1)


@given(st.integers(0, 9), st.integers(0, 40), st.integers(0, 4))
def test_what_is_loaded_is_the_end_of_the_record_and_whole_turns(count, limit, preserve):
    messages = turns(count, words="x") if count else [{"role": "system", "content": "s"}]
    found = loaded(messages, limit, preserve_turns=preserve)

    assert found == messages[len(messages) - len(found) :]
    assert not limit or len(by_turn(found) if count else [1]) >= min(count, max(1, preserve), 9)
    assert visible(found) <= max(limit, 2 * max(1, preserve))


def test_rows_that_leave_the_window_are_trimmed_once():
    config = RetentionConfig(tool_persistence="trimmed")

    async def work():
        store = await stored(turns(3))
        once = await RetentionPolicy(config).trim_old_turns(store, "c")
        again = await RetentionPolicy(config).trim_old_turns(store, "c")
        await store.append("c", entries(turn(9)))
        later = await RetentionPolicy(config).trim_old_turns(store, "c")
        return once, again, later, (await store.load("c")).messages

    once, again, later, messages = asyncio.run(work())
    assert (once.trimmed, once.written) == (2, True)
    assert once.freed_bytes > 100
    assert again == TrimResult()
    assert later.trimmed == 2
    assert [kept_of(one) for one in by_turn(messages)] == [
        Persistence.STATUS,
        Persistence.STATUS,
        Persistence.ALL,
        Persistence.ALL,
    ]
    assert messages[2]["content"] == "[trimmed: ok]"
    assert tool_uses_for_clients(tool_uses(messages[:4])) == [{"name": "search", "status": "ok"}]
    assert is_valid(messages)


def test_what_came_in_at_once_is_aged_out_at_once():
    async def work():
        store = await stored(turns(30))
        done = await policy(tool_persistence="none").trim_old_turns(store, "c")
        return done, (await store.load("c")).messages

    done, messages = asyncio.run(work())
    assert done.trimmed == 56
    assert [kept_of(one) for one in by_turn(messages)] == [Persistence.NAME] * 28 + [Persistence.ALL] * 2


def test_in_shadow_mode_nothing_is_trimmed_and_what_would_be_is_said():
    async def work():
        store = await stored(turns(4))
        done = await policy(tool_persistence="trimmed", mode="shadow").trim_old_turns(store, "c")
        return done, (await store.load("c")).messages

    done, messages = asyncio.run(work())
    assert (done.trimmed, done.written) == (4, False)
    assert messages == turns(4)


def test_the_newest_turn_is_never_trimmed():
    async def work():
        store = await stored(turns(2))
        await policy(tool_persistence="none", preserve_turns=0).trim_old_turns(store, "c")
        return (await store.load("c")).messages

    messages = asyncio.run(work())
    assert messages[2]["content"] == ""
    assert messages[4:] == turns(2)[4:]


def test_switched_off_nothing_is_looked_at():
    async def work():
        return await policy(tool_persistence="trimmed", mode="off").trim_old_turns(await stored(turns(4)), "c")

    assert asyncio.run(work()) == TrimResult()


def test_what_is_pinned_is_not_trimmed_nor_the_call_that_belongs_to_it():
    async def work():
        store = await stored(turns(5))
        await store.pin("c", 2)
        await policy(tool_persistence="none").trim_old_turns(store, "c")
        return (await store.load("c")).messages

    messages = asyncio.run(work())
    assert messages[:4] == turns(1)
    assert messages[6]["content"] == ""


def test_a_conversation_is_trimmed_page_by_page(monkeypatch):
    monkeypatch.setattr("minutebook.conversation.trimming._PAGE_SIZE", 3)
    looked_at = []

    async def work():
        store = await stored(turns(6))
        given = {"older_than_turns": 2, "persistence": Persistence.STATUS}
        dry = await trim_all(store, "c", write=False, **given)
        real = await trim_all(store, "c", write=True, advance=looked_at.append, **given)
        again = await trim_all(store, "c", write=True, **given)
        return dry, real, again

    dry, real, again = asyncio.run(work())
    assert (dry.trimmed, dry.freed_bytes) == (real.trimmed, real.freed_bytes)
    assert real.trimmed == 8
    assert again == TrimResult()
    assert sum(looked_at) == 16


def test_a_pin_holds_where_a_page_ends_within_its_exchange(monkeypatch):
    monkeypatch.setattr("minutebook.conversation.trimming._PAGE_SIZE", 2)

    async def work():
        store = await stored(turns(4))
        await store.pin("c", 2)
        await trim_all(store, "c", older_than_turns=1, persistence=Persistence.NAME, write=True)
        return (await store.load("c")).messages

    messages = asyncio.run(work())
    assert messages[:4] == turns(1)
    assert messages[6]["content"] == ""


def test_the_newest_turn_cannot_be_trimmed_by_hand():
    async def work():
        return await trim_all(await stored(turns(1)), "c", older_than_turns=0, persistence=Persistence.NAME, write=True)

    with pytest.raises(InvalidSetting, match="the newest turn is in use"):
        asyncio.run(work())


@pytest.mark.parametrize("how", Persistence)
@given(conversations())
def test_a_message_without_its_payload_is_smaller_and_still_the_same_message(how, chat):
    for message in chat:
        short = without_payload(message, how)

        assert short is message or _size(short) < _size(message)
        assert without_payload(short, how) == short
        assert {key: value for key, value in short.items() if key not in {"content", "tool_calls"}} == {
            key: value for key, value in message.items() if key not in {"content", "tool_calls"}
        }
        if message["role"] != "tool":
            assert short.get("content") == message.get("content")


@given(conversations(user_first=True), st.sampled_from([Persistence.STATUS, Persistence.NAME]))
def test_every_conversation_can_be_trimmed_and_stays_valid(chat, how):
    async def work():
        store = await stored(chat)
        await trim_all(store, "c", older_than_turns=1, persistence=how, write=True)
        return (await store.load("c")).messages

    messages = asyncio.run(work())
    assert is_valid(messages) or not is_valid(chat)
    assert [message["role"] for message in messages] == [message["role"] for message in chat]
