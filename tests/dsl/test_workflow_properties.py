"""Every property of every construct has an effect: with it a run is different than without it, or with another value.

A row is a program, what is changed in it, and what of a run shows the difference.
"""

import asyncio
import json
from dataclasses import fields
from functools import cache

import pytest

from minutebook.agent import RetryPolicy, mcp
from minutebook.dsl import spec as s
from minutebook.dsl.models import provider_adapters
from minutebook.dsl.workflow import DslWorkflow
from minutebook.errors import DeadlineExceeded, InvalidSetting, OutputParseError, ProviderFailed
from minutebook.prompt import tool
from minutebook.testing import LoopbackProvider, ScriptedModel, call, fail, say
from tests.dsl.parts import at_once
from tests.dsl.test_workflow_servers import COMMAND

PAGE = "The quick brown fox jumps over the lazy dog, line after line after line. "
BASE = """
model main:
    provider: openai
    name: gpt-4o
    max_input_tokens: 4000

model other:
    provider: openai
    name: gpt-4.1
    max_input_tokens: 4000

prompt p:
    Be brief.

prompt q:
    Be kind.

agent a:
    instruction p
"""
HISTORY = f"{BASE}    history hybrid\npolicy compaction:\n    trigger: 0.8\n    target: 0.5\n"
HELPED = (
    f'{BASE}    use b\n    history summarize\n\nagent b:\n    instruction q\n    description "Knows."\n\n'
    "policy compaction:\n    share: false\n"
)
RETRY = f"{BASE}    retry r\nretry r = 1 time, fixed backoff from 1 second\n"
SCHEMA = f'{BASE}    produces S\nschema S:\n    good: bool "whether it is"\n\nschema T:\n    good: string\n'
ASKED = f"{BASE}flow main:\n    return call llm p\n\nschema S:\n    good: bool\n"
MCP = f'{BASE}    tools t\ntool t = mcp command "{COMMAND} only-whoami"\n'


def read(path: str) -> str:
    """Read a file."""
    return PAGE * 12


async def stuck() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return ""


def observed(program, script, inputs):
    """All that a server and a user see of a run: the requests, the waits, the answers or what was raised."""
    waits = []

    async def note(seconds):
        waits.append(seconds)
        await at_once(seconds)

    async def main():
        with LoopbackProvider(ScriptedModel(*script[:-1], otherwise=script[-1])) as provider:
            adapters = provider_adapters(base_url=provider.base_url, retry_policy=RetryPolicy(attempts=1, sleep=note))
            externals = {"mine": [tool(read), tool(stuck)]}
            environment = {"KEY": "k"}
            agent = None if "flow main" in program else "a"
            async with DslWorkflow(
                program, adapters=adapters, externals=externals, environment=environment
            ) as workflow:
                answers = []
                for each in inputs:
                    try:
                        answers.append(str(await workflow.run(each, agent=agent)))
                    except (ProviderFailed, DeadlineExceeded, OutputParseError) as error:
                        answers.append(type(error).__name__)
                return [json.dumps(dict(request.body), sort_keys=True) for request in provider.requests], waits, answers

    return asyncio.run(main())


def talk(request):
    return say("Go on." if "minutes of a conversation" not in str(request.body) else "We talked of foxes.")


LONG = [PAGE * 30] * 12
WORDS = ("Yes.",)
JSON = ('{"good": true}', '{"good": "x"}', "Yes.")
TALK = (talk,)


def read_file(number):
    """An answer that reads one file, or the summary if one is requested."""

    def answer(request):
        is_summary = "minutes of a conversation" in str(request.body)
        return say("We read files.") if is_summary else call("read", path=f"src/f{number}.py")

    return answer


READ = (*map(read_file, range(30)), "Ok.")

ROWS = {
    "ModelSpec.provider": (
        BASE,
        ("provider: openai\n    name: gpt-4o", "provider: anthropic\n    name: gpt-4o"),
        WORDS,
    ),
    "ModelSpec.model": (BASE, ("gpt-4o", "o3"), WORDS),
    "ModelSpec.temperature": (BASE, ("name: gpt-4o\n", "name: gpt-4o\n    temperature: 0.5\n"), WORDS),
    "ModelSpec.max_tokens": (BASE, ("name: gpt-4o\n", "name: gpt-4o\n    max_tokens: 50\n"), WORDS),
    "ModelSpec.max_input_tokens": (HISTORY, ("4000", "40000"), TALK, LONG),
    "AgentSpec.model": (BASE, ("prompt p:", "prompt p using model other:"), WORDS),
    "AgentSpec.instruction": (BASE, ("instruction p", "instruction q"), WORDS),
    "AgentSpec.prompt": (BASE, ("instruction p", "instruction p\n    prompt q"), WORDS),
    "AgentSpec.tools": (BASE, ("instruction p", "instruction p\n    tools mine.read"), WORDS),
    "AgentSpec.produces": (SCHEMA, ("    produces S\n", ""), JSON),
    "AgentSpec.retry": (RETRY, ("    retry r\n", ""), (fail(500), "Yes.")),
    "AgentSpec.timeout_seconds": (
        f"{BASE}    tools mine.stuck\n    timeout 0.2 seconds\n",
        ("0.2", "0.4"),
        (call("stuck"), "Yes."),
    ),
    "AgentSpec.description": (HELPED, ('"Knows."', '"Knows all."'), WORDS),
    "AgentSpec.delegate": (HELPED, ("    use b\n", "    delegate b\n"), (call("b", request="?"), "It is 1.")),
    "AgentSpec.use": (HELPED, ("    use b\n", ""), WORDS),
    "AgentSpec.history": (HISTORY.partition("policy")[0], ("hybrid", "none"), TALK, LONG),
    "CompactionSpec.history": (
        f"{BASE}policy compaction:\n    strategy: truncate\n",
        ("truncate", "summarize"),
        TALK,
        LONG,
    ),
    "CompactionSpec.trigger": (HISTORY, ("0.8", "0.6"), TALK, LONG),
    "CompactionSpec.target": (HISTORY, ("target: 0.5", "target: 0.25"), TALK, LONG),
    "CompactionSpec.keep_turns": (HISTORY, ("0.5\n", "0.5\n    keep_turns: 1\n"), TALK, LONG),
    "CompactionSpec.keep_files": (
        HISTORY.replace("hybrid", "summarize\n    tools mine.read"),
        ("0.5\n", "0.5\n    keep_files: 1\n"),
        READ,
    ),
    "CompactionSpec.model": (HISTORY, ("0.5\n", "0.5\n    model: other\n"), TALK, LONG),
    "CompactionSpec.share": (
        HELPED,
        ("share: false", "share: true"),
        (lambda request: call("b", request="?") if request.last_text == "Now." else talk(request),),
        [*LONG, "Now."],
    ),
    "RetrySpec.retries": (RETRY, ("1 time,", "2 times,"), (fail(500), fail(500), "Yes.")),
    "RetrySpec.backoff": (RETRY.replace("1 time,", "2 times,"), ("fixed", "linear"), (fail(500), fail(500), "Yes.")),
    "RetrySpec.first_wait_seconds": (RETRY, ("from 1 second", "from 2 seconds"), (fail(500), "Yes.")),
    "TimeoutSpec.seconds": (
        f"{BASE}    tools mine.stuck\n    timeout t\ntimeout t = 0.2 seconds\n",
        ("timeout t\n", "timeout 1 hour\n"),
        (call("stuck"), "Yes."),
    ),
    "PromptSpec.text": (BASE, ("Be brief.", "Be long."), WORDS),
    "PromptSpec.model": (ASKED, ("prompt p:", "prompt p using model other:"), WORDS),
    "PromptSpec.expecting": (ASKED, ("prompt p:", "prompt p expecting S:"), JSON),
    "FieldSpec.type": (SCHEMA, ("good: bool", "good: int?"), ('{"good": true}', '{"good": 1}')),
    "FieldSpec.description": (SCHEMA, ("whether it is", "if it is"), JSON),
    "SchemaSpec.fields": (SCHEMA, ("produces S", "produces T"), JSON),
    "McpProcess.command": (MCP, (" only-whoami", ""), WORDS),
    "McpProcess.env": (MCP, ('whoami"\n', 'whoami" with env "NOTES_KEY" ${env:KEY}\n'), (call("whoami"), "Yes.")),
    "BuiltinTools.name": (f"{BASE}    tools t\ntool t = builtin files\n", ("files", "clock"), WORDS),
    "PythonFunction.module": (
        f"{BASE}    tools t\ntool t = python examples.tools:weather\n",
        ("examples.tools:weather", "nothing_there.tools:weather"),
        None,
    ),
    "PythonFunction.function": (
        f"{BASE}    tools t\ntool t = python examples.tools:weather\n",
        ("weather", "in_stock"),
        WORDS,
    ),
    "FlowSpec.body": (ASKED, ("return call llm p", "return 1"), WORDS),
    "FlowSpec.parameters": (
        f"{BASE}flow main:\n    return run flow f 1\nflow f $x:\n    return $x\n",
        ("run flow f 1\nflow f $x:", "run flow f 1, 2\nflow f $y $x:"),
        WORDS,
    ),
}
ELSEWHERE = {"McpServer.url", "McpServer.auth", "McpServer.secret", "McpServer.headers"}
"""In test_workflow_servers: a server that refuses whoever comes without them."""
KINDS = (
    *(s.ModelSpec, s.AgentSpec, s.CompactionSpec, s.RetrySpec, s.TimeoutSpec, s.PromptSpec, s.SchemaSpec, s.FieldSpec),
    *(mcp.McpServer, mcp.McpProcess, mcp.BuiltinTools, mcp.PythonFunction, s.FlowSpec),
)


def test_every_property_has_a_row():
    every = {f"{kind.__name__}.{each.name}" for kind in KINDS for each in fields(kind)}
    names = {name for name in every if name.endswith(".name") and not name.startswith("BuiltinTools")}

    assert set(ROWS) | ELSEWHERE == every - names


def changed(program, change):
    before, after = change
    assert before in program
    return program.replace(before, after, 1)


STILL = {"AgentSpec.timeout_seconds", "TimeoutSpec.seconds"}
"""A longer time shows itself only to those who wait for it."""


@cache
def unchanged(program, script, inputs):
    """What is seen of a program as it stands, which several rows start from: run once for all of them."""
    return observed(program, script, inputs)


@pytest.mark.parametrize("name", [name for name in ROWS if name not in STILL and ROWS[name][2] is not None])
def test_a_property_makes_a_difference(name):
    program, change, script, *inputs = ROWS[name]
    asked = inputs[0] if inputs else ["Hi.", "And now?"]

    assert unchanged(program, script, tuple(asked)) != observed(changed(program, change), script, asked)


@pytest.mark.parametrize("name", sorted(STILL))
def test_a_time_that_is_over_ends_the_run(name):
    program, _, script = ROWS[name]

    assert observed(program, script, ["Hi."])[2] == ["DeadlineExceeded"]


def test_a_function_is_looked_for_in_its_module():
    program, change, _ = ROWS["PythonFunction.module"]

    DslWorkflow(program)
    with pytest.raises(InvalidSetting, match="nothing_there"):
        DslWorkflow(changed(program, change))


def test_the_same_run_twice_shows_the_same():
    assert observed(HISTORY, TALK, LONG) == observed(HISTORY, TALK, LONG)
