"""Every example runs, with models that say what such a model might."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from minutebook.agent.mcp import McpProcess, McpServer
from minutebook.dsl.compiler import compile_agents
from minutebook.testing import ScriptedModel, call, say
from tests.dsl.parts import assert_whole, played, said
from tests.dsl.test_workflow_servers import COMMAND, over_http

ROOT = Path(__file__).parents[2]
MINUTES = (
    '{"title": "Tea", "present": [{"name": "Ann", "role": null}], "decisions": ["More tea."], '
    '"mood": "calm", "minutes_long": 5}'
)
TRIAGE = '{"kind": "%s", "urgent": true, "score": 0.3}'
LONG = "The pupil moves the knight, the bishop, the rook and the queen, and castles. " * 100


def by_model(**answers):
    """A model that answers by what it is told to be: the first of these that its prompt mentions."""

    def answer(request):
        return next(text for words, text in answers.items() if words.replace("_", " ") in str(request.body))

    return ScriptedModel(otherwise=answer)


SCRIPTS = {
    "01_hello": (ScriptedModel("Hello."), ["Hi."], ["Hello."]),
    "02_code_reviewer": (
        ScriptedModel(
            call("list_directory", path="examples") + call("read_file", path="examples/tools.py"), say("It is fine.")
        ),
        ["Review examples."],
        ["It is fine."],
    ),
    "04_python_tools": (
        ScriptedModel(call("calculate", expression="6 * 7") + call("current_time"), say("42.")),
        ["6 * 7?"],
        ["42."],
    ),
    "05_retries": (ScriptedModel(call("weather", city="Oslo"), say("Snow.")), ["Oslo?"], ["Snow."]),
    "06_help_desk": (
        ScriptedModel(
            call("order_clerk", request="Where is 48213?"),
            call("order_status", order="48213"),
            say("It was shipped on Monday."),
            say("Good day!"),
        ),
        ["Where is my order 48213?", "Thanks, bye."],
        ["It was shipped on Monday.", "Good day!"],
    ),
    "07_researcher": (
        ScriptedModel(
            call("reader", request="What is this?"),
            call("read_file", path="README.md"),
            say("It says minutebook."),
            call("critic", request="A draft."),
            call("count_words", text="A draft."),
            say("It is good."),
            say("It is minutebook."),
        ),
        ["What is this project?"],
        ["It is minutebook."],
    ),
    "08_triage": (
        by_model(Sort_this_message=TRIAGE % "bug", told_of_a_bug="Look at the log."),
        ["It crashes."],
        ["Look at the log."],
    ),
    "09_each_file": (
        by_model(Write_one_paragraph="One paragraph.", Read_the_file="A file."),
        ["Go."],
        ["One paragraph."],
    ),
    "10_two_opinions": (
        by_model(Decide="Do it: For! beats Against!", best_case_for="For!", best_case_against="Against!"),
        ["Buy tea."],
        ["Do it: For! beats Against!"],
    ),
}


def spec_of(name):
    return compile_agents((ROOT / "examples" / f"{name}.sr").read_text(encoding="utf-8"), source=f"{name}.sr")


def test_every_example_is_run_here():
    apart = {"03_structured_answer", "11_mcp_servers", "12_own_history"}

    assert {path.stem for path in (ROOT / "examples").glob("*.sr")} == set(SCRIPTS) | apart


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_runs(name):
    model, inputs, expected = SCRIPTS[name]

    answers, workflow = played(spec_of(name), model, *inputs, root=ROOT)

    assert answers == expected
    assert workflow.provider.problems == []
    assert not any("is_error" in message for actor in workflow.instances for message in said(actor))
    assert_whole(workflow)


def test_the_structured_answer_is_data():
    [minutes], _ = played(spec_of("03_structured_answer"), ScriptedModel(MINUTES), "Ann: more tea!")

    assert (minutes.present[0].name, minutes.mood, minutes.minutes_long) == ("Ann", "calm", 5)


@pytest.mark.parametrize(
    ("kind", "answer"), [("question", "We will answer within a day."), ("praise", "Thank you!")], ids=str
)
def test_the_triage_takes_its_other_ways(kind, answer):
    model = by_model(Sort_this_message=TRIAGE % kind, Thank_the_writer="Thank you!")

    assert played(spec_of("08_triage"), model, "Hm.")[0] == [answer]


def test_the_opinions_reach_the_judge():
    model, inputs, _ = SCRIPTS["10_two_opinions"]

    _, workflow = played(spec_of("10_two_opinions"), model, *inputs)

    judged = workflow.provider.requests[-1].last_text
    assert all(part in judged for part in ("Buy tea.", "For it: For!", "Against it: Against!"))
    assert {request.provider for request in workflow.provider.requests} == {"openai", "anthropic"}


def test_the_servers_of_the_example_are_called():
    spec = spec_of("11_mcp_servers")
    model = ScriptedModel(call("search", query="tea"), say("Done."))
    with over_http("Bearer s3cret") as url:
        tickets, notes = spec.tools
        assert isinstance(tickets.origin, McpServer)
        assert isinstance(notes.origin, McpProcess)
        # The example's servers are nowhere; these take their places, with its secrets and its clauses.
        here = replace(tickets, origin=replace(tickets.origin, url=url))
        started = replace(notes, origin=replace(notes.origin, command=(*shlex.split(COMMAND), "only-whoami")))
        [answer], workflow = played(
            replace(spec, tools=(here, started)),
            model,
            "Close the tea tickets.",
            environment={"TICKETS_TOKEN": "s3cret", "NOTES_KEY": "k"},
        )

    assert answer == "Done."
    assert said(workflow.instances[0])[1]["content"] == "Do this today, and nothing else: Close the tea tickets."
    assert said(workflow.instances[0])[3]["content"] == "3 tickets about tea"


@pytest.mark.parametrize("agent", ["main", "note_taker", "witness"])
def test_the_own_histories_are_kept_as_each_agent_says(agent):
    model = by_model(
        Write_down_what_this_lesson="She forgets to castle.", minutes_of_a_conversation="A lesson.", You_teach="Go on."
    )

    _, workflow = played(spec_of("12_own_history"), model, *[LONG] * 20, run={"agent": agent}, summarizer=None)

    sent = str(workflow.provider.requests[-1].body)
    assert ("She forgets to castle." in sent) == (agent == "note_taker")
    assert ("A lesson." in sent) == (agent == "main")
    assert bool(workflow.instances[0].compactor) == (agent != "witness")
    assert workflow.provider.problems == []
