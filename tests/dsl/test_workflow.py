"""Programs that run: against a real server, with models that say what they are told to."""

import asyncio
from contextlib import aclosing

import pytest

from minutebook import HistoryCompacted
from minutebook.agent import TextDelta
from minutebook.agent.events import RunFinished, ToolAnswered
from minutebook.agent.toolbox import builtin_tools
from minutebook.dsl.agents import AgentEvent, WorkflowFinished
from minutebook.dsl.workflow import DslWorkflow
from minutebook.errors import DeadlineExceeded, FlowFailed, InvalidSetting, ProviderFailed, RetriesExhausted
from minutebook.prompt import tool
from minutebook.testing import LoopbackProvider, ScriptedModel, call, fail, say
from tests.dsl.parts import HEAD, assert_whole, opened, played, quick, said, streamed
from tests.dsl.test_compile import DOCUMENT, MISSING

PAGE = "The quick brown fox jumps over the lazy dog, line after line after line. "
SOLO = f"{HEAD}agent a:\n    instruction p\n"


def read(path: str) -> str:
    """Read a chapter."""
    return f"Chapter {path} of log/{path}.txt\n" + PAGE * 40


def chapters(count):
    return ScriptedModel(*(call("read", path=str(number)) for number in range(count)), say("I have read it all."))


@pytest.mark.parametrize("strategy", ["summarize", "truncate", "hybrid"])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_run_that_would_outgrow_its_window_finishes_with_notices_that_no_model_sees(strategy, provider):
    program = (
        SOLO.replace("provider: openai", f"provider: {provider}") + f"    tools mine.read\n    history {strategy}\n"
    )

    events, workflow = streamed(
        program,
        chapters(20),
        "Read all chapters.",
        server={"max_context_tokens": 8_000},
        externals={"mine": [tool(read)]},
    )

    notices = [each.event.notice for each in events[:-1] if isinstance(each.event, HistoryCompacted)]
    assert events[-1] == WorkflowFinished("I have read it all.")
    assert workflow.provider.problems == []
    assert set(notices) == {f"[History compacted using {strategy} strategy]"}
    assert workflow.instances[0].conversation.tokens > 8_000
    assert not any("History compacted" in str(request.body) for request in workflow.provider.requests)
    assert len(said(workflow.instances[0])) == 2 + 2 * 20 + 1
    assert_whole(workflow)


def test_the_users_own_models_file_defines_the_window(tmp_path):
    (tmp_path / "models.json").write_text('{"my-model": {"max_input_tokens": 8000, "max_output_tokens": 500}}')
    program = SOLO.replace("gpt-4o", "my-model").replace("    max_input_tokens: 8000\n", "")
    program += "    tools mine.read\n    history truncate\n"

    events, workflow = streamed(
        program,
        chapters(20),
        "Read all chapters.",
        server={"max_context_tokens": 8_000},
        externals={"mine": [tool(read)]},
        environment={"MINUTEBOOK_MODELS_FILE": str(tmp_path / "models.json")},
    )

    assert events[-1] == WorkflowFinished("I have read it all.")
    assert workflow.provider.problems == []


def test_without_a_strategy_the_server_refuses_the_same_run():
    _, workflow = streamed(
        SOLO + "    tools mine.read\n",
        chapters(12),
        "Read.",
        server={"max_context_tokens": 8_000},
        externals={"mine": [tool(read)]},
    )

    assert "8000" in workflow.provider.problems[0]


def test_the_documents_example_runs(tmp_path):
    (tmp_path / "a.py").write_text("print('hi')\n")
    model = ScriptedModel(call("list_directory"), call("read_file", path="a.py"), say("It greets."))

    [answer], workflow = played(
        DOCUMENT + MISSING, model, "Review it.", externals={"mcp": builtin_tools("files", root=tmp_path)}
    )

    assert answer == "It greets."
    assert "print('hi')" in str(workflow.provider.requests[-1].body)
    assert workflow.instances[0].compactor.model.max_input_tokens == 200_000


def test_the_window_of_the_program_reaches_the_trigger():
    window = SOLO + "    history truncate\n"
    _, small = played(window, ScriptedModel(otherwise="Yes."), PAGE * 150, PAGE * 150, PAGE * 150)
    _, large = played(
        window.replace("8000", "80000"), ScriptedModel(otherwise="Yes."), PAGE * 150, PAGE * 150, PAGE * 150
    )

    assert small.instances[0].compactor.folds
    assert not large.instances[0].compactor.folds


def test_the_history_of_an_agent_may_be_a_preset_of_the_token_budget():
    program = SOLO + "    history economy\npolicy compaction:\n    target: 0.4\n"

    _, workflow = played(program, ScriptedModel(otherwise="Yes."), *[PAGE * 150] * 6)

    requests = [request.messages for request in workflow.provider.requests]
    assert len(requests[-1]) < 12
    assert requests[-1][0]["content"] == "Be brief."
    assert requests[-1][-1]["content"] == PAGE * 150
    assert workflow.instances[0].compactor is None


def test_an_agent_goes_on_with_its_conversation():
    _, workflow = played(SOLO, ScriptedModel("Hello.", "Ann."), "I am Ann.", "Who am I?")

    assert [message["content"] for message in workflow.provider.requests[1].messages] == [
        "Be brief.",
        "I am Ann.",
        "Hello.",
        "Who am I?",
    ]
    assert len(workflow.instances) == 1
    assert workflow.instances[0].session is workflow.session


def test_what_the_models_write_is_summed_up_by_the_models_of_the_program():
    program = SOLO + "    history summarize\nmodel scribe = openai/scribe\npolicy compaction:\n    model: scribe\n"
    model = ScriptedModel(
        otherwise=lambda request: say("The minutes: foxes." if request.model == "scribe" else "Go on.")
    )

    with pytest.warns(UserWarning, match="scribe"):
        _, workflow = played(program, model, *[PAGE * 100] * 5, summarizer=None)

    assert "The minutes: foxes." in str(workflow.provider.requests[-1].body)
    assert workflow.provider.problems == []


HELPERS = (
    SOLO
    + """    {how} b
    history truncate

prompt q:
    You are the helper.

agent b:
    instruction q
    description "Knows things."
    tools mine.read
"""
)


def helped(how, *steps, inputs=("Ask b.",), **options):
    return played(HELPERS.format(how=how), ScriptedModel(*steps), *inputs, externals={"mine": [tool(read)]})


def test_an_agent_that_is_used_has_a_session_of_its_own_and_the_caller_only_its_answer():
    steps = call("b", request="What is in 7?"), call("read", path="7"), say("Foxes."), say("b says foxes.")

    [answer], workflow = helped("use", *steps)

    parent, child = workflow.instances
    assert answer == "b says foxes."
    assert [message["role"] for message in said(parent)] == ["system", "user", "assistant", "tool", "assistant"]
    assert said(parent)[3]["content"] == "Foxes."
    assert "Chapter" not in str(said(parent))
    assert [message["content"] for message in said(child)][:2] == ["You are the helper.", "What is in 7?"]
    assert (child.parent, child.agent.name) == (parent, "b")
    assert_whole(workflow)


def test_an_agent_that_is_used_twice_knows_nothing_of_the_first_time():
    steps = call("b", request="One?"), say("1"), call("b", request="Two?"), say("2"), say("Done.")

    _, workflow = helped("use", *steps)

    assert "One?" not in str(workflow.provider.requests[3].body)
    assert len(workflow.instances) == 3


def test_an_agent_that_is_delegated_to_answers_for_the_caller_and_goes_on_where_it_was():
    steps = call("b", request="One?"), say("It is 1."), call("b", request="Two?"), say("It is 2.")

    answers, workflow = helped("delegate", *steps, inputs=("First.", "Second."))

    assert answers == ["It is 1.", "It is 2."]
    assert len(workflow.provider.requests) == 4
    assert "It is 1." in str(workflow.provider.requests[3].body)
    assert said(workflow.instances[0])[-1]["content"] == "It is 2."
    assert len(workflow.instances) == 2
    assert_whole(workflow)


def test_after_two_delegations_at_once_it_is_the_caller_that_answers():
    steps = [call("b", request="One?") + call("b", request="Two?")]

    model = ScriptedModel(
        *steps, otherwise=lambda request: say("Both." if "Be brief." in str(request.body) else "Something.")
    )
    [answer], workflow = played(HELPERS.format(how="delegate"), model, "Go.", externals={"mine": [tool(read)]})

    assert answer == "Both."
    assert len(workflow.instances) == 3


def test_events_say_whose_they_are():
    model = ScriptedModel(call("b", request="What?"), say("Foxes."), say("b says foxes."))
    program = HELPERS.format(how="use")

    events, _ = streamed(program, model, "Ask b.", externals={"mine": [tool(read)]})

    words = {(each.name, each.depth): "" for each in events[:-1]}
    for each in events[:-1]:
        assert isinstance(each, AgentEvent)
        if isinstance(each.event, TextDelta):
            words[each.name, each.depth] += each.event.text
    assert words == {("a", 0): "b says foxes.", ("b", 1): "Foxes."}
    assert sum(isinstance(each.event, RunFinished) for each in events[:-1]) == 2


RETRY = SOLO + "    retry r\nretry r = 2 times, {backoff} backoff from 3 seconds\n"


@pytest.mark.parametrize(
    ("backoff", "waits"), [("exponential", [3, 6, 12]), ("linear", [3, 6, 9]), ("fixed", [3, 3, 3])], ids=str
)
def test_a_provider_that_is_busy_is_asked_again_as_the_policy_says(backoff, waits):
    slept = []

    async def note(seconds):
        slept.append(seconds)

    async def main():
        with LoopbackProvider(ScriptedModel(fail(500), fail(500), fail(500), say("At last."))) as provider:
            async with DslWorkflow(
                RETRY.format(backoff=backoff).replace("2 times", "3 times"), adapters=quick(provider, sleep=note)
            ) as workflow:
                return await workflow.run("Hi.")

    assert asyncio.run(main()) == "At last."
    assert slept == waits


def test_it_is_not_asked_more_often_than_the_policy_says_and_nothing_is_said_twice():
    model = ScriptedModel(fail(500), fail(500), fail(500), say("Now."))

    async def main():
        async with opened(RETRY.format(backoff="fixed"), model) as workflow:
            with pytest.raises(RetriesExhausted):
                await workflow.run("Hi.")
            return workflow

    workflow = asyncio.run(main())
    assert len(workflow.provider.requests) == 3
    assert [message["role"] for message in said(workflow.instances[0])] == ["system", "user"]


def test_what_asking_again_does_not_mend_is_not_asked_again():
    async def main():
        async with opened(RETRY.format(backoff="fixed"), ScriptedModel(fail(401))) as workflow:
            with pytest.raises(ProviderFailed):
                await workflow.run("Hi.")
            assert len(workflow.provider.requests) == 1

    asyncio.run(main())


async def stuck() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return ""


def test_an_agent_that_takes_too_long_is_stopped_with_its_record_whole():
    program = SOLO + "    tools mine.stuck\n    timeout 2 seconds\n"

    async def main():
        async with opened(program, ScriptedModel(call("stuck")), externals={"mine": [tool(stuck)]}) as workflow:
            with pytest.raises(DeadlineExceeded):
                await workflow.run("Go.")
            assert said(workflow.instances[0])[-1]["role"] == "tool"
            assert_whole(workflow)

    asyncio.run(main())


def test_a_helper_that_takes_too_long_is_a_result_that_its_caller_reads():
    program = HELPERS.format(how="use").replace("mine.read", "mine.stuck") + "    timeout 2 seconds\n"
    model = ScriptedModel(call("b", request="?"), call("stuck"), say("b is late."))

    [answer], workflow = played(program, model, "Go.", externals={"mine": [tool(stuck)]})

    assert answer == "b is late."
    assert "b had no more time" in said(workflow.instances[0])[3]["content"]
    assert_whole(workflow)


FLOW = SOLO + "agent b:\n    instruction p\n"


def test_parallel_calls_are_all_asked_before_any_of_them_is_answered():
    program = (
        FLOW
        + "flow main:\n    parallel:\n        $x = run agent a 1\n        $y = run agent b 2\n    return [$x, $y]\n"
    )
    waiting = []
    both = asyncio.Event()

    async def meet() -> str:
        """Wait for the other."""
        waiting.append(1)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        return "met"

    program = program.replace("instruction p\n", "instruction p\n    tools mine.meet\n")
    model = ScriptedModel(call("meet"), call("meet"), otherwise="Met.")

    [answer], workflow = played(program, model, "Go.", externals={"mine": [tool(meet)]})

    assert answer == ["Met.", "Met."]
    assert_whole(workflow)


def test_an_agent_beside_itself_has_two_conversations():
    program = (
        FLOW
        + "flow main:\n    parallel:\n        $x = run agent a 1\n        $y = run agent a 2\n    return [$x, $y]\n"
    )

    [answer], workflow = played(program, ScriptedModel(otherwise=lambda request: say(request.last_text)), "Go.")

    assert answer == ["1", "2"]
    assert [said(actor)[1]["content"] for actor in workflow.instances] == ["1", "2"]


def test_the_first_call_of_a_parallel_block_that_fails_ends_the_others():
    program = FLOW.replace("agent b:", "agent b:\n    tools mine.stuck")
    program += "flow main:\n    parallel:\n        run agent b 1\n        run agent a 2\n"
    model = ScriptedModel(otherwise=lambda request: fail(401) if request.last_text == "2" else call("stuck"))

    async def main():
        async with opened(program, model, externals={"mine": [tool(stuck)]}) as workflow:
            with pytest.raises(ProviderFailed):
                await workflow.run("Go.")
            assert_whole(workflow)

    asyncio.run(main())


def test_leaving_a_stream_early_cancels_it_and_leaves_no_call_open_in_any_session():
    program = HELPERS.format(how="use").replace("mine.read", "mine.stuck")
    model = ScriptedModel(call("b", request="?"), call("stuck"))

    async def main():
        async with opened(program, model, externals={"mine": [tool(stuck)]}) as workflow:
            async with aclosing(workflow.stream("Go.")) as events:
                async for each in events:
                    if each.name == "b" and type(each.event).__name__ == "ToolCalled":
                        break
            parent, child = workflow.instances
            assert said(child)[-1]["role"] == said(parent)[-1]["role"] == "tool"
            assert_whole(workflow)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return $input.name", "a text has no field 'name'"),
        ("return [1][4]", "there is no item 4: there are 1"),
        ('return 1 - "x"', "`-` needs numbers, not a text"),
        ("return 1 / 0", "division by 0"),
        ("for $x in $input:\n        run agent a $x", "`for` needs a list, not a text"),
        ("return 3 contains 1", "`contains` needs a text or a list, not a number"),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_with_its_line(body, problem):
    program = f"{SOLO}flow main:\n    {body}\n"
    line = program[: program.index(body)].count("\n") + 1

    async def main():
        async with opened(program, ScriptedModel()) as workflow:
            with pytest.raises(FlowFailed) as caught:
                await workflow.run("Hi.")
            return caught.value

    error = asyncio.run(main())
    assert str(error) == f"<text>:{line}: flow 'main': {problem}"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ('"a" + 1', "a1"),
        ("[1] + [2]", [1, 2]),
        ("not [] and 2 >= 2", True),
        ("true == 1", False),
        ('"abc" contains "b"', True),
        ("[1, true] contains 2", False),
        ("-[3, 4][-1] / 2", -2.0),
        ('null or "x"', "x"),
        ('"a" < "b"', True),
        ("1 != 1.0", False),
    ],
)
def test_an_expression_comes_to_its_value(expression, value):
    [answer], _ = played(f"{SOLO}flow main:\n    return {expression}\n", ScriptedModel(), "Hi.")

    assert answer == value
    assert type(answer) is type(value)


def test_a_flow_gets_its_values_by_name_and_says_which_are_missing():
    program = f"{SOLO}flow main $x $y:\n    return [$x, $y, $input]\n"

    [answer], _ = played(program, ScriptedModel(), "Hi.", run={"values": {"y": 2, "x": 1}})

    assert answer == [1, 2, "Hi."]
    for values in ({"x": 1}, {"x": 1, "y": 2, "z": 3}):
        with pytest.raises(InvalidSetting, match="x, y"):
            played(program, ScriptedModel(), "Hi.", run={"values": values})


def test_an_answer_that_is_not_of_its_schema_is_asked_for_again():
    program = SOLO + "    produces S\nschema S:\n    good: bool\n    why: string?\n"

    [answer], workflow = played(program, ScriptedModel("Yes!", '{"good": true, "why": null}'), "Is it?")

    assert (answer.good, answer.why) == (True, None)
    assert len(workflow.provider.requests) == 2


def test_an_agent_with_nothing_to_answer_says_so():
    with pytest.raises(InvalidSetting, match="the input of agent 'a'"):
        played(SOLO, ScriptedModel(), " ")


def test_a_tool_that_nobody_brings_is_an_error_before_anything_runs():
    with pytest.raises(InvalidSetting, match=r"a mapping that has 'mine' too, because agent .* uses mine\.read"):
        DslWorkflow(SOLO + "    tools mine.read\n")


@pytest.mark.parametrize("target", ["nowhere.at_all:f", "examples.tools:nothing"])
def test_a_function_that_cannot_be_imported_is_an_error_before_anything_runs(target):
    with pytest.raises(InvalidSetting, match=target):
        DslWorkflow(SOLO + f"    tools t\ntool t = python {target}\n")


def test_the_results_of_tools_are_events_too():
    model = ScriptedModel(call("read", path="1"), say("Done."))

    events, _ = streamed(SOLO + "    tools mine.read\n", model, "Go.", externals={"mine": [tool(read)]})

    [done] = [each.event for each in events[:-1] if isinstance(each.event, ToolAnswered)]
    assert done.content.startswith("Chapter 1")
