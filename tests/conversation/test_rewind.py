"""Rewinding and clearing a conversation with its handle."""

import asyncio
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minutebook import CannotFit, Conversation, ConversationHistory, MemoryStore, TurnStrategy
from minutebook.errors import InvalidSetting, MissingSetting, VersionConflict
from tests.agent.parts import InProcessAdapter

EXAMPLES = int(os.environ.get("MINUTEBOOK_EXAMPLES", "8"))


def _contents(chat: Conversation) -> list[object]:
    return [message["content"] for message in chat.view().messages]


def test_a_rewound_conversation_continues_from_the_position():
    chat = Conversation("a", system="Be brief.")
    for role, text in (("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")):
        chat.append({"role": role, "content": text})

    chat.rewind(-2)
    chat.append({"role": "user", "content": "five"})

    assert _contents(chat) == ["Be brief.", "one", "two", "five"]
    assert [message["content"] for message in chat][3:] == ["three", "four", "five"]


def test_a_cleared_conversation_begins_with_the_system_message():
    chat = Conversation("a", system="Be brief.")
    chat.append({"role": "user", "content": "one"})
    chat.pin(1)

    chat.clear()
    chat.append({"role": "user", "content": "two"})

    assert _contents(chat) == ["Be brief.", "two"]


def test_another_handle_sees_the_rewind():
    store = MemoryStore()
    chat, other = Conversation("a", store=store), Conversation("a", store=store)
    chat.append({"role": "user", "content": "one"})
    chat.append({"role": "user", "content": "two"})
    assert _contents(other) == ["one", "two"]

    chat.rewind(1)

    assert _contents(other) == ["one"]
    other.append({"role": "user", "content": "three"})
    assert _contents(chat) == ["one", "three"]


def test_a_hidden_call_gets_no_interrupted_result():
    store = MemoryStore()
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    first = Conversation("a", store=store)
    first.append({"role": "user", "content": "one"})
    first.append({"role": "assistant", "content": None, "tool_calls": [call]})
    chat = Conversation("a", store=store)

    chat.rewind(1)
    chat.append({"role": "user", "content": "two"})

    assert _contents(chat) == ["one", "two"]


def test_a_rewind_with_another_version_or_position_is_rejected():
    chat = Conversation("a")
    chat.append({"role": "user", "content": "one"})

    with pytest.raises(VersionConflict):
        chat.rewind(0, expected_version=5)
    with pytest.raises(InvalidSetting, match="0 to 1"):
        chat.rewind(2)

    assert _contents(chat) == ["one"]


def _clear_and_rewind(chat):
    chat.clear()
    chat.append("one more")
    chat.rewind(2)


HIDE_ALL = {"clear": Conversation.clear, "rewind": lambda chat: chat.rewind(0), "clear and rewind": _clear_and_rewind}


@pytest.mark.parametrize("hide_all", HIDE_ALL.values(), ids=HIDE_ALL)
def test_a_conversation_whose_messages_are_all_hidden_has_no_view(hide_all):
    chat = Conversation("a", system="Be brief.")
    chat.append("one")
    chat.pin(1)
    hide_all(chat)

    for method in (chat.view, chat.fit):
        with pytest.raises(MissingSetting, match="append one first"):
            method()
    with pytest.raises(MissingSetting, match="pass the user message"):
        chat.run(InProcessAdapter())
    assert chat.requests() == []
    chat.append("two")
    assert _contents(chat) == ["Be brief.", "two"]
    assert chat.requests()[0].number == 1


def test_the_error_of_a_rewind_beyond_the_end_says_the_positions_once():
    store = MemoryStore()
    Conversation("a", store=store).append("one", {"role": "assistant", "content": "two"})

    with pytest.raises(InvalidSetting, match=r"to=99: expected 0 to 2$"):
        asyncio.run(store.rewind("a", 99))


@pytest.mark.parametrize("manager", [(), "turn_window:2"])
@pytest.mark.parametrize(
    "strategy", ["summarize", "truncate", "turns", "hybrid", TurnStrategy(max_turns=2, keep_turns=1)]
)
@pytest.mark.fuzz
@settings(max_examples=EXAMPLES)
@given(
    steps=st.lists(
        st.sampled_from(["turn", "turn", "turn", "turn", "turn", "rewind", "clear", "compact", "reopen"]), max_size=40
    ),
    system=st.sampled_from([None, "Be brief."]),
)
def test_strategies_fold_what_is_left_after_any_rewind(strategy, manager, steps, system):
    options = {"system": system, "max_tokens": 600, "strategy": strategy, "manager": manager, "store": MemoryStore()}
    chat = Conversation("a", **options)
    positions: dict[str, int] = {}
    rewound: set[str] = set()
    for number, step in enumerate(["turn", *steps, "turn"]):
        if step == "clear":
            chat.clear()
            rewound |= positions.keys()
            positions = {}
        elif step == "rewind" and len(positions) > 1:
            text, position = positions.popitem()
            rewound.add(text)
            chat.rewind(position)
        elif step == "reopen":
            chat = Conversation("a", **options)
        elif step == "compact":
            chat.compact()
        elif step == "turn":
            texts = [f"{role} {number} {'word ' * (number * 37 % 90)}" for role in ("assistant", "user")]
            texts = texts[not positions :]
            chat.append([{"role": text.split()[0], "content": text} for text in texts])
            positions |= {text: len(chat) - len(texts) + index for index, text in enumerate(texts)}
        if positions:
            contents = _contents(chat)
            newest, position = list(positions.items())[-1]
            is_summarized = any(fold.shown and fold.start <= position < fold.stop for fold in chat.folds())
            assert is_summarized or contents[-1] == newest
            assert system in (None, contents[0])
            verbatim = [text for text in contents if str(text).startswith(("user ", "assistant "))]
            assert positions.keys() >= set(verbatim)
            assert not [text for text in rewound if " ".join(text.split()[:2]) + " " in str(contents)]
            assert chat.view().tokens <= 600


@pytest.mark.parametrize("strategy", ["summarize", "turns", "hybrid"])
def test_no_later_summary_has_what_a_rewind_hides(strategy):
    store = MemoryStore()
    for number in range(40):
        chat = Conversation("a", store=store, max_tokens=900, strategy=strategy)
        chat.append(f"{number} {'word ' * 60}", {"role": "assistant", "content": f"{number} {'text ' * 60}"})
        chat.view()
        if number in {1, 20}:
            secret = {"role": "assistant", "content": f"The path is /secret/{number}.txt."}
            chat.append(f"We must use /secret/{number}.txt.", secret)
            chat.rewind(-2)

        assert "/secret/" not in str(chat.view().messages)
    assert len(chat.folds()) < 5


def test_no_summary_of_a_history_has_what_a_rewind_hides():
    async def views():
        history = ConversationHistory(MemoryStore(), "alice", max_turns_before_compaction=4, recent_turns_to_keep=2)
        for number in range(20):
            await history.append(
                f"{number} {'word ' * 60}", {"role": "assistant", "content": f"{number} {'text ' * 60}"}
            )
            if number in {1, 10}:
                await history.append(f"We must use /secret/{number}.txt.", {"role": "assistant", "content": "Yes."})
                await history.rewind(-2)
            await history.compact()
            yield (await history.view()).messages

    async def has_secret():
        return ["/secret/" in str(view) async for view in views()]

    assert not any(asyncio.run(has_secret()))


def test_the_error_of_a_view_that_cannot_fit_names_positions_of_the_record():
    chat = Conversation("a", max_tokens=100, strategy="truncate")
    chat.append("one", {"role": "assistant", "content": "two"}, "three")
    chat.rewind(1)
    chat.append({"role": "assistant", "content": "four"}, "five " * 200)

    with pytest.raises(CannotFit, match=r"message 4, 20\d tokens"):
        chat.view()


@pytest.mark.parametrize("strategy", ["summarize", "truncate", "turns", "hybrid"])
def test_a_conversation_that_is_rewound_to_the_end_of_a_fold_has_a_view(strategy):
    chat = Conversation("a", system="rule " * 450, max_tokens=600, strategy=strategy)
    chat.append("one")
    for _ in range(20):
        chat.append({"role": "assistant", "content": "We decided to keep the old parser. " * 3}, "go on")
    chat.compact()
    chat.rewind(max(fold.stop for fold in chat.folds()))
    chat.append({"role": "system", "content": "note " * 100})

    assert chat.view().tokens <= 600


@pytest.mark.parametrize("hidden", range(1, 5))
@pytest.mark.parametrize("strategy", ["summarize", "truncate", "turns", "hybrid"])
def test_a_rewound_conversation_that_is_compacted_keeps_its_newest_messages(strategy, hidden):
    chat = Conversation("a", system="Be brief.", max_tokens=900, strategy=strategy)
    for number in range(12):
        chat.append(
            {"role": "user", "content": f"{number} {'word ' * 60}"},
            {"role": "assistant", "content": f"{number} {'text ' * 60}"},
        )
    chat.rewind(-hidden)
    visible = list(chat)[:-hidden]

    for _ in range(2):
        contents = _contents(chat)
        assert contents[0] == "Be brief."
        assert contents[-1] == visible[-1]["content"]
        assert [message["content"] for message in visible if message["role"] == "user"][-1] in contents
        chat.compact()
