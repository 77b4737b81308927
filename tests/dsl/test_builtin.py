from pathlib import Path

import pytest

from minutebook.agent.toolbox import BUILTINS, MAX_FILE_CHARACTERS, builtin_tools, current_time
from minutebook.errors import InvalidSetting, ToolValidationError


def called(tools, name, **arguments):
    tool = next(tool for tool in tools if tool.name == name)
    return tool.handler(tool.parse(arguments), context=None).render()


@pytest.mark.parametrize("name", BUILTINS)
def test_a_builtin_has_the_tools_it_is_said_to_have(name, tmp_path):
    assert tuple(sorted(tool.name for tool in builtin_tools(name, root=tmp_path))) == BUILTINS[name]


def test_files_are_read_and_listed(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("héllo", encoding="utf-8")
    tools = builtin_tools("files", root=tmp_path)

    assert called(tools, "list_directory") == "a.txt\nsub/"
    assert called(tools, "read_file", path="sub/../a.txt") == "héllo"


@pytest.mark.parametrize("path", ["../secret", "/etc/hostname", "nowhere", "link"])
def test_nothing_outside_of_the_folder_is_read(path, tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("x")
    (root / "link").symlink_to(tmp_path / "secret")

    with pytest.raises(ToolValidationError):
        called(builtin_tools("files", root=root), "read_file", path=path)


@pytest.mark.parametrize("path", ["secret", "./secret", "link", "hard"])
def test_a_hidden_file_does_not_exist_for_the_model(path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "hard").hardlink_to(secret)
    (tmp_path / "open").write_text("y")
    tools = builtin_tools("files", root=tmp_path, hidden=[secret, tmp_path / "absent"])

    assert called(tools, "list_directory") == "open"
    with pytest.raises(ToolValidationError, match="does not exist"):
        called(tools, "read_file", path=path)


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path: Path):
    (tmp_path / "a").write_text("x")
    tools = builtin_tools("files", root=tmp_path)

    with pytest.raises(ToolValidationError, match="is a folder"):
        called(tools, "read_file", path=".")
    with pytest.raises(ToolValidationError, match="is a file"):
        called(tools, "list_directory", path="a")


def test_a_long_file_is_cut_and_says_so(tmp_path: Path):
    (tmp_path / "a").write_text("x" * (MAX_FILE_CHARACTERS + 5))

    assert called(builtin_tools("files", root=tmp_path), "read_file", path="a").endswith(
        "x\n[5 more characters are not shown]"
    )


def test_the_clock_tells_the_time_in_utc():
    assert current_time().endswith("+00:00")


def test_there_are_no_others(tmp_path: Path):
    with pytest.raises(InvalidSetting, match="clock, files"):
        builtin_tools("shell", root=tmp_path)
