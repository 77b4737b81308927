"""The requests of a replay are the views that the library builds, with the lab's costs."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from minutebook import SlidingWindowManager, TokenBudgetManager, Transcript, view_of
from minutebook.history.cache_cost import CacheLedger
from minutebook.history.curation import NoteStatus
from minutebook.record.fold import Fold
from minutebook.service.inspector.cards import card_of
from minutebook.service.inspector.conversation import FATES, InspectedFold
from minutebook.service.inspector.policy import ReplayPolicy, info_of, new_conversation, replay
from minutebook.service.inspector.rows import chunks_with, row_blocks
from minutebook.service.inspector.strip import BASELINE, strip_of
from tests.service.inspector.parts import session

POLICIES = [
    ReplayPolicy(max_tokens=900),
    ReplayPolicy(max_tokens=2_500),
    ReplayPolicy(("sliding_window:8",)),
    ReplayPolicy(("tool_result_clearer",)),
    ReplayPolicy(("passthrough",)),
]


def replayed(messages, policy, folds=()):
    conversation = new_conversation("a", messages, model="gpt-4o", folds=[InspectedFold(fold) for fold in folds])
    replay(conversation, policy)
    assert conversation.failure is None
    return conversation


def view_at(conversation, request, policy, folds=()):
    manager, budget, _ = policy.manager("gpt-4o")
    record = Transcript(conversation.messages[: request.length], counter=conversation.record.counter, broken="mark")
    return view_of(record, manager, max_tokens=budget, folds=[fold for fold in folds if fold.stop <= request.length])


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_every_request_has_the_statuses_and_tokens_of_its_view(policy):
    conversation = replayed(session(12)["messages"], policy)

    assert len(conversation.requests) == 24
    for request in conversation.requests:
        view = view_at(conversation, request, policy)
        lines = [line for line in view.explain().lines if line.index is not None]
        statuses = [s.status for s in conversation.fate_spans(request) for _ in range(s.start, s.stop)]
        assert statuses == [line.status for line in lines]
        assert [conversation.sent_tokens(request, line.index) for line in lines] == [line.sent_tokens for line in lines]
        assert request.sent == view.tokens
        assert conversation.sent_count(request) == len(view.curated)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_cached_tokens_and_breaks_are_those_of_the_cache_ledger(policy):
    conversation = replayed(session(12)["messages"], policy)

    ledger = CacheLedger()
    for request in conversation.requests:
        view = view_at(conversation, request, policy)
        counts = [conversation.record.counter.message(message) for message in view.curated]
        cached, busts = ledger.cached, ledger.busts
        ledger.send(list(view.curated), counts)
        assert request.cached == ledger.cached - cached
        assert (request.cache_break is not None) == (ledger.busts > busts)
    assert sum(request.sent for request in conversation.requests) == ledger.tokens


def test_a_fold_hides_its_messages_and_shows_its_own_at_its_start():
    messages = session(8, words=5)["messages"]
    fold = Fold.over(range(1, 9), reason="two turns", shown="The first two orders have arrived.")
    policy = ReplayPolicy(("passthrough",))
    conversation = replayed(messages, policy, [fold])

    last = conversation.requests[-1]
    folded = [span for span in conversation.fate_spans(last) if span.fate == "folded"]
    assert [(span.start, span.stop) for span in folded] == [(1, 9)]
    assert [part.start for part in conversation.added(last, 0, last.length)] == [1]
    assert last.sent == view_at(conversation, last, policy, [fold]).tokens
    first = next(request for request in conversation.requests if request.new_folds)
    assert first.length >= 9
    assert first.cache_break is not None


def test_rows_in_the_middle_of_a_fold_show_what_is_sent_instead_of_it():
    messages = session(40, words=5)["messages"]
    fold = Fold.over(range(1, 149), reason="most turns", shown="Most orders have arrived.")
    conversation = replayed(messages, ReplayPolicy(("passthrough",)), [fold])
    last = conversation.requests[-1]

    start, middle = (next(iter(row_blocks(conversation, last, *rows))) for rows in ((1, 100), (100, 150)))
    assert (middle.run, middle.tokens, middle.sent_tokens) == (start.run, start.tokens, start.sent_tokens)
    assert [row.head.text for row in middle.sent] == [row.head.text for row in start.sent] != []


def test_a_fold_in_place_of_another_one_is_a_change_and_has_its_own_beginning():
    messages = session(12, words=5)["messages"]
    folds = [Fold.over(range(1, stop), reason="old turns", shown=f"Summary {stop}.") for stop in (9, 25)]
    conversation = replayed(messages, ReplayPolicy(("passthrough",)), folds)
    second = next(request for request in conversation.requests if folds[1].id in request.new_folds)

    (now,) = (block for block in row_blocks(conversation, second, 0, second.length) if block.fate == "folded")
    assert (now.run, now.is_change) == (range(1, 25), True)
    (last,) = (block for block in row_blocks(conversation, conversation.requests[-1], 0, 49) if block.fate == "folded")
    assert last.since == (second.number, second.number)


def test_a_run_of_messages_that_are_not_sent_says_when_its_first_and_last_were_left_out():
    conversation = replayed(session(30)["messages"], ReplayPolicy(max_tokens=2_500))
    last = conversation.requests[-1]

    block = max(row_blocks(conversation, last, 0, last.length), key=lambda block: len(block.run))
    assert block.fate == "dropped"
    assert block.since == tuple(conversation.since(last, block.run[index]) for index in (0, -1))
    assert block.since[0] < block.since[1]


@pytest.mark.parametrize("only", ["changed", "kept", "new", "cleared", "dropped"])
def test_a_filter_names_the_chunks_that_have_its_rows(only):
    conversation = replayed(session(150, words=8)["messages"], ReplayPolicy(max_tokens=3_000))
    request = next(request for request in reversed(conversation.requests) if request.cache_break)

    def is_shown(block):
        return block.is_change or block.fate == "new" if only == "changed" else block.fate == only

    starts = range(0, request.length, 100)
    found = [
        start
        for start in starts
        if any(map(is_shown, row_blocks(conversation, request, start, min(start + 100, request.length))))
    ]
    assert chunks_with(conversation, request, only) == found


def test_a_refused_request_says_why_and_costs_nothing():
    messages = [{"role": "user", "content": "word " * 500}, {"role": "assistant", "content": "ok"}]
    conversation = replayed(messages, ReplayPolicy(max_tokens=50))

    (request,) = conversation.requests
    assert request.base is None
    assert "50" in request.refusal
    assert (request.sent, request.cost) == (0, 0.0)
    assert request.marks == ("refused",)


def test_the_costs_of_all_messages_add_up_to_the_cost_of_the_session():
    conversation = replayed(session(10)["messages"], ReplayPolicy(max_tokens=2_500))

    cards = [card_of(conversation, position) for position in range(len(conversation.messages))]
    added = sum(
        conversation.pricing.cost(0, part.tokens)
        for request in conversation.requests
        for part in conversation.added(request, 0, request.length)
    )
    assert sum(card.cost for card in cards) == pytest.approx(conversation.series.cost - added, rel=1e-9)


def test_a_card_names_the_answer_that_repeats_a_line_and_the_call_of_a_result():
    conversation = replayed(session(3)["messages"], ReplayPolicy(max_tokens=2_500))

    card = card_of(conversation, 3)
    assert card.uses == [4]
    assert card.pair == [2]
    assert card_of(conversation, 2).pair == [3]
    assert card.times_sent == len([request for request in conversation.requests if request.length > 3])


def test_since_is_the_first_request_with_the_same_status():
    conversation = replayed(session(12)["messages"], ReplayPolicy(max_tokens=2_500))

    last = conversation.requests[-1]
    for span in conversation.fate_spans(last):
        since = conversation.since(last, span.start)
        statuses = {}
        for request in conversation.requests:
            if request.length > span.start:
                found = next(s for s in conversation.fate_spans(request) if s.start <= span.start < s.stop)
                statuses[request.number] = found.status
        same = [n for n in statuses if all(statuses[m] is span.status for m in statuses if m >= n)]
        assert since == min(same)


def test_every_status_has_a_fate():
    assert set(FATES) == set(NoteStatus)


def test_managers_are_chosen_by_name_and_the_default_is_the_budget_of_the_window():
    manager, budget, name = ReplayPolicy().manager("gpt-4o")
    assert isinstance(manager, TokenBudgetManager)
    assert (budget, name) == (manager.max_tokens, f"TokenBudgetManager {manager.max_tokens:,}")
    assert isinstance(ReplayPolicy(("sliding_window:8",)).manager("gpt-4o")[0], SlidingWindowManager)


def test_models_that_are_not_known_cause_no_warning_in_any_thread():
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(info_of, ["gpt-4o", "<math><mtext></mtext>"] * 100))

    assert {info and info.name for info in found} == {"gpt-4o", None}


def test_bars_of_the_strip_stay_visible_beside_a_much_larger_record():
    conversation = replayed(session(60)["messages"], ReplayPolicy(max_tokens=1_200))
    strip = strip_of(conversation)

    assert conversation.record.tokens > 10 * 1_200
    assert max(bar.cached_height + bar.written_height for bar in strip.bars) > BASELINE / 3
    assert all(float(point.partition(",")[2]) >= 0 for point in strip.line.split())
    assert strip.highest == conversation.requests[-1].record_tokens
    assert strip_of(replayed(session(2)["messages"], ReplayPolicy(max_tokens=1_200))).highest is None
