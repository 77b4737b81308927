"""Managers that give their own reasons with `Changed`."""

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import (
    Changed,
    ComposedManager,
    Conversation,
    ObservableManager,
    SlidingWindowManager,
    TokenBudgetManager,
    Transcript,
    view_of,
)
from minutebook.errors import InvalidMessage, InvalidResult, InvalidSetting, PromptEvaluationError
from minutebook.history import NoteStatus, explain, guard
from minutebook.record import last_turns
from minutebook.session import InProcessEventBus
from tests.strategies import conversations

PHOTO = {"type": "image_url", "image_url": {"url": "https://example.org/receipt.png"}}
CHAT = [
    {"role": "system", "content": "You check expense reports."},
    {"role": "user", "content": [PHOTO]},
    {"role": "assistant", "content": "A taxi receipt over 23.50 euros."},
    {"role": "user", "content": [{"type": "text", "text": "And this one?"}, PHOTO]},
    {"role": "assistant", "content": "A hotel bill over 118 euros."},
    {"role": "user", "content": "Add them up."},
]


def without_images(message):
    content = message["content"]
    if isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": "[image]"} if part == PHOTO else part for part in content]}


class DropOldImages:
    def curate(self, messages, *, session):
        old = set(range(len(messages))) - last_turns(messages, 1)
        return [
            Changed(without_images(message), because="an old image") if index in old else message
            for index, message in enumerate(messages)
        ]


def reasons(view):
    return [(line.index, line.status, line.reason) for line in view.explain().lines if line.status != "sent"]


EXPECTED = [(1, NoteStatus.CHANGED, "an old image"), (3, NoteStatus.CHANGED, "an old image")]


@pytest.mark.parametrize(
    "manager",
    [
        DropOldImages(),
        [DropOldImages(), SlidingWindowManager(50)],
        [SlidingWindowManager(50), DropOldImages(), TokenBudgetManager(5_000)],
        ComposedManager((ComposedManager((DropOldImages(),)),)),
        ObservableManager(DropOldImages(), InProcessEventBus(), "expenses"),
    ],
)
@pytest.mark.parametrize("record", [list, Transcript])
def test_the_reason_of_a_manager_is_in_the_explanation_and_the_message_in_the_view(manager, record):
    view = view_of(record(CHAT), manager)

    assert view.messages == [without_images(message) for message in CHAT]
    assert {type(message) for message in view.messages} == {dict}
    assert reasons(view) == EXPECTED
    assert view.why(1).reason == "an old image"
    assert view.violations == ()


def test_a_message_that_is_not_changed_is_sent():
    view = view_of(CHAT, DropOldImages())

    assert [(view.why(at).status, view.why(at).reason) for at in (0, 2, 5)] == [(NoteStatus.SENT, "")] * 3


def test_a_plain_list_of_a_manager_can_be_guarded_explained_and_sent():
    curated = DropOldImages().curate(CHAT, session=None)

    assert [line.reason for line in explain(CHAT, curated).lines if line.reason] == ["an old image"] * 2
    guarded = guard(CHAT, curated)
    assert guarded.violations == ()
    assert [note.reason for _, note in sorted(guarded.view.notes().items())][1::2] == ["an old image"] * 2
    assert json.loads(json.dumps(curated)) == [without_images(message) for message in CHAT]


def test_a_manager_that_wraps_another_keeps_its_reasons():
    class Wrapper:
        def curate(self, messages, *, session):
            return SlidingWindowManager(2).curate(messages, session=session)

    view = view_of(CHAT, Wrapper())

    assert view.why(1).reason == "older than the window of 2 messages"


def test_the_minutes_of_a_stored_conversation_have_the_reason():
    with Conversation(manager=DropOldImages()) as chat:
        chat.append(CHAT)
        view = chat.view()

        reason = chat.why(1, request=view.number)
    assert (reason.status, reason.reason) == ("changed", "an old image")


def test_changed_messages_are_matched_in_order_whatever_their_texts():
    chat = [{"role": "user", "content": text} for text in ("alpha", "beta", "gamma", "delta")]
    view = [Changed({"role": "user", "content": f"{index}"}, because=f"number {index}") for index in range(4)]

    assert [line.reason for line in explain(chat, view).lines] == [f"number {index}" for index in range(4)]


def test_a_changed_message_with_the_text_of_an_earlier_message_is_not_its_duplicate():
    record = [
        {"role": role, "content": text} for text in ("[image]", "second", "third") for role in ("user", "assistant")
    ]
    view = [*record[:2], Changed({"role": "user", "content": "[image]"}, because="an old image"), *record[3:]]

    assert [line.reason for line in explain(record, view).lines] == ["", "", "an old image", "", "", ""]


def test_changed_is_a_message_that_can_be_copied():
    changed = Changed({"role": "user", "content": "hi"}, because="shortened")

    for other in (copy.deepcopy(changed), pickle.loads(pickle.dumps(changed))):
        assert (other, other.because) == ({"role": "user", "content": "hi"}, "shortened")


@pytest.mark.parametrize("because", ["", " ", None, 5])
def test_a_change_needs_a_reason(because):
    with pytest.raises(InvalidSetting, match=r"because=.*expected the reason for the change"):
        Changed({"role": "user", "content": "hi"}, because=because)


def test_a_change_needs_a_message():
    with pytest.raises(InvalidMessage, match="is of type str; expected a mapping"):
        Changed("hi", because="shortened")


class MarkAll:
    """Wraps every message, changed or not."""

    def curate(self, messages, *, session):
        return [Changed(message, because="looked at") for message in messages]


@given(conversations())
def test_wrapping_unchanged_messages_changes_nothing(chat):
    plain, wrapped = view_of(chat), view_of(chat, MarkAll())

    assert wrapped.messages == plain.messages
    assert wrapped.curated.origins == list(plain.curated.origins)


@given(conversations(), st.integers(0, 5))
def test_the_last_turns_are_the_end_of_a_conversation_from_a_user_message_on(chat, count):
    kept = last_turns(chat, count)

    assert kept == set(range(len(chat) - len(kept), len(chat)))
    users = [index for index, message in enumerate(chat) if message["role"] == "user"]
    assert [index for index in users if index in kept] == (users[-count:] if count else [])
    assert not kept or chat[min(kept)]["role"] == "user"


@pytest.mark.parametrize("count", [-1, "2", None, True])
def test_a_wrong_number_of_turns_is_refused(count):
    with pytest.raises(InvalidSetting, match=r"count=.*expected a number of turns, 0 or more"):
        last_turns(CHAT, count)


class ReturnsNothing:
    def curate(self, messages, *, session):
        pass


class ReturnsTexts:
    def curate(self, messages, *, session):
        return [message["content"] for message in messages]


class Returns:
    def __init__(self, result):
        self.result = result

    def curate(self, messages, *, session):
        return self.result


class IsAsync:
    async def curate(self, messages, *, session):
        return messages


@pytest.mark.parametrize(
    ("manager", "message"),
    [
        (ReturnsNothing(), "ReturnsNothing.curate returned None; return a list of messages"),
        (ReturnsTexts(), "ReturnsTexts.curate returned a list with '.*' at index 0; return a list of messages"),
        (Returns(5), "Returns.curate returned 5; return a list of messages"),
        (Returns("text"), "Returns.curate returned 'text'; return a list of messages"),
        (Returns([{"role": 5}]), r"a list with {'role': 5} at index 0; return a list of messages"),
        (Returns([{1: 5}]), r"a list with {1: 5} at index 0; return a list of messages"),
        (Returns([{"role": "assistant", "tool_calls": 5}]), "at index 0; tool_calls is not a list of mappings"),
        (Returns([{"role": "assistant", "tool_calls": ["a"]}]), "at index 0; tool_calls is not a list of mappings"),
        (Returns([{"role": "assistant", "tool_calls": [{"id": 5}]}]), "at index 0; tool_calls is empty, or a call has"),
        (Returns([{"role": "user", "content": [{"type": "tool_result"}]}]), r"at index 0; content\[0\] is Anthropic's"),
        (IsAsync(), "IsAsync.curate returned a coroutine; write `def curate`, not `async def`"),
    ],
)
def test_a_wrong_result_of_a_manager_raises_at_once_and_says_the_fix(manager, message):
    for limit in (manager, [manager, TokenBudgetManager(5_000)]):
        with pytest.raises(InvalidResult, match=message):
            view_of(CHAT, limit)
    with Conversation("a", store="memory:", manager=manager) as chat:
        chat.append("Hello.")
        with pytest.raises(InvalidResult, match=message):
            chat.view()


def test_a_manager_may_yield_its_messages():
    class Newest:
        def curate(self, messages, *, session):
            yield messages[0]
            yield messages[-1]

    assert view_of(CHAT, Newest()).messages == [CHAT[0], CHAT[-1]]


def test_an_error_of_a_manager_names_the_manager():
    class Broken:
        def curate(self, messages, *, session):
            return 1 / 0

    class BrokenLater(Broken):
        def curate(self, messages, *, session):
            yield 1 / 0

    for managers in (Broken(), [TokenBudgetManager(5_000), Broken()], BrokenLater()):
        with pytest.raises(PromptEvaluationError, match=r"Broken(Later)?\.curate raised ZeroDivisionError") as caught:
            view_of([{"role": "user", "content": "hello"}], managers)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
