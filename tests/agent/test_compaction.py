"""A run whose history grows beyond the context window while it works."""

from itertools import pairwise

import pytest

from minutebook import (
    CompactionManager,
    HistoryCompacted,
    ModelInfo,
    Session,
    SummarizeStrategy,
    Tool,
    ToolResult,
    Transcript,
    TurnWindowManager,
    counter_for,
)
from minutebook.agent import ModelReply, RetryPolicy
from minutebook.compaction.fact_ledger import with_braces_expanded
from minutebook.record import is_valid
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from tests.agent.parts import ADAPTERS, InProcessAdapter, Path, adapter_for, assert_coherent, prompt_of, recorded

WINDOW = 200_000
TOTAL = 215_098
CALLS = 24
PAGE = "The quick brown fox jumps over the lazy dog, line after line after line. "


def big_reads():
    """A tool whose results are together larger than the window, each with its own chapter number."""
    counter = counter_for("gpt-4o")
    repetitions = TOTAL // CALLS * 100 // counter.count(PAGE * 100)

    def read(params, *, context):
        return ToolResult.ok(f"Chapter {params.path} of log/{params.path}.txt\n" + PAGE * repetitions)

    return Tool[Path, None](name="read", description="Read a chapter.", handler=read)


def script():
    return ScriptedModel(*(call("read", path=str(number)) for number in range(CALLS)), say("I have read it all."))


def run(kind, compactor, events):
    session = Session()
    with LoopbackProvider(script(), max_context_tokens=WINDOW) as provider:
        with adapter_for(provider, kind, retry_policy=RetryPolicy(attempts=1)) as adapter:
            session.bus.subscribe(HistoryCompacted, events.append)
            response = adapter.evaluate_sync(
                prompt_of(tools=[big_reads()]),
                session=session,
                request="Read all chapters and tell me the end.",
                compactor=compactor and compactor(session.bus),
            )
        return response, provider, session


@pytest.mark.parametrize("strategy", ["summarize", "truncate", "hybrid"])
@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_a_run_whose_history_exceeds_the_window_finishes(kind, strategy):
    events = []
    model = ModelInfo("claude", max_input_tokens=WINDOW)

    response, provider, session = run(kind, lambda bus: CompactionManager(strategy, model, bus=bus), events)

    assert response.text == "I have read it all."
    assert provider.problems == []
    assert response.calls == CALLS + 1
    assert {event.notice for event in events} == {f"[History compacted using {strategy} strategy]"}
    assert len(events) <= 4
    assert response.conversation.tokens > TOTAL
    assert len(recorded(session)) == 2 + 2 * CALLS + 1
    assert is_valid(response.view.curated, provider=adapter_for(provider, kind).provider)
    assert "History compacted" not in str(provider.requests[-1].body)
    assert_coherent(session)


def test_without_a_strategy_an_overflow_is_retried_with_a_shorter_view():
    response, provider, _ = run("openai", None, [])

    assert response.text == "I have read it all."
    assert len(provider.problems) == 1
    assert "200000" in provider.problems[0]


def test_a_custom_summarizer_runs_within_the_run():
    class FixedSummarizer:
        async def summarize(self, request):
            assert request.messages
            return "Chapters were read; nothing but foxes and dogs."

    events = []
    strategy = SummarizeStrategy()
    response, provider, _ = run(
        "openai",
        lambda bus: CompactionManager(strategy, ModelInfo("m", max_input_tokens=WINDOW), FixedSummarizer(), bus=bus),
        events,
    )

    assert len(events) == 1
    assert "nothing but foxes and dogs" in str(provider.requests[-1].body)
    assert "log/3.txt" in with_braces_expanded(
        str(provider.requests[-1].body)
    )  # from the ledger: the summary does not name it
    assert response.text == "I have read it all."


@pytest.mark.parametrize("strategy", ["summarize", "truncate", "hybrid"])
def test_a_compaction_never_brings_back_messages_that_the_run_s_manager_has_cut(strategy):
    """The manager is given to the run, not to the compactor: folds and cuts are one account nevertheless."""
    session, origins = Session(), []
    compactor = CompactionManager(strategy, ModelInfo("m", max_input_tokens=2_000), bus=session.bus)
    adapter = InProcessAdapter()
    conversation = Transcript(counter=adapter.counter)
    for number in range(60):
        adapter.replies.append(ModelReply({"role": "assistant", "content": f"Answer {number}. " + "because " * 40}))
        response = adapter.evaluate_sync(
            prompt_of(tools=()),
            session=session,
            request=f"Question {number}: " + "why " * 20,
            conversation=conversation,
            compactor=compactor,
            history_manager=TurnWindowManager(3, slack=3),
        )
        origins.append({origin for origin in response.view.curated.origins if origin is not None})

    assert compactor.folds
    for earlier, later in pairwise(origins):
        cut = set(range(max(earlier))) - earlier
        assert cut.isdisjoint(later)
