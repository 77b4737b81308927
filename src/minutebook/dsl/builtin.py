"""The tools that need no server and no code: `tool fs = builtin files`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from minutebook.errors import InvalidSetting, ToolValidationError
from minutebook.prompt.function import tool_from
from minutebook.prompt.tool import AnyTool

LONGEST_FILE: Final = 200_000
"""Characters of a file that a model is given at most."""

BUILTINS: Final[Mapping[str, tuple[str, ...]]] = {
    "clock": ("current_time",),
    "files": ("list_directory", "read_file"),
}
"""Name → the tools it stands for."""


def builtin_tools(name: str, *, root: Path) -> Sequence[AnyTool]:
    """The tools of a builtin; those for files see what is under `root` and nothing else.

    Raises:
        InvalidSetting: there is no such builtin.
    """
    match name:
        case "clock":
            functions: tuple[Callable[..., Any], ...] = (current_time,)
        case "files":
            functions = _files(root.resolve())
        case _:
            raise InvalidSetting("a builtin tool", name, f"one of {', '.join(BUILTINS)}")
    return [tool_from(function) for function in functions]


def current_time() -> str:
    """The date and time now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _files(root: Path) -> tuple[Callable[..., Any], ...]:
    def inside(path: str) -> Path:
        target = (root / path).resolve()
        if not target.is_relative_to(root):
            raise ToolValidationError(f"{path} is outside of the folder that may be read.")
        if not target.exists():
            raise ToolValidationError(f"There is no {path}.")
        return target

    def list_directory(path: Annotated[str, "relative to the working folder"] = ".") -> str:
        """List the files and folders in a folder; the names of folders end with /."""
        target = inside(path)
        if not target.is_dir():
            raise ToolValidationError(f"{path} is a file, not a folder.")
        return "\n".join(sorted(f"{each.name}/" if each.is_dir() else each.name for each in target.iterdir()))

    def read_file(path: Annotated[str, "relative to the working folder"]) -> str:
        """Read a text file."""
        target = inside(path)
        if not target.is_file():
            raise ToolValidationError(f"{path} is a folder, not a file.")
        text = target.read_text(encoding="utf-8", errors="replace")
        if len(text) <= LONGEST_FILE:
            return text
        return f"{text[:LONGEST_FILE]}\n[{len(text) - LONGEST_FILE:,} more characters are not shown]"

    return list_directory, read_file
