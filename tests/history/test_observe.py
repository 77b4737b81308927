from datetime import UTC, datetime
from uuid import UUID

from minutebook import HistoryCurated, ObservableManager, SlidingWindowManager, TokenBudgetManager, Transcript, view_of
from minutebook.history import Guarantee, ObservableSlidingWindowManager
from minutebook.history.compose import name_from_class
from tests.every import Bus
from tests.history.test_managers import SYSTEM, turn

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHAT = [SYSTEM, *turn(1), *turn(2)]


class Session:
    session_id = UUID(int=5)


def test_publishes_the_counts_of_a_sliding_window():
    bus = Bus()
    manager = ObservableSlidingWindowManager(SlidingWindowManager(4), bus, "triage", clock=lambda: NOW)
    view = manager.curate(CHAT, session=Session())

    assert view == SlidingWindowManager(4).curate(CHAT)
    assert bus.events == [
        HistoryCurated(
            prompt_name="triage",
            original_count=9,
            curated_count=5,
            strategy="sliding_window",
            session_id=UUID(int=5),
            created_at=NOW,
        )
    ]


def test_wraps_any_object_that_curates():
    class KeepLast:
        def curate(self, messages, *, session):
            return messages[-1:]

    bus = Bus()
    assert ObservableManager(KeepLast(), bus, "p").curate(CHAT) == CHAT[-1:]
    assert bus.events[0].strategy == "keep_last"
    assert bus.events[0].created_at.tzinfo is UTC
    assert ObservableManager(KeepLast(), bus, "p", strategy="mine").curate(CHAT)
    assert bus.events[1].strategy == "mine"


def test_names_a_strategy_after_its_class():
    assert name_from_class(TokenBudgetManager(1)) == "token_budget"


def test_reads_the_index_of_a_transcript():
    manager = ObservableManager(TokenBudgetManager(10_000), Bus(), "p")

    assert manager.curate(Transcript(CHAT)) == manager.curate(CHAT) == CHAT
    assert manager.fits(CHAT)


def test_the_event_of_a_view_describes_what_is_sent_after_the_guard():
    class DropsTheRequest:
        def curate(self, messages, *, session):
            return messages[:-1]

    bus = Bus()
    view = view_of([*CHAT, {"role": "user", "content": "now"}], ObservableManager(DropsTheRequest(), bus, "p"))

    [event] = bus.events
    assert (event.original_count, event.curated_count) == (10, len(view.curated)) == (10, 10)
    assert (event.tokens_before, event.tokens_after) == (view.record.tokens, view.tokens)
    assert event.violations == view.violations
    assert [violation.guarantee for violation in event.violations] == [Guarantee.KEEPS]
