"""The guarantees 1 to 7 of every view, for every manager."""

import copy
import os
from itertools import islice, pairwise
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minutebook import (
    CannotFit,
    ComposedManager,
    CurationContext,
    ObservableManager,
    TokenBudgetManager,
    ToolResultTruncator,
    Transcript,
    check,
    counter_for,
    view_of,
)
from minutebook.record import is_valid
from minutebook.record.finding import errors
from minutebook.record.message import is_system, is_user
from tests.every import MANAGERS, Bus
from tests.strategies import broken, conversations, in_flight
from tests.transcripts import FILES, needs_corpus, real

EACH = int(os.environ.get("MINUTEBOOK_EXAMPLES", "20"))
"""Examples for each manager: a few hundred for each guarantee, over all of them."""
GROUPS = 5
ALL = [
    *(
        pytest.param(dict(islice(MANAGERS.items(), first, None, GROUPS)), id=f"{first + 1} of {GROUPS}")
        for first in range(GROUPS)
    ),
    *(
        pytest.param({name: manager}, id=name, marks=[pytest.mark.slow, pytest.mark.fuzz])
        for name, manager in MANAGERS.items()
    ),
]
"""Every manager twice: in a group that shares its conversations, since to draw one takes longer than to curate it; and,
in `make test-all` and `make fuzz`, alone."""


def every_manager(**drawn):
    """Run a property over every manager we ship."""

    def decorate(guarantee):
        def test(managers, **values):
            for name, manager in managers.items():
                try:
                    guarantee(manager, **values)
                except Exception as error:
                    error.add_note(f"The manager is {name!r}.")
                    raise

        test.__name__ = test.__qualname__ = guarantee.__name__
        test.__doc__ = guarantee.__doc__
        return pytest.mark.parametrize("managers", ALL)(settings(max_examples=EACH)(given(**drawn)(test)))

    return decorate


chats = st.one_of(conversations(), conversations(user_first=True), in_flight(), broken())
contexts = st.one_of(
    st.just(CurationContext()),
    st.builds(
        CurationContext,
        preserve_system=st.booleans(),
        preserve_last_n=st.one_of(st.none(), st.integers(0, 6)),
        pins=st.frozensets(st.integers(0, 30), max_size=3),
    ),
)
providers = st.sampled_from(["openai", "anthropic", "gemini"])
COUNT = counter_for(None).message


def curated(manager, messages, context=None):
    """The manager's view, or None where it says that nothing fits."""
    try:
        return manager.curate(messages, context=context)
    except CannotFit:
        return None


def has_text(chat):
    return any(not is_system(message) and message["role"] != "narrator" for message in Transcript.of(chat).coherent())


@every_manager(chat=chats, context=contexts, provider=providers)
def test_1_every_view_is_valid(manager, chat, context, provider):
    try:
        view = view_of(chat, manager, context=context, provider=provider)
    except CannotFit:
        return

    if has_text(chat):
        assert errors(check(view.curated, provider=provider)) == []


@every_manager(chat=conversations(user_first=True))
def test_1_a_manager_alone_never_separates_a_call_from_its_result(manager, chat):
    view = curated(manager, chat)

    assert view is None or not [f for f in errors(check(view)) if f.kind != "empty_view"]


@every_manager(chat=chats, context=contexts, budget=st.integers(1, 3_000))
def test_2_every_view_fits_or_raises(manager, chat, context, budget):
    try:
        view = view_of(chat, manager, context=context, max_tokens=budget)
    except CannotFit as refusal:
        assert refusal.irreducible
        assert refusal.needed > refusal.max_tokens
        return

    assert sum(map(COUNT, view.curated)) <= budget


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("manager", "limit"),
    [
        (MANAGERS["budget, tight"], 400),
        (MANAGERS["budget, no first request"], 500),
        (MANAGERS["clear, strip, budget"], 700),
        (MANAGERS["budget then turns"], 900),
        (ComposedManager((ToolResultTruncator(50), TokenBudgetManager(300))), 300),
        (ObservableManager(TokenBudgetManager(300), Bus(), "prompt"), 300),
    ],
)
@given(chat=chats, context=contexts)
def test_2_a_manager_keeps_its_budget_in_any_composition(manager, limit, chat, context):
    view = curated(manager, chat, context)

    assert view is None or sum(map(COUNT, view)) <= limit


@every_manager(chat=chats, context=contexts)
def test_3_every_view_keeps_the_essentials(manager, chat, context):
    try:
        view = view_of(chat, manager, context=context)
    except CannotFit:
        return

    whole = Transcript.of(chat).coherent()
    if context.preserve_system:
        assert view.curated[: whole.leading_system_count] == whole[: whole.leading_system_count]
    if whole.newest_request is not None:
        assert whole[whole.newest_request] in view.curated
    for pin in context.pins:
        if pin < len(chat) and any(message is chat[pin] for message in whole):
            assert chat[pin] in view.curated
    if whole.open_calls:
        assert any(message is whole[whole.exchange_starts[-1]] for message in view.curated)
    if context.preserve_last_n:
        assert all(message in view.curated for message in whole[-context.preserve_last_n :])


@every_manager(chat=conversations(user_first=True), context=contexts)
def test_4_a_record_that_fits_is_unchanged(manager, chat, context):
    if manager.fits(chat):
        view = curated(manager, chat, context)
        assert view is not None
        assert all(one is other for one, other in zip(view, chat, strict=True))


@every_manager(chat=conversations(max_steps=24))
def test_5_between_two_cuts_every_view_begins_with_the_one_before(manager, chat):
    transcript = Transcript()
    views = []
    for message in chat:
        transcript.append(message)
        views.append(curated(manager, transcript))

    for earlier, later in pairwise(views):
        if earlier is not None and later is not None and not was_cut(earlier, later):
            assert later[: len(earlier)] == earlier


def was_cut(earlier, later):
    """Whether something was decided between the two views: the trails grow by a step for every cut."""
    return any(one is not other for one, other in zip(earlier.note_chains, later.note_chains, strict=True))


@pytest.mark.fuzz
@given(chat=conversations(user_first=True, max_steps=40), target=st.floats(0.2, 0.9))
def test_5_a_cut_goes_down_to_the_target_so_that_cuts_are_rare(chat, target):
    manager = TokenBudgetManager(1_500, target=target)
    transcript = Transcript()
    tokens = {}
    for message in chat:
        transcript.append(message)
        view = curated(manager, transcript)
        if view is None:
            return
        if transcript.open_calls or message["role"] not in {"user", "tool"}:
            continue
        if view.note_chains[0] is not None and id(view.note_chains[0]) not in tokens and _is_cut(view.note_chains[0]):
            staying = sum(COUNT(m) for m in view if is_system(m) or is_user(m)) + _last_exchange_tokens(transcript)
            assert view.tokens <= max(manager.goal, staying + 60), "a cut left more than the target and what must stay"
        tokens[id(view.note_chains[0])] = view.tokens


def _is_cut(link):
    """Whether the view became smaller. Output of a command that is clipped when it arrives is no cut."""
    return not link.notes or not all("long output" in note.reason for note in link.notes.values())


def _last_exchange_tokens(transcript):
    return sum(transcript.tokens_of(place) for place in transcript.exchange_of(len(transcript) - 1))


@every_manager(chat=chats, context=contexts)
def test_6_the_same_messages_give_the_same_view_and_are_left_alone(manager, chat, context):
    before = copy.deepcopy(chat)
    once, again = curated(manager, chat, context), curated(manager, chat, context)

    assert once == again
    assert chat == before


@every_manager(chat=chats, data=st.data())
def test_6_a_transcript_and_a_plain_list_give_the_same_view(manager, chat, data):
    """And it does not matter at which lengths anybody looked before."""
    transcript = Transcript(broken="mark")
    looked_at = data.draw(st.sets(st.integers(0, len(chat)), max_size=6))
    for length, message in enumerate(chat):
        if length in looked_at:
            curated(manager, transcript)
        transcript.append(message)

    assert curated(manager, transcript) == curated(manager, chat)


@every_manager(chat=conversations(user_first=True))
def test_curating_a_view_again_changes_nothing_more(manager, chat):
    """For the managers whose limits are met by their own views; a rewritten result is not rewritten again."""
    view = curated(manager, chat)
    if view is not None and hasattr(manager, "fits") and manager.fits(view):
        assert curated(manager, view) == view


class Counting:
    """A counter that says how often it was asked about each message."""

    name = "counting"

    def __init__(self):
        self.asked = {}
        self.inner = counter_for(None)

    def count(self, text):
        return self.inner.count(text)

    def message(self, message):
        self.asked[id(message)] = self.asked.get(id(message), 0) + 1
        return self.inner.message(message)


@every_manager(chat=conversations(user_first=True, max_steps=24))
def test_7_no_message_is_counted_twice(manager, chat):
    counter = Counting()
    transcript = Transcript(counter=counter)
    for message in chat:
        transcript.append(message)
        curated(manager, transcript)

    assert all(counter.asked.get(id(message), 0) <= 1 for message in chat)


def test_a_message_of_ten_megabytes_is_curated():
    chat = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "lorem ipsum " * 900_000},
    ]
    view = view_of(chat, TokenBudgetManager(4_000)).curated

    assert is_valid(view)
    assert sum(map(COUNT, view)) <= 4_000
    assert view[2]["content"].startswith("lorem ipsum")


BUDGETS = {f"{tokens:,}": TokenBudgetManager(tokens) for tokens in (2_000, 8_000, 32_000, 128_000)}


@needs_corpus
@pytest.mark.parametrize("name", FILES)
def test_all_guarantees_hold_for_real_conversations_at_four_budgets(name):
    """Of a large file, each conversation at each length meets some of the managers, and every manager many of them."""
    found = list(real(name))
    one_of = min(8, 1 + len(found) // 20)
    met = set()
    for conversation in found:
        chat = conversation["messages"]
        transcript = Transcript(broken="mark")
        quarter = max(1, len(chat) // 4)
        for start in range(0, len(chat), quarter):
            transcript.extend(chat[start : start + quarter])
            for label, manager in (BUDGETS | MANAGERS).items():
                where = f"{conversation['id']} {start} {label}"
                if crc32(where.encode()) % one_of == 0:
                    met.add(label)
                    budget = manager.max_tokens if label in BUDGETS else None
                    _check_guarantees(transcript, manager, budget, where)

    assert met == {*BUDGETS, *MANAGERS}


def _essential_tokens(record, first):
    """The tokens of the leading system messages, the first request and the largest exchange, which may have been the last."""
    exchanges = (record.exchange_of(start) for start in record.exchange_starts)
    largest = max(sum(map(record.tokens_of, exchange)) for exchange in exchanges)
    return sum(map(record.tokens_of, {*range(record.leading_system_count), first})) + largest


def _check_guarantees(transcript, manager, budget, label):
    try:
        view = view_of(transcript, manager, max_tokens=budget).curated
    except CannotFit as refusal:
        assert refusal.needed > refusal.max_tokens, label
        return
    whole = transcript.coherent()
    assert not has_text(whole) or is_valid(view), label
    assert budget is None or sum(map(COUNT, view)) <= budget, label
    assert view[: whole.leading_system_count] == whole[: whole.leading_system_count], label
    assert whole.newest_request is None or whole[whole.newest_request] in view, label
    if budget is not None:
        first = whole.first_request
        assert first is None or whole[first] in view or _essential_tokens(whole, first) > budget // 2, label
        if is_valid(transcript) and transcript.tokens <= budget and not transcript.open_calls:
            assert view == list(transcript), label
    assert any(map(is_user, view)) or not any(map(is_user, whole)), label
