"""An MCP server whose process ends is started again: between calls, during calls, and with a delay if it ends again and again."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minutebook.agent import mcp
from minutebook.agent.mcp import McpProcess, ToolServer
from minutebook.errors import ToolServerFailed
from minutebook.prompt.tools import ToolContext
from minutebook.testing import ScriptedModel, call, say
from tests.dsl.parts import assert_whole, played
from tests.dsl.test_workflow_servers import COMMAND, SERVER, program, results

CONTEXT = ToolContext(None, None, None)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Calls:
    """Calls the tools of one real server process."""

    def __init__(self, *arguments, command=None):
        self.clock, self.restarted = Clock(), []
        origin = McpProcess(command or (sys.executable, str(SERVER), "mortal", *arguments))
        self.server = ToolServer(
            "t", origin, os.environ, Path.cwd(), on_restart=self.restarted.append, clock=self.clock
        )
        self.tools = {}

    async def __aenter__(self):
        self.tools = {tool.name: tool for tool in await self.server.tools()}
        return self

    async def __aexit__(self, *_):
        await self.server.aclose()

    async def call(self, name, **arguments):
        return (await self.tools[name].call(arguments, context=CONTEXT)).message

    async def kill(self):
        """Kill the process between two calls, and wait until its end is noticed."""
        os.kill(int(await self.call("pid")), signal.SIGKILL)
        while self.server.state == "running":  # noqa: ASYNC110 - the event loop must see the end of the pipe
            await asyncio.sleep(0)


def silent_server():
    return ToolServer("t", McpProcess((sys.executable, "-c", "import sys; sys.stdin.read()")), os.environ, Path.cwd())


def test_a_server_that_never_answers_has_failed(monkeypatch):
    monkeypatch.setattr(mcp, "_START_SECONDS", 0.5)

    async def main():
        server = silent_server()
        with pytest.raises(ToolServerFailed, match="it did not list its tools within"):
            await asyncio.wait_for(server.tools(), 20)
        await asyncio.wait_for(server.aclose(), 20)
        assert server.state == "not started"

    asyncio.run(main())


def test_a_server_that_is_starting_can_be_closed():
    async def main():
        server = silent_server()
        starting = asyncio.create_task(server.tools())
        while server.state != "running":  # noqa: ASYNC110 - the task must begin
            await asyncio.sleep(0)
        await asyncio.wait_for(server.aclose(), 20)
        await asyncio.wait([starting], timeout=5)
        assert starting.done()

    asyncio.run(main())


def test_a_server_that_was_killed_between_two_calls_is_started_again():
    async def main():
        async with Calls() as calls:
            first = await calls.call("pid")
            await calls.kill()
            assert calls.server.state == "stopped"
            assert await calls.call("search", query="tea") == "3 tickets about tea"
            assert await calls.call("pid") != first
            assert (calls.server.state, calls.server.restarts, calls.restarted) == ("running", 1, ["t"])

    asyncio.run(main())


def test_a_call_in_progress_gets_an_error_and_the_next_call_works():
    async def main():
        async with Calls() as calls:
            with pytest.raises(ToolServerFailed, match="it ended during the call, which may have had an effect"):
                await calls.call("die")
            assert await calls.call("search", query="tea") == "3 tickets about tea"

    asyncio.run(main())


def test_calls_that_run_at_the_same_time_share_one_restart():
    async def main():
        async with Calls() as calls:
            await calls.kill()
            answers = await asyncio.gather(*(calls.call("search", query=str(number)) for number in range(5)))
            assert answers == [f"3 tickets about {number}" for number in range(5)]
            assert calls.server.restarts == 1

    asyncio.run(main())


def test_all_calls_in_progress_get_an_error():
    async def main():
        async with Calls() as calls:
            outcomes = await asyncio.gather(*(calls.call("die") for _ in range(4)), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ToolServerFailed] * 4

    asyncio.run(main())


def test_a_server_that_ends_again_and_again_is_started_after_growing_delays():
    async def main():
        delays = []
        async with Calls() as calls:
            for _ in range(6):
                started = calls.clock.now
                while True:
                    with pytest.raises(ToolServerFailed) as failure:
                        await calls.call("die")
                    if "during the call" in str(failure.value):
                        break
                    assert "starts it again" in str(failure.value)
                    calls.clock.now += 1
                delays.append(calls.clock.now - started)
        return delays

    assert asyncio.run(main()) == [0, 0, 1, 2, 4, 8]


def test_a_successful_call_ends_the_delays():
    async def main():
        async with Calls() as calls:
            for _ in range(3):
                await calls.kill()
                assert await calls.call("search", query="tea")

    asyncio.run(main())


def test_a_program_that_is_no_server_is_not_started_at_every_call():
    async def main():
        calls = Calls(command=(sys.executable, "-c", "pass"))
        problems = []
        for _ in range(4):
            with pytest.raises(ToolServerFailed) as failure:
                await calls.server.tools()
            problems.append("starts it again" in str(failure.value))
        await calls.server.aclose()
        return problems

    assert asyncio.run(main()) == [False, False, True, True]


@pytest.mark.fuzz
@settings(max_examples=4)  # each starts several processes
@given(st.lists(st.sampled_from(["kill", "die", "search"]), max_size=4))
def test_after_any_deaths_the_server_answers_and_no_process_is_left(events):
    async def main():
        pids = set()
        async with Calls() as calls:
            for event in events:
                calls.clock.now += 60
                pids.add(int(await calls.call("pid")))
                if event == "kill":
                    await calls.kill()
                elif event == "die":
                    with pytest.raises(ToolServerFailed):
                        await calls.call("die")
                else:
                    assert await calls.call("search", query="x") == "3 tickets about x"
            calls.clock.now += 60
            pids.add(int(await calls.call("pid")))
        return pids

    for pid in asyncio.run(main()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_model_is_told_and_the_workflow_continues():
    model = ScriptedModel(call("die"), call("search", query="tea"), say("Done."))

    answers, workflow = played(program(f'mcp command "{COMMAND} mortal"'), model, "Go.")

    assert answers == ["Done."]
    assert "it ended during the call" in results(workflow)[0]
    assert results(workflow)[1] == "3 tickets about tea"
    assert_whole(workflow)
