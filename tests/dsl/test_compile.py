import pickle
import threading

import pytest

from minutebook import errors
from minutebook.agent import mcp
from minutebook.compaction.registry import BUILTIN_STRATEGIES
from minutebook.dsl import spec as s
from minutebook.dsl.checks.scope import STRATEGIES
from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.parser import parse_agents
from minutebook.prompt.parse import parse_arguments
from tests.dsl.good import AGENT, GOOD, MODEL, PROMPT, agent, flow, model, tool

DOCUMENT = """
streetrace v1

model main:
    provider: anthropic
    name: claude-sonnet
    max_input_tokens: 200000

agent code_reviewer:
    tools mcp.read_file, mcp.list_directory
    instruction code_review_prompt
    history summarize
"""
MISSING = "\nprompt code_review_prompt:\n    Review the code.\n"


def test_the_documents_example_lacks_only_its_prompt():
    with pytest.raises(errors.ProgramInvalid) as caught:
        compile_agents(DOCUMENT, externals=["mcp"])

    assert [each.code for each in caught.value.diagnostics] == ["unknown-prompt"]


def test_the_documents_example_with_its_prompt_compiles():
    spec = compile_agents(DOCUMENT + MISSING, externals=["mcp"])

    assert spec.warnings == ()
    assert spec.models == (s.ModelSpec("main", "anthropic", "claude-sonnet", max_input_tokens=200_000),)
    assert spec.agents == (
        s.AgentSpec(
            "code_reviewer",
            "main",
            "code_review_prompt",
            tools=(mcp.ToolRef("mcp", "read_file", external=True), mcp.ToolRef("mcp", "list_directory", external=True)),
            history=s.HistorySpec("summarize"),
        ),
    )
    assert spec.entry == s.Entry("agent", "code_reviewer")


def test_history_with_and_without_a_colon_means_the_same():
    assert compile_agents(agent("history summarize")) == compile_agents(agent("history: summarize"))


def test_every_property_of_a_model_is_there():
    spec = compile_agents(
        model("provider: openai", "name: gpt-4.1", "temperature: 1", "max_tokens: 5", "max_input_tokens: 7")
    )

    assert spec.model("main") == s.ModelSpec("main", "openai", "gpt-4.1", 1, 5, 7)
    assert spec.model("main").id == "openai/gpt-4.1"


def test_a_short_model_is_split_at_its_first_slash():
    assert compile_agents(GOOD["model with slashes"]).model("main").model == "meta/llama-4:free"


def test_every_property_of_an_agent_is_there():
    assert compile_agents(GOOD["all ten properties"]).agent("a") == s.AgentSpec(
        name="a",
        model="main",
        instruction="p",
        prompt="ask",
        tools=(mcp.ToolRef("t"),),
        produces="S",
        retry=s.RetrySpec("r", 2),
        timeout_seconds=60.0,
        description="All of it.",
        delegate=("b",),
        use=("c",),
        history=s.HistorySpec("summarize"),
    )


def test_every_property_of_the_policy_is_there():
    assert compile_agents(GOOD["policy, all properties"]).compaction == s.CompactionSpec(
        s.HistorySpec("hybrid"), trigger=0.9, target=0.5, keep_turns=3, keep_files=5, model="main", share=True
    )


def test_the_policys_strategy_is_for_agents_that_name_none():
    policy = "policy compaction:\n    strategy: truncate\n"

    assert compile_agents(agent(more=policy)).agent("a").history == s.HistorySpec("truncate")
    assert compile_agents(agent("history turns", more=policy)).agent("a").history == s.HistorySpec("turns")
    assert compile_agents(agent("history none", more=policy)).agent("a").history is None
    assert compile_agents(AGENT).agent("a").history is None


def test_the_strategies_of_the_language_are_those_there_are():
    assert set(STRATEGIES) == set(BUILTIN_STRATEGIES)


def test_a_flow_can_be_a_strategy():
    spec = compile_agents(GOOD["history by a flow"])

    assert spec.agent("a").history == s.HistorySpec(flow="shorten")
    assert spec.entry == s.Entry("agent", "a")


def test_a_registered_strategy_is_known():
    text = agent("history my_own")

    assert compile_agents(text, strategies=["my_own"]).agent("a").history == s.HistorySpec("my_own")
    with pytest.raises(errors.ProgramInvalid, match="unknown-strategy"):
        compile_agents(text)


def test_default_policies_are_for_agents_that_name_none():
    more = "retry default = 3 times, linear backoff from 2 seconds\ntimeout default = 0.5 minutes\ntimeout t = 1 hour\n"

    spec = compile_agents(agent(more=more) + "agent b:\n    instruction p\n    timeout t\n")

    assert spec.agent("a").retry == s.RetrySpec("default", 3, "linear", 2.0)
    assert spec.agent("a").retry.attempts == 4
    assert (spec.agent("a").timeout_seconds, spec.agent("b").timeout_seconds) == (30.0, 3600.0)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("builtin files", mcp.BuiltinTools("files")),
        ("python a.b:c", mcp.PythonFunction("a.b", "c")),
        ('mcp "https://x.org"', mcp.McpServer("https://x.org")),
        (
            'mcp "https://x.org" with header "A" "b" with auth basic ${env:L}',
            mcp.McpServer("https://x.org", "basic", mcp.Secret(env="L"), (("A", mcp.Secret(value="b")),)),
        ),
        (
            'mcp command "run \'it all\' now" with env "K" ${env:V}',
            mcp.McpProcess(("run", "it all", "now"), (("K", mcp.Secret(env="V")),)),
        ),
    ],
    ids=["builtin", "python", "url", "clauses", "command"],
)
def test_a_tool_is(text, origin):
    assert compile_agents(tool(text)).tool("t").origin == origin


def test_a_secret_is_read_from_the_environment_and_never_shown():
    spec = compile_agents(tool('mcp "https://x.org" with auth bearer "hunter2" with header "A" ${env:KEY}'))
    server = spec.tool("t").origin

    assert "hunter2" not in repr(spec)
    assert "hunter2" not in repr(parse_agents('tool t = mcp "https://x.org" with auth bearer "hunter2"'))
    assert server.secret.reveal({}) == "hunter2"
    assert server.headers[0][1].reveal({"KEY": "k"}) == "k"
    with pytest.raises(errors.MissingSetting, match="KEY"):
        server.headers[0][1].reveal({})


@pytest.mark.parametrize(
    ("models", "using", "chosen"),
    [
        ("model x = a/b\n", "", "x"),
        ("model x = a/b\nmodel main = a/c\n", "", "main"),
        ("model x = a/b\nmodel main = a/c\n", " using model x", "x"),
    ],
    ids=["the only one", "main", "named"],
)
def test_an_agents_model_is(models, using, chosen):
    text = f"{models}prompt p{using}:\n    t\nagent a:\n    instruction p\n"

    assert compile_agents(text).agent("a").model == chosen


def test_a_prompt_is_filled():
    prompt = compile_agents(GOOD["prompt with an escaped place"].replace("Write", "${input}: write")).prompt("p")

    assert prompt.placeholders == ("input",)
    assert prompt.fill({"input": "${input}"}) == "${input}: write ${name}, $5 and $PATH."


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (flow("return"), s.Entry("flow", "main")),
        (AGENT.replace("agent a", "agent main") + "flow f:\n    return\n", s.Entry("agent", "main")),
        (AGENT.replace("agent a", "agent") + "agent b:\n    instruction p\n", s.Entry("agent", "")),
        (AGENT + "agent b:\n    instruction p\nflow f:\n    return\n", s.Entry("flow", "f")),
        (GOOD["helpers of helpers"], s.Entry("agent", "a")),
        (AGENT + "agent b:\n    instruction p\n", None),
        ("", None),
    ],
    ids=["flow main", "agent main", "no name", "only flow", "not called", "two", "nothing"],
)
def test_a_program_begins_with(text, entry):
    assert compile_agents(text).entry == entry


def test_a_schema_is_a_dataclass_that_answers_are_read_into():
    spec = compile_agents(
        f'{MODEL}{PROMPT}schema P:\n    name: string\nschema S:\n    ok: bool "fine?"\n    people: list[P]\n'
        '    level: "low" | "high"\n    note: string?\nagent a:\n    instruction p\n    produces S\n'
    )

    read = parse_arguments(spec.output_type("S"), '{"ok": true, "people": [{"name": "Ada"}], "level": "low"}', "S")

    assert spec.output_type("S") is spec.output_type("S")
    assert (read.ok, read.people[0].name, read.level, read.note) == (True, "Ada", "low", None)
    assert spec.json_schema("S")["properties"]["level"] == {"type": "string", "enum": ["low", "high"]}
    assert spec.json_schema("S")["required"] == ["ok", "people", "level"]
    assert spec.json_schema("S", strict=True)["required"] == ["ok", "people", "level", "note"]
    assert spec.json_schema("S")["properties"]["ok"]["description"] == "fine?"


@pytest.mark.parametrize("name", ["all ten properties", "comments everywhere", "if elif else", "mcp with headers"])
def test_a_spec_is_a_value(name):
    spec = compile_agents(GOOD[name])

    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(compile_agents(GOOD[name]))
    with pytest.raises(AttributeError):
        spec.agents = ()


def test_what_is_not_there_is_named():
    with pytest.raises(errors.InvalidSetting, match=r"agent='b': expected one that the program defines \(a\)"):
        compile_agents(AGENT).agent("b")


def test_many_threads_can_parse_at_once():
    texts = list(GOOD.values())
    expected = [parse_agents(text) for text in texts]
    found: dict[int, list[object]] = {}

    def work(number: int) -> None:
        found[number] = [parse_agents(text) for text in texts]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [found[number] for number in range(4)] == [expected] * 4
