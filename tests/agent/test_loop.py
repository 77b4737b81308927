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
    InProcess,
    Path,
    Verdict,
    adapter_for,
    assert_coherent,
    prompt_of,
    recorded,
    spoken,
)


@pytest.fixture
def session():
    return Session()


def evaluate(model, session, prompt=None, *, provider_options=None, runner=None, **options):
    """One evaluation against a real server that is as strict as the providers; the response, and what it received."""
    with LoopbackProvider(model, **(provider_options or {})) as provider, adapter_for(provider) as adapter:
        prompt = prompt or prompt_of()
        if runner is None:
            response = adapter.evaluate_sync(prompt, session=session, **options)
        else:
            made = ConversationRunner(adapter=adapter, prompt=prompt, session=session, **options, **runner)
            response = asyncio.run(closing(adapter, made.run()))
        assert provider.problems == []
        return response, provider.requests


async def closing(adapter, work):
    try:
        return await work
    finally:
        await adapter.aclose()


def test_records_what_was_asked_called_answered_and_concluded(session):
    model = ScriptedModel(call("read", path="a.py") + call("fetch", path="b"), say("Both are fine."))

    response, _ = evaluate(model, session)

    assert response.text == response.output == "Both are fine."
    assert spoken(session) == [
        ("user", "## 1. Task\n\nLook into it."),
        ("assistant", None),
        ("tool", "The content of a.py."),
        ("tool", "What b says."),
        ("assistant", "Both are fine."),
    ]
    assert_coherent(session)


def test_with_a_request_the_prompt_is_the_system_message(session):
    evaluate(ScriptedModel("Hello."), session, request="Hi!")

    assert spoken(session) == [
        ("system", "## 1. Task\n\nLook into it."),
        ("user", "Hi!"),
        ("assistant", "Hello."),
    ]


def test_every_run_has_an_evaluation_id_of_its_own_and_counts_from_0(session):
    one, _ = evaluate(ScriptedModel("One."), session)
    two, _ = evaluate(ScriptedModel("Two."), session)

    assert one.evaluation_id != two.evaluation_id
    assert [entry.sequence for entry in get_evaluation_history(session, two.evaluation_id)] == [0, 1]
    assert [entry.content for entry in get_evaluation_history(session, one.evaluation_id)][-1] == "One."


def test_a_runner_that_runs_twice_does_not_mix_its_evaluations(session):
    with LoopbackProvider(ScriptedModel("One.", "Two.")) as provider:
        adapter = adapter_for(provider)
        runner = ConversationRunner(adapter=adapter, prompt=prompt_of(), session=session)

        async def twice():
            return await runner.run(), await runner.run()

        first, second = asyncio.run(closing(adapter, twice()))

    assert first.evaluation_id != second.evaluation_id
    assert_coherent(session)


def test_entries_say_which_provider_and_model_was_asked(session):
    evaluate(ScriptedModel("Hello."), session)

    assert {(entry.provider, entry.model) for entry in session.query(ConversationEntry).all()} == {("openai", "gpt-4o")}


def test_a_conversation_goes_on_and_only_what_is_new_is_recorded(session):
    first, _ = evaluate(ScriptedModel("Anna."), session, request="Who am I?")
    _, requests = evaluate(ScriptedModel("Still Anna."), session, request="And now?", conversation=first.conversation)

    assert [message["content"] for message in requests[0].messages] == [
        "## 1. Task\n\nLook into it.",
        "Who am I?",
        "Anna.",
        "And now?",
    ]
    assert [role for role, _ in spoken(session)] == ["system", "user", "assistant", "user", "assistant"]


def test_another_prompt_for_a_conversation_is_shown_in_place_of_the_first_and_both_are_recorded(session):
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
    assert [text for role, text in spoken(session) if role == "system"] == [
        "## 1. Task\n\nLook into it.",
        "## 1. Task\n\nSpeak like a pirate.",
    ]


def test_a_conversation_without_a_system_message_is_given_one(session):
    before = Transcript([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}])

    response, requests = evaluate(ScriptedModel("Fine."), session, request="How are you?", conversation=before)

    assert [message["role"] for message in requests[0].messages] == ["system", "user", "assistant", "user"]
    assert len(response.conversation) == 5
    assert len(before) == 2


def test_a_conversation_that_broke_off_in_a_call_is_gone_on_with(session):
    calling = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    before = Transcript(
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [calling]}]
    )

    response, requests = evaluate(ScriptedModel("Here."), session, request="Are you there?", conversation=before)

    assert response.text == "Here."
    assert [message["role"] for message in requests[0].messages] == ["system", "user", "assistant", "tool", "user"]
    assert "interrupted" in requests[0].messages[3]["content"]


def test_tools_run_at_the_same_time_and_are_recorded_in_the_order_of_their_calls(session):
    arrived, everybody = [], asyncio.Event()

    async def meet(params, *, context):
        arrived.append(params.path)
        if len(arrived) == 3:
            everybody.set()
        await everybody.wait()
        return ToolResult.ok(f"{params.path} met the others.")

    meeting = Tool[Path, None](name="meet", description="Wait for the others.", handler=meet)
    model = ScriptedModel(call("meet", path="c") + call("meet", path="a") + call("meet", path="b"), say("Done."))

    evaluate(model, session, prompt_of(tools=[meeting]))

    assert [text for role, text in spoken(session) if role == "tool"] == [
        "c met the others.",
        "a met the others.",
        "b met the others.",
    ]


def test_tools_that_are_not_async_run_at_the_same_time_too(session):
    barrier = Barrier(2, timeout=20)

    def meet(params, *, context):
        barrier.wait()
        return ToolResult.ok("Met.")

    meeting = Tool[Path, None](name="meet", description="Wait for the other.", handler=meet)

    evaluate(
        ScriptedModel(call("meet", path="a") + call("meet", path="b"), say("Done.")),
        session,
        prompt_of(tools=[meeting]),
    )

    assert [text for role, text in spoken(session) if role == "tool"] == ["Met.", "Met."]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (call("explode", path="x"), "The tool failed: RuntimeError: cannot touch x"),
        (call("sing", path="x"), "There is no tool 'sing'. Tools: read, fetch, explode."),
        (call("read", colour="red"), "path"),
        (call("read", '{"path": "a'), "JSON"),
    ],
    ids=["raises", "unknown", "wrong-arguments", "no-json"],
)
def test_the_model_is_told_what_went_wrong_with_a_call_and_goes_on(session, made, said):
    response, requests = evaluate(ScriptedModel(made, say("Then not.")), session)

    assert response.text == "Then not."
    assert said in requests[1].messages[-1]["content"]
    assert "is_error" not in requests[1].messages[-1]  # Anthropic's word, which others refuse
    assert recorded(session)[2]["is_error"] is True


def test_a_handler_that_returns_no_result_is_told_so(session):
    wrong = Tool[Path, None](name="wrong", description="Wrong.", handler=lambda params, *, context: "text")

    evaluate(ScriptedModel(call("wrong", path="x"), say("Oh.")), session, prompt_of(tools=[wrong]))

    assert "it must return a ToolResult" in spoken(session)[2][1]


def test_a_tool_that_takes_too_long_is_given_up_and_the_model_told(session):
    async def forever(params, *, context):
        await asyncio.Event().wait()

    slow = Tool[Path, None](name="slow", description="Slow.", handler=forever, timeout_seconds=0.001)

    response, _ = evaluate(ScriptedModel(call("slow", path="x"), say("Too slow.")), session, prompt_of(tools=[slow]))

    assert response.text == "Too slow."
    assert spoken(session)[2] == ("tool", "slow took longer than 0.001 seconds.")


def test_the_deadline_ends_a_run_in_the_middle_of_a_tool_and_leaves_no_call_open(session):
    async def forever(params, *, context):
        await asyncio.Event().wait()

    slow = Tool[Path, None](name="slow", description="Slow.", handler=forever)
    model = ScriptedModel(call("slow", path="x") + call("read", path="y"))

    with pytest.raises(DeadlineExceeded, match="prompt 'worker' was not done"):
        evaluate(model, session, prompt_of(tools=[slow, READ]), deadline=Deadline.after(0.4))

    assert '"interrupted"' in spoken(session)[2][1]
    assert spoken(session)[3] == ("tool", "The content of y.")
    assert_coherent(session)


def test_a_deadline_that_has_passed_is_an_error_before_anything_is_said(session):
    with pytest.raises(DeadlineExceeded):
        evaluate(ScriptedModel(), session, deadline=Deadline.after(-1))

    assert recorded(session) == []


def test_a_tool_knows_its_call_and_the_session(session):
    seen = []

    def look(params, *, context):
        seen.append(context)
        return ToolResult.ok("Seen.")

    deadline = Deadline.after(60)
    tool = Tool[Path, None](name="look", description="Look.", handler=look)
    evaluate(ScriptedModel(call("look", path="x"), say("Done.")), session, prompt_of(tools=[tool]), deadline=deadline)

    assert seen[0].session is session
    assert seen[0].call_id == recorded(session)[1]["tool_calls"][0]["id"]
    assert seen[0].deadline is deadline
    assert seen[0].bus is session.bus


def test_usage_is_summed_with_what_was_cached(session):
    model = ScriptedModel(
        call("read", path="a") + uses(prompt=100, completion=10, cached=0),
        say("Done.") + uses(prompt=150, completion=5, cached=96),
    )

    response, _ = evaluate(model, session)

    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.cached_tokens) == (250, 15, 96)
    assert response.calls == 2


def test_a_budget_that_is_used_up_stops_before_the_next_call(session):
    tracker = BudgetTracker(Budget(max_total_tokens=1000))
    model = ScriptedModel(call("read", path="a") + uses(prompt=990, completion=20), say("Never asked."))

    with pytest.raises(BudgetExceeded, match="budget of 1,000"):
        evaluate(model, session, budget_tracker=tracker)

    assert tracker.consumed.total_tokens == 1010
    assert [role for role, _ in spoken(session)] == ["user", "assistant", "tool"]


def test_an_answer_that_was_paid_for_is_given_though_it_used_up_the_budget(session):
    response, _ = evaluate(
        ScriptedModel(say("Done.") + uses(prompt=10, completion=5000)), session, budget=Budget(max_output_tokens=100)
    )

    assert response.text == "Done."


def test_one_tracker_counts_for_many_evaluations(session):
    tracker = BudgetTracker(Budget(max_input_tokens=150))
    for _ in range(2):
        evaluate(ScriptedModel(say("Done.") + uses(prompt=70, completion=1)), session, budget_tracker=tracker)

    with pytest.raises(BudgetExceeded):
        evaluate(ScriptedModel(), session, budget_tracker=tracker)


def test_a_model_that_never_answers_is_stopped(session):
    model = ScriptedModel(otherwise=call("read", path="a"))

    with pytest.raises(TooManyCalls, match="after 4 calls"):
        evaluate(model, session, runner={"max_calls": 4})

    assert_coherent(session)


def test_a_structured_answer_is_read_into_its_dataclass(session):
    model = ScriptedModel(say('{"good": true, "reason": "All tests pass."}'))

    response, requests = evaluate(model, session, prompt_of(output=Verdict))

    assert response.output == Verdict(good=True, reason="All tests pass.")
    assert requests[0].body["response_format"]["json_schema"]["name"] == "Verdict"


def test_an_answer_that_does_not_fit_is_an_error_that_says_why_and_is_recorded(session):
    with pytest.raises(OutputParseError, match="reason: is missing"):
        evaluate(ScriptedModel(say('{"good": true}')), session, prompt_of(output=Verdict))

    assert spoken(session)[-1] == ("assistant", '{"good": true}')


def test_an_answer_that_does_not_fit_is_sent_back_as_often_as_was_said(session):
    model = ScriptedModel(say("Good!"), say('{"good": true, "reason": "Tests."}'))

    response, requests = evaluate(model, session, prompt_of(output=Verdict), runner={"max_output_attempts": 2})

    assert response.output.good
    assert "The answer is not a valid Verdict" in requests[1].last_text


def test_a_refusal_is_told(session):
    response, _ = evaluate(ScriptedModel(refuse("I will not.")), session)

    assert response.refusal == "I will not."
    assert response.text == "I will not."


GUIDE = MarkdownSection(
    title="Guide", key="guide", template="Use tabs.", summary="How to write.", visibility=SectionVisibility.SUMMARY
)
TASK = MarkdownSection(title="Task", key="task", template="Look into it.", tools=[READ])
OPEN = call("open_sections", section_keys=["guide"], reason="to see") + call("read", path="a")


def test_when_the_model_opens_a_section_the_caller_is_told_and_no_call_is_left_open(session):
    with pytest.raises(VisibilityExpansionRequired) as caught:
        evaluate(ScriptedModel(OPEN), session, prompt_of(TASK, GUIDE))

    assert caught.value.requested_overrides == {("guide",): SectionVisibility.FULL}
    assert [role for role, _ in spoken(session)] == ["user", "assistant", "tool", "tool"]
    assert spoken(session)[3] == ("tool", "The content of a.")
    assert_coherent(session)


def test_a_run_may_open_sections_by_itself_and_goes_on(session):
    response, requests = evaluate(
        ScriptedModel(OPEN, say("Tabs.")), session, prompt_of(TASK, GUIDE), runner={"max_expansions": 1}
    )

    assert response.text == "Tabs."
    assert "Use tabs." not in requests[0].messages[0]["content"]
    assert "Use tabs." in requests[1].messages[0]["content"]
    assert len(requests[1].messages) == 4


def test_a_run_opens_no_more_sections_than_it_may(session):
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
    """Shows what the session has noted."""

    reads_session = True

    def body(self, params, depth, number, *, path, context):
        return " ".join(note.text for note in context.session.query(Note).all()) or "Nothing yet."


def test_a_section_that_shows_the_session_is_rendered_again_before_every_call(session):
    def note(params, *, context):
        context.session.mutate(Note).append(Note(params.path))
        return ToolResult.ok("Noted.")

    noting = Tool[Path, None](name="note", description="Note.", handler=note)
    prompt = prompt_of(Notes(title="Notes", key="notes", tools=[noting]))

    _, requests = evaluate(
        ScriptedModel(call("note", path="milk"), say("Done.")), session, prompt, request="Note milk."
    )

    assert requests[0].messages[0]["content"].endswith("Nothing yet.")
    assert requests[1].messages[0]["content"].endswith("milk")
    assert [text.splitlines()[-1] for role, text in spoken(session) if role == "system"] == ["Nothing yet.", "milk"]


def test_the_manager_shapes_what_is_sent_and_not_what_is_recorded(session):
    steps = [call("read", path=f"{n}.py") for n in range(8)]

    _, requests = evaluate(
        ScriptedModel(*steps, say("Done.")), session, request="Go.", history_manager=SlidingWindowManager(4)
    )

    assert len(requests[-1].messages) == 6  # the system message and the request are kept besides
    assert len(recorded(session)) == 2 + 16 + 1


def test_every_curation_is_told_with_its_tokens(session):
    told = []
    session.bus.subscribe(HistoryCurated, told.append)

    response, _ = evaluate(
        ScriptedModel(*[call("read", path="a")] * 6, say("Done.")), session, history_manager=SlidingWindowManager(2)
    )

    assert [event.prompt_name for event in told] == ["worker"] * 7
    assert told[-1].strategy == "sliding_window"
    assert told[-1].tokens_before == sum(map(response.conversation.tokens_of, range(13)))
    assert told[-1].tokens_after < told[-1].tokens_before
    assert told[-1].curated_count == 3


def test_an_observed_manager_tells_of_itself_and_is_not_told_of_twice(session):
    told = []
    session.bus.subscribe(HistoryCurated, told.append)
    manager = ObservableManager(SlidingWindowManager(2), bus=session.bus, prompt_name="mine")

    evaluate(ScriptedModel("Done."), session, history_manager=manager)

    assert [event.prompt_name for event in told] == ["mine"]


def test_a_manager_that_fails_is_not_papered_over(session):
    class Broken:
        def curate(self, messages, *, session):
            raise KeyError("oops")

    with pytest.raises(PromptEvaluationError, match=r"request phase: KeyError") as caught:
        evaluate(ScriptedModel(), session, history_manager=Broken())

    assert isinstance(caught.value.__cause__, KeyError)


def test_someone_who_cannot_record_stops_the_run_and_leaves_no_call_open(session):
    def full(event):
        if event.entry.tool_calls:
            raise OSError("disk full")

    session.bus.subscribe(ConversationRecorded, full)

    with pytest.raises(PromptEvaluationError, match=r"record phase: OSError: disk full"):
        evaluate(ScriptedModel(call("read", path="a") + call("read", path="b")), session)

    assert [role for role, _ in spoken(session)] == ["user", "assistant", "tool", "tool"]
    assert_coherent(session)


def test_the_bus_must_be_the_sessions_own(session):
    with pytest.raises(InvalidSetting, match="the session's own"):
        evaluate(ScriptedModel(), session, bus=InProcessEventBus())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_calls": 0},
        {"max_output_attempts": 0},
        {"max_tokens": 0},
        {"budget": Budget(), "budget_tracker": BudgetTracker(Budget(1))},
    ],
    ids=["max_calls", "max_output_attempts", "max_tokens", "two-budgets"],
)
def test_settings_that_cannot_be_meant_are_refused_before_the_first_call(session, wrong):
    with pytest.raises(InvalidSetting):
        ConversationRunner(adapter=None, prompt=prompt_of(), session=session, **wrong)


def test_a_compactor_is_asked_before_every_call_and_its_folds_are_applied(session):
    class Shortener:
        asked = 0

        async def check_and_apply(self, record, *, session, overhead_tokens):
            self.asked += 1
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

    assert compactor.asked == 4  # before every call, and after the last
    assert [message["role"] for message in requests[2].messages] == ["user", "system", "assistant", "tool"]
    assert len(recorded(session)) == 6


def test_a_result_is_never_taken_for_that_of_a_later_call_of_the_same_id(session):
    def reply(content):
        calls = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}]
        return ModelReply({"role": "assistant", "content": content, "tool_calls": calls})

    def full(event):
        if event.entry.content == "again":
            raise OSError("disk full")

    session.bus.subscribe(ConversationRecorded, full)

    with pytest.raises(PromptEvaluationError):
        asyncio.run(InProcess(reply("once"), reply("again")).evaluate(prompt_of(), session=session))

    results = [text for role, text in spoken(session) if role == "tool"]
    assert results[0] == "The content of a."
    assert "interrupted" in results[1]
