import asyncio
from dataclasses import dataclass
from threading import Barrier

import pytest

from minutebook import (
    ConversationEntry,
    ConversationRecorded,
    ConversationRunner,
    Fold,
    HistoryCurated,
    InProcessEventBus,
    MarkdownSection,
    ObservableManager,
    Section,
    Session,
    SlidingWindowManager,
    Tool,
    ToolResult,
    Transcript,
    VisibilityExpansionRequired,
)
from minutebook.agent import Budget, BudgetTracker, Deadline, ModelReply
from minutebook.compaction import CompactionResult
from minutebook.errors import (
    BudgetExceeded,
    DeadlineExceeded,
    InvalidSetting,
    OutputParseError,
    PromptEvaluationError,
    TooManyCalls,
)
from minutebook.prompt import SectionVisibility
from minutebook.session import get_evaluation_history
from minutebook.testing import LoopbackProvider, ScriptedModel, call, refuse, say, uses
from tests.agent.parts import (
    READ,
    InProcessAdapter,
    Path,
    Verdict,
    adapter_for,
    assert_coherent,
    prompt_of,
    recorded,
    roles_and_texts,
)


@pytest.fixture
def session():
    return Session()


def evaluate(model, session, prompt=None, *, provider_options=None, runner=None, **options):
    """Evaluate against a strict provider on loopback; return the response and the requests."""
    with LoopbackProvider(model, **(provider_options or {})) as provider, adapter_for(provider) as adapter:
        prompt = prompt or prompt_of()
        if runner is None:
            response = adapter.evaluate_sync(prompt, session=session, **options)
        else:
            conversation_runner = ConversationRunner(
                adapter=adapter, prompt=prompt, session=session, **options, **runner
            )
            response = asyncio.run(close_after(adapter, conversation_runner.run()))
        assert provider.problems == []
        return response, provider.requests


async def close_after(adapter, work):
    try:
        return await work
    finally:
        await adapter.aclose()


def test_records_prompt_calls_results_and_answer(session):
    model = ScriptedModel(call("read", path="a.py") + call("fetch", path="b"), say("Both are fine."))

    response, _ = evaluate(model, session)

    assert response.text == response.output == "Both are fine."
    assert roles_and_texts(session) == [
        ("user", "## 1. Task\n\nLook into it."),
        ("assistant", None),
        ("tool", "The content of a.py."),
        ("tool", "What b says."),
        ("assistant", "Both are fine."),
    ]
    assert_coherent(session)


def test_with_a_request_the_prompt_is_the_system_message(session):
    evaluate(ScriptedModel("Hello."), session, request="Hi!")

    assert roles_and_texts(session) == [
        ("system", "## 1. Task\n\nLook into it."),
        ("user", "Hi!"),
        ("assistant", "Hello."),
    ]


def test_every_run_has_its_own_evaluation_id_and_counts_from_0(session):
    first, _ = evaluate(ScriptedModel("One."), session)
    second, _ = evaluate(ScriptedModel("Two."), session)

    assert first.evaluation_id != second.evaluation_id
    assert [entry.sequence for entry in get_evaluation_history(session, second.evaluation_id)] == [0, 1]
    assert [entry.content for entry in get_evaluation_history(session, first.evaluation_id)][-1] == "One."


def test_a_runner_that_runs_twice_does_not_mix_its_evaluations(session):
    with LoopbackProvider(ScriptedModel("One.", "Two.")) as provider:
        adapter = adapter_for(provider)
        runner = ConversationRunner(adapter=adapter, prompt=prompt_of(), session=session)

        async def twice():
            return await runner.run(), await runner.run()

        first, second = asyncio.run(close_after(adapter, twice()))

    assert first.evaluation_id != second.evaluation_id
    assert_coherent(session)


def test_entries_have_provider_and_model(session):
    evaluate(ScriptedModel("Hello."), session)

    assert {(entry.provider, entry.model) for entry in session.query(ConversationEntry).all()} == {("openai", "gpt-4o")}


def test_a_conversation_is_continued_and_only_new_messages_are_recorded(session):
    first, _ = evaluate(ScriptedModel("Anna."), session, request="Who am I?")
    _, requests = evaluate(ScriptedModel("Still Anna."), session, request="And now?", conversation=first.conversation)

    assert [message["content"] for message in requests[0].messages] == [
        "## 1. Task\n\nLook into it.",
        "Who am I?",
        "Anna.",
        "And now?",
    ]
    assert [role for role, _ in roles_and_texts(session)] == ["system", "user", "assistant", "user", "assistant"]


def test_a_changed_prompt_replaces_the_first_in_the_view_and_both_are_recorded(session):
    first, _ = evaluate(ScriptedModel("Anna."), session, request="Who am I?")
    _, requests = evaluate(
        ScriptedModel("Ahoy!"),
        session,
        prompt_of(text="Speak like a pirate."),
        request="Hi",
        conversation=first.conversation,
    )

    assert [message["content"] for message in requests[0].messages][:2] == [
        "## 1. Task\n\nSpeak like a pirate.",
        "Who am I?",
    ]
    assert [text for role, text in roles_and_texts(session) if role == "system"] == [
        "## 1. Task\n\nLook into it.",
        "## 1. Task\n\nSpeak like a pirate.",
    ]


def test_a_conversation_without_a_system_message_is_given_one(session):
    before = Transcript([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}])

    response, requests = evaluate(ScriptedModel("Fine."), session, request="How are you?", conversation=before)

    assert [message["role"] for message in requests[0].messages] == ["system", "user", "assistant", "user"]
    assert len(response.conversation) == 5
    assert len(before) == 2


def test_a_conversation_that_ends_with_an_open_call_is_continued(session):
    open_call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    before = Transcript(
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [open_call]}]
    )

    response, requests = evaluate(ScriptedModel("Here."), session, request="Are you there?", conversation=before)

    assert response.text == "Here."
    assert [message["role"] for message in requests[0].messages] == ["system", "user", "assistant", "tool", "user"]
    assert "interrupted" in requests[0].messages[3]["content"]


def test_async_tools_run_in_parallel_and_results_are_recorded_in_call_order(session):
    arrived, all_arrived = [], asyncio.Event()

    async def meet(params, *, context):
        arrived.append(params.path)
        if len(arrived) == 3:
            all_arrived.set()
        await all_arrived.wait()
        return ToolResult.ok(f"{params.path} met the others.")

    meet_tool = Tool[Path, None](name="meet", description="Wait for the others.", handler=meet)
    model = ScriptedModel(call("meet", path="c") + call("meet", path="a") + call("meet", path="b"), say("Done."))

    evaluate(model, session, prompt_of(tools=[meet_tool]))

    assert [text for role, text in roles_and_texts(session) if role == "tool"] == [
        "c met the others.",
        "a met the others.",
        "b met the others.",
    ]


def test_sync_tools_run_in_parallel(session):
    barrier = Barrier(2, timeout=20)

    def meet(params, *, context):
        barrier.wait()
        return ToolResult.ok("Met.")

    meet_tool = Tool[Path, None](name="meet", description="Wait for the other.", handler=meet)

    evaluate(
        ScriptedModel(call("meet", path="a") + call("meet", path="b"), say("Done.")),
        session,
        prompt_of(tools=[meet_tool]),
    )

    assert [text for role, text in roles_and_texts(session) if role == "tool"] == ["Met.", "Met."]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (call("explode", path="x"), "The tool failed: RuntimeError: cannot touch x"),
        (call("sing", path="x"), "Unknown tool 'sing'. Available tools: read, fetch, explode."),
        (call("read", colour="red"), "path"),
        (call("read", '{"path": "a'), "JSON"),
    ],
    ids=["raises", "unknown", "wrong-arguments", "no-json"],
)
def test_a_failed_call_returns_the_problem_to_the_model(session, step, problem):
    response, requests = evaluate(ScriptedModel(step, say("Then not.")), session)

    assert response.text == "Then not."
    assert problem in requests[1].messages[-1]["content"]
    assert "is_error" not in requests[1].messages[-1]  # a key of Anthropic only, which other providers reject
    assert recorded(session)[2]["is_error"] is True


def test_a_handler_that_returns_no_tool_result_is_an_error(session):
    wrong_tool = Tool[Path, None](name="wrong", description="Wrong.", handler=lambda params, *, context: "text")

    evaluate(ScriptedModel(call("wrong", path="x"), say("Oh.")), session, prompt_of(tools=[wrong_tool]))

    assert "it must return a ToolResult" in roles_and_texts(session)[2][1]


def test_a_tool_is_cancelled_after_its_timeout_and_the_model_gets_an_error(session):
    async def forever(params, *, context):
        await asyncio.Event().wait()

    slow = Tool[Path, None](name="slow", description="Slow.", handler=forever, timeout_seconds=0.001)

    response, _ = evaluate(ScriptedModel(call("slow", path="x"), say("Too slow.")), session, prompt_of(tools=[slow]))

    assert response.text == "Too slow."
    assert roles_and_texts(session)[2] == ("tool", "slow exceeded its timeout of 0.001 seconds.")


def test_the_deadline_cancels_a_running_tool_and_leaves_no_call_open(session):
    async def forever(params, *, context):
        await asyncio.Event().wait()

    slow = Tool[Path, None](name="slow", description="Slow.", handler=forever)
    model = ScriptedModel(call("slow", path="x") + call("read", path="y"))

    with pytest.raises(DeadlineExceeded, match="prompt 'worker' exceeded its deadline"):
        evaluate(model, session, prompt_of(tools=[slow, READ]), deadline=Deadline.after(0.4))

    assert '"interrupted"' in roles_and_texts(session)[2][1]
    assert roles_and_texts(session)[3] == ("tool", "The content of y.")
    assert_coherent(session)


def test_a_deadline_that_has_passed_is_an_error_before_anything_is_recorded(session):
    with pytest.raises(DeadlineExceeded):
        evaluate(ScriptedModel(), session, deadline=Deadline.after(-1))

    assert recorded(session) == []


def test_a_tool_gets_its_call_id_and_the_session(session):
    contexts = []

    def look(params, *, context):
        contexts.append(context)
        return ToolResult.ok("Seen.")

    deadline = Deadline.after(60)
    tool = Tool[Path, None](name="look", description="Look.", handler=look)
    evaluate(ScriptedModel(call("look", path="x"), say("Done.")), session, prompt_of(tools=[tool]), deadline=deadline)

    assert contexts[0].session is session
    assert contexts[0].call_id == recorded(session)[1]["tool_calls"][0]["id"]
    assert contexts[0].deadline is deadline
    assert contexts[0].bus is session.bus


def test_usage_is_the_sum_over_calls_including_cached_tokens(session):
    model = ScriptedModel(
        call("read", path="a") + uses(prompt=100, completion=10, cached=0),
        say("Done.") + uses(prompt=150, completion=5, cached=96),
    )

    response, _ = evaluate(model, session)

    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.cached_tokens) == (250, 15, 96)
    assert response.calls == 2


def test_an_exceeded_budget_stops_the_run_before_the_next_call(session):
    tracker = BudgetTracker(Budget(max_total_tokens=1000))
    model = ScriptedModel(call("read", path="a") + uses(prompt=990, completion=20), say("Never asked."))

    with pytest.raises(BudgetExceeded, match="1,000 allowed"):
        evaluate(model, session, budget_tracker=tracker)

    assert tracker.consumed.total_tokens == 1010
    assert [role for role, _ in roles_and_texts(session)] == ["user", "assistant", "tool"]


def test_a_final_answer_that_exceeds_the_budget_is_returned(session):
    response, _ = evaluate(
        ScriptedModel(say("Done.") + uses(prompt=10, completion=5000)), session, budget=Budget(max_output_tokens=100)
    )

    assert response.text == "Done."


def test_a_tracker_adds_up_several_evaluations(session):
    tracker = BudgetTracker(Budget(max_input_tokens=150))
    for _ in range(2):
        evaluate(ScriptedModel(say("Done.") + uses(prompt=70, completion=1)), session, budget_tracker=tracker)

    with pytest.raises(BudgetExceeded):
        evaluate(ScriptedModel(), session, budget_tracker=tracker)


def test_a_model_that_only_calls_tools_is_stopped_after_max_calls(session):
    model = ScriptedModel(otherwise=call("read", path="a"))

    with pytest.raises(TooManyCalls, match="after 4 model calls"):
        evaluate(model, session, runner={"max_calls": 4})

    assert_coherent(session)


def test_a_structured_answer_is_parsed_as_its_dataclass(session):
    model = ScriptedModel(say('{"good": true, "reason": "All tests pass."}'))

    response, requests = evaluate(model, session, prompt_of(output=Verdict))

    assert response.output == Verdict(good=True, reason="All tests pass.")
    assert requests[0].body["response_format"]["json_schema"]["name"] == "Verdict"


def test_an_invalid_answer_is_recorded_and_raises_with_the_problem(session):
    with pytest.raises(OutputParseError, match="reason: is missing"):
        evaluate(ScriptedModel(say('{"good": true}')), session, prompt_of(output=Verdict))

    assert roles_and_texts(session)[-1] == ("assistant", '{"good": true}')


def test_an_invalid_answer_is_returned_to_the_model_while_attempts_are_left(session):
    model = ScriptedModel(say("Good!"), say('{"good": true, "reason": "Tests."}'))

    response, requests = evaluate(model, session, prompt_of(output=Verdict), runner={"max_output_attempts": 2})

    assert response.output.good
    assert "The answer is not a valid Verdict" in requests[1].last_text


def test_a_refusal_is_in_the_response(session):
    response, _ = evaluate(ScriptedModel(refuse("I will not.")), session)

    assert response.refusal == "I will not."
    assert response.text == "I will not."


GUIDE = MarkdownSection(
    title="Guide", key="guide", template="Use tabs.", summary="How to write.", visibility=SectionVisibility.SUMMARY
)
TASK = MarkdownSection(title="Task", key="task", template="Look into it.", tools=[READ])
OPEN = call("open_sections", section_keys=["guide"], reason="to see") + call("read", path="a")


def test_opening_a_section_raises_and_leaves_no_call_open(session):
    with pytest.raises(VisibilityExpansionRequired) as caught:
        evaluate(ScriptedModel(OPEN), session, prompt_of(TASK, GUIDE))

    assert caught.value.requested_overrides == {("guide",): SectionVisibility.FULL}
    assert [role for role, _ in roles_and_texts(session)] == ["user", "assistant", "tool", "tool"]
    assert roles_and_texts(session)[3] == ("tool", "The content of a.")
    assert_coherent(session)


def test_with_max_expansions_the_run_opens_sections_and_continues(session):
    response, requests = evaluate(
        ScriptedModel(OPEN, say("Tabs.")), session, prompt_of(TASK, GUIDE), runner={"max_expansions": 1}
    )

    assert response.text == "Tabs."
    assert "Use tabs." not in requests[0].messages[0]["content"]
    assert "Use tabs." in requests[1].messages[0]["content"]
    assert len(requests[1].messages) == 4


def test_opening_sections_more_often_than_max_expansions_raises(session):
    other = MarkdownSection(
        title="More", key="more", template="And spaces.", summary="More.", visibility=SectionVisibility.SUMMARY
    )
    model = ScriptedModel(OPEN, call("open_sections", section_keys=["more"], reason="to see"))

    with pytest.raises(VisibilityExpansionRequired):
        evaluate(model, session, prompt_of(TASK, GUIDE, other), runner={"max_expansions": 1})


@dataclass(frozen=True)
class Note:
    text: str


class Notes(Section[None]):
    """Shows the notes of the session."""

    reads_session = True

    def body(self, params, depth, number, *, path, context):
        return " ".join(note.text for note in context.session.query(Note).all()) or "Nothing yet."


def test_a_section_that_shows_the_session_is_rendered_again_before_every_call(session):
    def note(params, *, context):
        context.session.mutate(Note).append(Note(params.path))
        return ToolResult.ok("Noted.")

    note_tool = Tool[Path, None](name="note", description="Note.", handler=note)
    prompt = prompt_of(Notes(title="Notes", key="notes", tools=[note_tool]))

    _, requests = evaluate(
        ScriptedModel(call("note", path="milk"), say("Done.")), session, prompt, request="Note milk."
    )

    assert requests[0].messages[0]["content"].endswith("Nothing yet.")
    assert requests[1].messages[0]["content"].endswith("milk")
    assert [text.splitlines()[-1] for role, text in roles_and_texts(session) if role == "system"] == [
        "Nothing yet.",
        "milk",
    ]


def test_the_manager_changes_the_view_and_not_the_record(session):
    steps = [call("read", path=f"{n}.py") for n in range(8)]

    _, requests = evaluate(
        ScriptedModel(*steps, say("Done.")), session, request="Go.", history_manager=SlidingWindowManager(4)
    )

    assert len(requests[-1].messages) == 6  # in addition to the window: the system message and the request
    assert len(recorded(session)) == 2 + 16 + 1


def test_every_view_publishes_an_event_with_its_tokens(session):
    events = []
    session.bus.subscribe(HistoryCurated, events.append)

    response, _ = evaluate(
        ScriptedModel(*[call("read", path="a")] * 6, say("Done.")), session, history_manager=SlidingWindowManager(2)
    )

    assert [event.prompt_name for event in events] == ["worker"] * 7
    assert events[-1].strategy == "sliding_window"
    assert events[-1].tokens_before == sum(map(response.conversation.tokens_of, range(13)))
    assert events[-1].tokens_after < events[-1].tokens_before
    assert events[-1].curated_count == 3


def test_an_observable_manager_publishes_its_event_only_once(session):
    events = []
    session.bus.subscribe(HistoryCurated, events.append)
    manager = ObservableManager(SlidingWindowManager(2), bus=session.bus, prompt_name="mine")

    evaluate(ScriptedModel("Done."), session, history_manager=manager)

    assert [event.prompt_name for event in events] == ["mine"]


def test_an_error_of_the_manager_is_raised(session):
    class Broken:
        def curate(self, messages, *, session):
            raise KeyError("oops")

    with pytest.raises(
        PromptEvaluationError, match=r"'[^']+' failed in the request phase: Broken.curate raised KeyError"
    ) as caught:
        evaluate(ScriptedModel(), session, history_manager=Broken())

    assert isinstance(caught.value.__cause__, KeyError)


def test_a_failing_handler_of_recorded_messages_stops_the_run_and_leaves_no_call_open(session):
    def fail_to_store(event):
        if event.entry.tool_calls:
            raise OSError("disk full")

    session.bus.subscribe(ConversationRecorded, fail_to_store)

    with pytest.raises(PromptEvaluationError, match=r"record phase: OSError: disk full"):
        evaluate(ScriptedModel(call("read", path="a") + call("read", path="b")), session)

    assert [role for role, _ in roles_and_texts(session)] == ["user", "assistant", "tool", "tool"]
    assert_coherent(session)


def test_another_bus_than_the_sessions_is_refused(session):
    with pytest.raises(InvalidSetting, match="expected the session's bus"):
        evaluate(ScriptedModel(), session, bus=InProcessEventBus())


@pytest.mark.parametrize(
    "settings",
    [
        {"max_calls": 0},
        {"max_output_attempts": 0},
        {"max_tokens": 0},
        {"budget": Budget(), "budget_tracker": BudgetTracker(Budget(1))},
    ],
    ids=["max_calls", "max_output_attempts", "max_tokens", "two-budgets"],
)
def test_invalid_settings_are_refused_before_the_first_call(session, settings):
    with pytest.raises(InvalidSetting):
        ConversationRunner(adapter=None, prompt=prompt_of(), session=session, **settings)


def test_the_compactor_runs_before_every_call_and_its_folds_are_applied(session):
    class Shortener:
        checks = 0

        async def check_and_apply(self, record, *, session, overhead_tokens):
            self.checks += 1
            assert overhead_tokens > 0
            if len(record) < 4:
                return CompactionResult()
            return CompactionResult((Fold("f1", 1, 3, ({"role": "system", "content": "[it read a.py]"},), "old"),))

    compactor = Shortener()
    _, requests = evaluate(
        ScriptedModel(call("read", path="a.py"), call("read", path="b.py"), say("Done.")),
        session,
        runner={"compactor": compactor},
    )

    assert compactor.checks == 4  # before every call, and after the last
    assert [message["role"] for message in requests[2].messages] == ["user", "system", "assistant", "tool"]
    assert len(recorded(session)) == 6


def test_a_result_is_not_used_for_a_later_call_with_the_same_id(session):
    def reply(content):
        calls = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}]
        return ModelReply({"role": "assistant", "content": content, "tool_calls": calls})

    def fail_to_store(event):
        if event.entry.content == "again":
            raise OSError("disk full")

    session.bus.subscribe(ConversationRecorded, fail_to_store)

    with pytest.raises(PromptEvaluationError):
        asyncio.run(InProcessAdapter(reply("once"), reply("again")).evaluate(prompt_of(), session=session))

    results = [text for role, text in roles_and_texts(session) if role == "tool"]
    assert results[0] == "The content of a."
    assert "interrupted" in results[1]
