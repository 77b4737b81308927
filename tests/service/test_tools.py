import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from minutebook.agent.mcp import BuiltinTools, McpProcess, McpServer, PythonFunction, Secret
from minutebook.errors import InvalidPrompt, InvalidSetting, MissingSetting, ToolServerFailed
from minutebook.prompt.tools import ToolContext
from minutebook.service.agent_tools import ConfiguredTools, own_files, tool_origins
from minutebook.service.config.schema import ToolConfig
from tests.service.serving import served

SERVER = Path(__file__).parents[1] / "dsl" / "toolserver.py"
COMMAND = shlex.join([sys.executable, str(SERVER)])
KIT = "tests.service.toolkit"


async def tool_names(config, **options):
    configured = ConfiguredTools(config, **options)
    try:
        return [tool.name for tool in await configured.tools()]
    finally:
        await configured.aclose()


def test_functions_and_tools_of_modules_can_be_called(tmp_path):
    async def work():
        configured = ConfiguredTools(
            [
                ToolConfig(python=f"{KIT}:add"),
                ToolConfig(python=f"{KIT}:shout", name="cry"),
                ToolConfig(builtin="clock"),
            ]
        )
        return await configured.tools()

    add, cry, clock = asyncio.run(work())

    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.call('{"a": 2, "b": 3}', context=None).value == 5
    assert cry.name == "cry"
    assert clock.name == "current_time"


def test_file_tools_use_the_given_root(tmp_path):
    (tmp_path / "a.txt").write_text("hello")

    async def work():
        return await ConfiguredTools([ToolConfig(builtin="files")], root=tmp_path).tools()

    read = next(tool for tool in asyncio.run(work()) if tool.name == "read_file")
    assert read.call('{"path": "a.txt"}', context=None).render() == "hello"


KEY_FILE = "MINUTEBOOK_ENCRYPTION_KEY_FILE"


@pytest.mark.parametrize(
    ("form", "environment"),
    [
        ("sqlite:///{}", {}),
        ("{}", {}),
        ("sqlite:///{}?search=off", {}),
        ("sqlite:///{}?search=off&encryption_key_file=chat.key", {}),
        ("sqlite:///{}", {KEY_FILE: "chat.key"}),
    ],
)
def test_file_tools_do_not_read_the_files_of_the_service(tmp_path, monkeypatch, form, environment):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("hello")
    if "chat.key" in f"{form} {environment}":
        (tmp_path / "chat.key").write_bytes(bytes(32))
    config, db = "tools: [{builtin: files}]", form.format(tmp_path / "chat one.db")
    with served(db=db, config=config, folder=tmp_path, environment=environment) as here:
        http = here.http()
        http.post("/v1/conversations")
        assert {"chat one.db", "llm_config.yaml", "a.txt"} <= {path.name for path in tmp_path.iterdir()}
        tools = asyncio.run(ConfiguredTools(here.service.config.tools, hidden=own_files(here.service)).tools())

    listing = next(tool for tool in tools if tool.name == "list_directory")
    assert listing.call("{}", context=None).render() == "a.txt"


def test_a_server_is_started_with_its_secrets_and_stopped(tmp_path):
    pid_file = tmp_path / "pid"
    command = shlex.join(["sh", "-c", f"echo $$ > {pid_file}; exec {COMMAND}"])

    async def work():
        config = [ToolConfig(mcp=command, env={"NOTES_KEY": "MY_KEY"}), ToolConfig(python=f"{KIT}:add")]
        configured = ConfiguredTools(config, environment={**os.environ, "MY_KEY": "s3cret"})
        tools = {tool.name: tool for tool in await configured.tools()}
        result = await tools["whoami"].call("{}", context=ToolContext.__new__(ToolContext))
        os.kill(int(pid_file.read_text()), 0)
        await configured.aclose()
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid_file.read_text()), 0)
        return list(tools), result.render()

    names, result = asyncio.run(work())
    assert names == ["search", "update", "whoami", "explode", "add"]
    assert result == "s3cret"


def test_the_error_names_a_server_that_does_not_start():
    with pytest.raises(ToolServerFailed, match="tool 'notes'"):
        asyncio.run(tool_names([ToolConfig(mcp=f"{sys.executable} -c pass", name="notes")]))


def test_the_error_names_the_variable_of_a_missing_secret():
    with pytest.raises(MissingSetting, match="MY_KEY"):
        asyncio.run(tool_names([ToolConfig(mcp=COMMAND, env={"NOTES_KEY": "MY_KEY"})], environment={}))


def test_two_tools_cannot_have_the_same_name():
    with pytest.raises(InvalidPrompt, match=r"'add' .*tools\[0\], tools\[1\]"):
        tool_origins([ToolConfig(python=f"{KIT}:add"), ToolConfig(python=f"{KIT}:shout", name="add")])
    with pytest.raises(InvalidPrompt, match="current_time"):
        asyncio.run(tool_names([ToolConfig(builtin="clock"), ToolConfig(python=f"{KIT}:current_time")]))


@pytest.mark.parametrize("where", ["no_such_module:f", f"{KIT}:no_such_function"])
def test_a_missing_function_is_an_error_at_construction(where):
    with pytest.raises(InvalidSetting, match="a function that can be imported"):
        ConfiguredTools([ToolConfig(python=where)])


def test_an_unparsable_command_is_an_error():
    with pytest.raises(InvalidSetting, match=r"tools\[0\].mcp"):
        tool_origins([ToolConfig(mcp="server 'unclosed")])


def test_configured_tools_have_the_origins_of_the_agent_language():
    origins = tool_origins(
        [
            ToolConfig(python="a.b:c"),
            ToolConfig(mcp="https://tools.example/mcp", bearer_env="T", headers_env={"X-Team": "TEAM"}, name="web"),
            ToolConfig(mcp="https://open.example/mcp"),
            ToolConfig(mcp="notes --fast", env={"A": "B"}),
            ToolConfig(builtin="files"),
        ]
    )

    assert origins == {
        "c": PythonFunction("a.b", "c"),
        "web": McpServer("https://tools.example/mcp", "bearer", Secret(env="T"), (("X-Team", Secret(env="TEAM")),)),
        "mcp2": McpServer("https://open.example/mcp"),
        "mcp3": McpProcess(("notes", "--fast"), (("A", Secret(env="B")),)),
        "files": BuiltinTools("files"),
    }


def test_an_empty_configuration_has_no_tools():
    assert asyncio.run(tool_names([])) == []
