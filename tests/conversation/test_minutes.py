"""Minutes that are extended from view to view equal minutes that are made at once."""

import hashlib
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minutebook import Changed, ComposedManager, Fold, SlidingWindowManager, TokenBudgetManager, Transcript, view_of
from minutebook.agent.messages import Usage, usage_from
from minutebook.conversation.minutes import messages_digest, minutes_of, usage_json
from minutebook.history import ToolResultClearer, ToolStripper
from tests.strategies import broken, conversations


class Shout:
    """Changes the first user message, and says so."""

    def curate(self, messages, *, session):
        first = next((index for index, message in enumerate(messages) if message["role"] == "user"), None)
        return [
            Changed({**message, "content": "HEY"}, because="shouting") if index == first else message
            for index, message in enumerate(messages)
        ]


class Count:
    """Adds the number of messages to the first one, so that every view differs from the one before it."""

    def curate(self, messages, *, session):
        return [{**messages[0], "count": len(messages)}, *messages[1:]]


MANAGERS = [
    None,
    SlidingWindowManager(4),
    TokenBudgetManager(120),
    ComposedManager((ToolResultClearer(keep=1), SlidingWindowManager(6, slack=3))),
    ToolStripper(1),
    Shout(),
    Count(),
]


def assert_same_minutes(chat, manager, folds=()):
    record, positions = Transcript(broken="mark"), []
    for index, message in enumerate(chat):
        record.append(message)
        positions.append(index)
        current = [fold for fold in folds if fold.stop <= index]
        fresh = Transcript(chat[: index + 1], broken="mark")
        try:
            view, expected = (view_of(source, manager, folds=current) for source in (record, fresh))
        except ValueError:  # such as CannotFit
            continue
        assert minutes_of(view, view, positions) == minutes_of(expected, expected, list(positions))


@pytest.mark.parametrize("manager", MANAGERS)
@given(chat=conversations())
def test_extended_minutes_equal_those_made_at_once(manager, chat):
    assert_same_minutes(chat, manager)


@given(chat=broken(), manager=st.sampled_from(MANAGERS))
def test_also_of_broken_conversations(chat, manager):
    assert_same_minutes(chat, manager)


@given(chat=conversations(), manager=st.sampled_from(MANAGERS))
def test_also_when_folds_are_added(chat, manager):
    record = Transcript(chat)
    ends = [record.exchange_of(index).stop for index in range(record.leading_system_count, len(chat))][:2]
    start = record.leading_system_count
    folds = [
        Fold.over(range(start, stop), shown="[earlier]", reason=f"until {stop}")
        for stop in dict.fromkeys(ends)
        if stop > start
    ]

    assert_same_minutes(chat, manager, folds)


def test_also_when_a_cut_leaves_out_what_a_fold_shows():
    sizes = [85, 95, 2, 105, 60, 2]
    chat = [{"role": ("user", "assistant")[index % 2], "content": "word " * size} for index, size in enumerate(sizes)]
    fold = Fold.over(range(2), shown="[earlier]", reason="small talk")

    assert_same_minutes(chat, TokenBudgetManager(120), [fold])


@given(conversations())
def test_the_digest_is_that_of_the_messages_as_a_json_list(chat):
    text = json.dumps(chat, ensure_ascii=False, separators=(",", ":"))
    assume(not any("\ud800" <= character <= "\udfff" for character in text))  # UTF-8 has no lone surrogates

    assert messages_digest(chat) == hashlib.sha256(text.encode()).hexdigest()


@given(st.builds(Usage, *(st.integers(0, 1_000),) * 5))
def test_stored_usage_keeps_every_count(usage):
    assert usage_from(usage_json(usage)) == usage
