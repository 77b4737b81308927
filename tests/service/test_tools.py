import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from minutebook.agent.mcp import BuiltinTools, McpProcess, McpServer, PythonFunction, Secret
from minutebook.errors import InvalidPrompt, InvalidSetting, ToolServerFailed
from minutebook.prompt.tools import ToolContext
from minutebook.service.agent_tools import ConfiguredTools, origins
from minutebook.service.config.schema import ToolConfig

SERVER = Path(__file__).parents[1] / "dsl" / "toolserver.py"
COMMAND = shlex.join([sys.executable, str(SERVER)])
KIT = "tests.service.toolkit"


async def listed(config, **given):
    made = ConfiguredTools(config, **given)
    try:
        return [tool.name for tool in await made.tools()]
    finally:
        await made.aclose()


def test_functions_and_tools_of_modules_can_be_called(tmp_path):
    async def work():
        made = ConfiguredTools(
            [
                ToolConfig(python=f"{KIT}:add"),
                ToolConfig(python=f"{KIT}:shout", name="cry"),
                ToolConfig(builtin="clock"),
            ]
        )
        return await made.tools()

    add, cry, clock = asyncio.run(work())

    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.call('{"a": 2, "b": 3}', context=None).value == 5
    assert cry.name == "cry"
    assert clock.name == "current_time"


def test_files_are_those_of_the_folder_that_is_given(tmp_path):
    (tmp_path / "a.txt").write_text("hello")

    async def work():
        return await ConfiguredTools([ToolConfig(builtin="files")], root=tmp_path).tools()

    read = next(tool for tool in asyncio.run(work()) if tool.name == "read_file")
    assert read.call('{"path": "a.txt"}', context=None).render() == "hello"


def test_a_server_is_started_with_the_secrets_it_is_given_and_ended(tmp_path):
    known = tmp_path / "pid"
    command = shlex.join(["sh", "-c", f"echo $$ > {known}; exec {COMMAND}"])

    async def work():
        config = [ToolConfig(mcp=command, env={"NOTES_KEY": "MY_KEY"}), ToolConfig(python=f"{KIT}:add")]
        made = ConfiguredTools(config, environment={**os.environ, "MY_KEY": "s3cret"})
        tools = {tool.name: tool for tool in await made.tools()}
        said = await tools["whoami"].call("{}", context=ToolContext.__new__(ToolContext))
        os.kill(int(known.read_text()), 0)
        await made.aclose()
        with pytest.raises(ProcessLookupError):
            os.kill(int(known.read_text()), 0)
        return list(tools), said.render()

    names, said = asyncio.run(work())
    assert names == ["search", "update", "whoami", "explode", "add"]
    assert said == "s3cret"


def test_a_server_that_does_not_start_is_an_error_that_names_it():
    with pytest.raises(ToolServerFailed, match="tool 'notes'"):
        asyncio.run(listed([ToolConfig(mcp=f"{sys.executable} -c pass", name="notes")]))


def test_a_secret_that_is_not_there_is_an_error_that_names_its_variable():
    with pytest.raises(InvalidSetting, match="MY_KEY"):
        asyncio.run(listed([ToolConfig(mcp=COMMAND, env={"NOTES_KEY": "MY_KEY"})], environment={}))


def test_two_tools_may_not_go_by_one_name():
    with pytest.raises(InvalidPrompt, match=r"'add' .*tools\[0\], tools\[1\]"):
        origins([ToolConfig(python=f"{KIT}:add"), ToolConfig(python=f"{KIT}:shout", name="add")])
    with pytest.raises(InvalidPrompt, match="current_time"):
        asyncio.run(listed([ToolConfig(builtin="clock"), ToolConfig(python=f"{KIT}:current_time")]))


@pytest.mark.parametrize("where", ["no_such_module:f", f"{KIT}:no_such_function"])
def test_a_function_that_is_not_there_is_an_error_before_anything_is_asked(where):
    with pytest.raises(InvalidSetting, match="a function that can be imported"):
        ConfiguredTools([ToolConfig(python=where)])


def test_a_command_that_no_shell_could_read_is_an_error():
    with pytest.raises(InvalidSetting, match=r"tools\[0\].mcp"):
        origins([ToolConfig(mcp="server 'unclosed")])


def test_configured_tools_have_the_origins_of_the_agent_language():
    found = origins(
        [
            ToolConfig(python="a.b:c"),
            ToolConfig(mcp="https://tools.example/mcp", bearer_env="T", headers_env={"X-Team": "TEAM"}, name="web"),
            ToolConfig(mcp="https://open.example/mcp"),
            ToolConfig(mcp="notes --fast", env={"A": "B"}),
            ToolConfig(builtin="files"),
        ]
    )

    assert found == {
        "c": PythonFunction("a.b", "c"),
        "web": McpServer("https://tools.example/mcp", "bearer", Secret(env="T"), (("X-Team", Secret(env="TEAM")),)),
        "mcp2": McpServer("https://open.example/mcp"),
        "mcp3": McpProcess(("notes", "--fast"), (("A", Secret(env="B")),)),
        "files": BuiltinTools("files"),
    }


def test_no_tools_are_no_tools():
    assert asyncio.run(listed([])) == []
