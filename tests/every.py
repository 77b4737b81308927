"""Every manager we ship. What holds of all of them is written once and run over this list."""

from minutebook import (
    ComposedManager,
    ObservableManager,
    PassthroughManager,
    SlidingWindowManager,
    TokenBudgetManager,
    ToolResultClearer,
    ToolResultTruncator,
    TurnWindowManager,
)
from minutebook.conversation.config import RetentionConfig
from minutebook.conversation.retention import RetentionManager
from minutebook.history import ActiveToolsManager, ToolStripper
from minutebook.planning import StepHistoryManager


class Bus:
    """A bus that keeps what is published on it."""

    def __init__(self):
        self.events = []

    def publish(self, event):
        self.events.append(event)


MANAGERS = {
    "passthrough": PassthroughManager(),
    "window 0": SlidingWindowManager(0),
    "window 1": SlidingWindowManager(1),
    "window 4": SlidingWindowManager(4),
    "window 4 slack 3": SlidingWindowManager(4, slack=3),
    "window 4 by turn, first request": SlidingWindowManager(4, align="turn", preserve_first_user=True),
    "turns 0": TurnWindowManager(0),
    "turns 1": TurnWindowManager(1),
    "turns 2 slack 2": TurnWindowManager(2, slack=2),
    "truncate 0": ToolResultTruncator(max_length=0),
    "truncate 30": ToolResultTruncator(max_length=30),
    "truncate 30 keep 2": ToolResultTruncator(max_length=30, keep_last=2),
    "clear": ToolResultClearer(),
    "clear keep 1": ToolResultClearer(keep=1, slack=0),
    "strip": ToolStripper(),
    "strip in batches": ToolStripper(preserve_turns=1, slack=2),
    "strip all": ToolStripper(preserve_turns=0),
    "active tools": ActiveToolsManager(frozenset({"read", "run"})),
    "no active tools": ActiveToolsManager(lambda _session: ()),
    "steps": StepHistoryManager(),
    "steps, budget": ComposedManager((StepHistoryManager(), TokenBudgetManager(900))),
    "budget": TokenBudgetManager(2_000),
    "budget, names": TokenBudgetManager(600, names=0.2),
    "truncate, budget with names": ComposedManager((ToolResultTruncator(200), TokenBudgetManager(900, names=0.2))),
    "budget, tight": TokenBudgetManager(400, target=0.7, keep_results=2),
    "budget, no first request": TokenBudgetManager(600, preserve_first_request=False, reserve=100),
    "budget, bm25": TokenBudgetManager(700, scorer="bm25"),
    "budget, bm25, no first request": TokenBudgetManager(500, "quality", preserve_first_request=False, scorer="bm25"),
    "nothing composed": ComposedManager(()),
    "truncate then window": ComposedManager((ToolResultTruncator(30), SlidingWindowManager(6))),
    "clear, strip, budget": ComposedManager((ToolResultClearer(1, 1), ToolStripper(1), TokenBudgetManager(700))),
    "budget then turns": ComposedManager((TokenBudgetManager(900), TurnWindowManager(2))),
    "composed within composed": ComposedManager((ComposedManager((ToolResultTruncator(50),)), TurnWindowManager(3))),
    "retention": RetentionManager(RetentionConfig(max_loaded_messages=8)),
    "retention, reported": RetentionManager(RetentionConfig(max_loaded_messages=0), [].append),
    "retention, no tools": RetentionManager(RetentionConfig(preserve_tools_for_latest_turns=False)),
    "retention in the shadow": RetentionManager(RetentionConfig(mode="shadow"), [].append),
    "observed": ObservableManager(SlidingWindowManager(5, slack=2), Bus(), "prompt"),
}
