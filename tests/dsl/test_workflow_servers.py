"""Tools from MCP servers: real ones, made with the official SDK, each in a process of its own."""

import asyncio
import os
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from minutebook import ConversationRecorded
from minutebook.dsl.compiler import compile_agents
from minutebook.errors import InvalidSetting, MissingSetting, ToolServerFailed
from minutebook.testing import ScriptedModel, call, say
from tests.dsl.parts import HEAD, assert_whole, opened, played, said

SERVER = Path(__file__).with_name("toolserver.py")
COMMAND = shlex.join([sys.executable, str(SERVER)])


def program(origin, tools="t"):
    return f"{HEAD}tool t = {origin}\nagent a:\n    instruction p\n    tools {tools}\n"


@contextmanager
def over_http(auth):
    environment = {**os.environ, "TOOLSERVER_AUTH": auth}
    process = subprocess.Popen(
        [sys.executable, str(SERVER), "http"], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def results(workflow):
    return [message["content"] for message in said(workflow.instances[0]) if message["role"] == "tool"]


def test_the_tools_of_a_program_that_is_started_can_be_called_and_it_ends_with_the_workflow():
    source = program(f'mcp command "{COMMAND}" with env "NOTES_KEY" ${{env:MY_KEY}}')
    model = ScriptedModel(
        call("search", query="tea") + call("whoami"), call("explode"), call("search", "7"), say("Done.")
    )

    answers, workflow = played(source, model, "Go.", environment={"MY_KEY": "s3cret"})

    assert answers == ["Done."]
    assert results(workflow)[:2] == ["3 tickets about tea", "s3cret"]
    assert "the disk is full" in results(workflow)[2]
    assert "must be a JSON object" in results(workflow)[3]
    offered = {tool["function"]["name"]: tool["function"] for tool in workflow.provider.requests[0].body["tools"]}
    assert set(offered) == {"search", "update", "whoami", "explode"}
    assert offered["search"]["description"] == "Search the tickets."
    assert offered["search"]["parameters"]["required"] == ["query"]
    assert_whole(workflow)


@pytest.mark.parametrize(
    ("clause", "auth"),
    [
        ("with auth bearer ${env:TOKEN}", "Bearer ann:pw"),
        ("with auth basic ${env:TOKEN}", "Basic YW5uOnB3"),
        ('with header "Authorization" ${env:TOKEN}', "ann:pw"),
    ],
    ids=["bearer", "basic", "header"],
)
def test_a_server_at_a_url_is_called_with_its_secret(clause, auth):
    with over_http(auth) as url:
        model = ScriptedModel(call("update", ticket=4), say("Done."))

        _, workflow = played(
            program(f'mcp "{url}" {clause}', "t.update"), model, "Go.", environment={"TOKEN": "ann:pw"}
        )

    assert '"closed": 4' in results(workflow)[0]
    assert len(workflow.provider.requests[0].body["tools"]) == 1


def failing(source, error, match, **options):
    async def main():
        async with opened(source, ScriptedModel(), **options) as workflow:
            with pytest.raises(error, match=match):
                await workflow.run("Go.")

    asyncio.run(main())


def test_a_server_that_refuses_the_secret_is_an_error_that_names_it():
    with over_http("Bearer right") as url:
        source = program(f'mcp "{url}" with auth bearer ${{env:TOKEN}}')
        failing(source, ToolServerFailed, "tool 't': the MCP server http", environment={"TOKEN": "wrong"})


@pytest.mark.parametrize("command", ["no-such-program-anywhere", f"{sys.executable} -c pass"], ids=["none", "ends"])
def test_a_program_that_is_no_server_is_an_error_that_names_it(command):
    failing(
        program(f'mcp command "{command}"'),
        ToolServerFailed,
        f"tool 't': the MCP server {command.split()[0]} does not respond",
    )


def test_a_secret_that_is_not_set_is_an_error_that_names_its_variable():
    source = program(f'mcp command "{COMMAND}" with env "NOTES_KEY" ${{env:MY_KEY}}')
    failing(source, MissingSetting, "MY_KEY", environment={})


def test_a_tool_that_the_server_has_not_is_an_error_that_says_which_it_has():
    failing(program(f'mcp command "{COMMAND}"', "t.serch"), InvalidSetting, "search, update, whoami, explode")


def test_a_server_can_be_brought_by_whoever_runs_the_program():
    [origin] = [tool.origin for tool in compile_agents(program(f'mcp command "{COMMAND}"')).tools]
    source = f"{HEAD}agent a:\n    instruction p\n    tools mcp.search\n"
    model = ScriptedModel(call("search", query="tea"), say("Done."))

    _, workflow = played(source, model, "Go.", externals={"mcp": origin})

    assert results(workflow) == ["3 tickets about tea"]


def test_a_cancelled_call_leaves_a_server_that_still_answers():
    source = program(f'mcp command "{COMMAND}"')
    model = ScriptedModel(call("search", query="a"), call("search", query="b"), say("Done."))

    async def main():
        async with opened(source, model) as workflow:
            task = asyncio.create_task(workflow.run("Go."))
            called = asyncio.Event()
            workflow.session.bus.subscribe(
                ConversationRecorded, lambda event: called.set() if event.entry.tool_calls else None
            )
            await called.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert_whole(workflow)
            assert await workflow.run("Again.") == "Done."
            assert "3 tickets about b" in results(workflow)

    asyncio.run(main())
