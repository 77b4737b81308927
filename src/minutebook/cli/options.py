"""Options shared by several commands: the database, JSON or text output, models and managers."""

import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import click

from minutebook.formats.source import CONVERSATION_EXTENSIONS

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_JSON_KEY = "minutebook.json"
"""Key of the `--json` flag in click's context."""
PROVIDERS = ("openai", "anthropic", "gemini")


def files_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """FILE…: the command is called with `files`, in which patterns such as `logs/*.jsonl` are expanded."""

    @click.argument("files", metavar="FILE|-…", nargs=-1, required=True, type=click.Path(allow_dash=True))
    @functools.wraps(function)
    def call(*arguments: Any, files: Sequence[str], **options: Any) -> Any:
        return function(*arguments, files=[name for file in files for name in _matches(file)], **options)

    return call


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that a command reads."""

    path: str
    folder: str | None = None
    """The folder that the user named; None if the user named the file itself."""

    @property
    def name(self) -> str:
        return "stdin" if self.path == "-" else self.path

    @property
    def is_in_folder(self) -> bool:
        return self.folder is not None


def format_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--from`: the command is called with `from_format`, the name of a format or None."""
    help_text = "Format of the files; `minutebook formats` lists them. Default: detected. Example: --from claude-code"
    return click.option("--from", "from_format", metavar="FORMAT", help=help_text)(function)


def conversation_files(function: Callable[..., Any]) -> Callable[..., Any]:
    """FILE… and `--from`: the command is called with `files`, a list of `InputFile`, and `from_format`.

    Patterns are expanded. For a folder, the list has all its files with a known extension, also those in subfolders.
    """

    @click.argument("files", metavar="FILE|FOLDER|-…", nargs=-1, required=True, type=click.Path(allow_dash=True))
    @format_option
    @functools.wraps(function)
    def call(*arguments: Any, files: Sequence[str], **options: Any) -> Any:
        expanded = [file for name in files for match in _matches(name) for file in _input_files(match)]
        return function(*arguments, files=expanded, **options)

    return call


def _input_files(name: str) -> list[InputFile]:
    """The file, or the files of the folder.

    Raises:
        FileNotFoundError: the folder has no file with a known extension.
    """
    if name == "-" or not Path(name).is_dir():
        return [InputFile(name)]
    paths = sorted(str(path) for path in Path(name).rglob("*") if path.name.endswith(CONVERSATION_EXTENSIONS))
    if not paths:
        problem = f"the folder has no conversation files; supported extensions: {', '.join(CONVERSATION_EXTENSIONS)}"
        raise FileNotFoundError(errno.ENOENT, problem, name)
    return [InputFile(path, name) for path in paths if Path(path).is_file()]


def _matches(file: str) -> list[str]:
    """The files that match a pattern.

    A name that has no wildcards, or that is the name of an existing file, is returned unchanged.

    Raises:
        FileNotFoundError: no file matches the pattern.
    """
    if not has_magic(file) or Path(file).exists():
        return [file]
    if not (names := sorted(glob(file, recursive=True))):  # noqa: PTH207 - Path.glob takes no absolute pattern
        raise FileNotFoundError(errno.ENOENT, "no file matches this pattern", file)
    return names


def flag(*names: str, help_text: str) -> Decorator:
    return click.option(*names, is_flag=True, help=help_text)


def count_option(name: str, *, default: int | None = None, help_text: str) -> Decorator:
    """An option whose value is 1 or more."""
    return click.option(
        name, type=click.IntRange(min=1), metavar="N", default=default, show_default=True, help=help_text
    )


def provider_option(*, allow_all: bool, help_text: str) -> Decorator:
    names = (*PROVIDERS, "all") if allow_all else PROVIDERS
    return click.option(
        "--provider",
        type=click.Choice(names),
        help=f"{help_text} Default: the provider of the file's format. Example: --provider anthropic",
    )


def json_option(help_text: str) -> Decorator:
    """`--json`. `is_json` and `emit` read it."""

    def store_flag(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_JSON_KEY] = value

    return click.option("--json", is_flag=True, expose_value=False, callback=store_flag, help=help_text)


def is_json() -> bool:
    """Whether the current command was called with `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_JSON_KEY, False)


def emit(value: Any, text: str | Callable[[], Any]) -> None:
    """With `--json` print the value as JSON, else print the text or call the function that prints it."""
    if is_json():
        click.echo(json.dumps(value, indent=2))
    elif callable(text):
        text()
    else:
        click.echo(text)


dry_run_option = click.option(
    "-n", "--dry-run", is_flag=True, help="Change nothing; show what would change. Example: --dry-run"
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation. Example: --yes")


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr before something is deleted permanently, unless `--yes` is given.

    Raises:
        Abort: the answer is no, or Ctrl-C was pressed.
        UsageError: there is no answer, because stdin is not a terminal.
    """
    try:
        confirmed = yes or click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # ends the line of the question
        raise click.UsageError(
            "stdin is not a terminal, so it cannot answer; use --yes to confirm, or --dry-run to see what would change."
        ) from None
    if not confirmed:
        raise click.Abort


def emit_lines(values: Iterable[Any]) -> None:
    """Print each value as a line of JSON."""
    for value in values:
        click.echo(json.dumps(value))


model_option = click.option(
    "--model",
    metavar="MODEL",
    help="Model whose tokenizer counts the tokens. Default: the model named in the file, else o200k_base. "
    "Example: --model gpt-4o",
)


models_file_option = click.option(
    "--models-file", metavar="FILE", envvar="MINUTEBOOK_MODELS_FILE", type=click.Path(),
    help="JSON file with limits and prices of your own models. Default: $MINUTEBOOK_MODELS_FILE. Example: --models-file models.json",
)  # fmt: skip


config_file_option = click.option(
    "--config", "config_file", metavar="FILE", type=click.Path(path_type=Path),
    help="Configuration file. Default: $MINUTEBOOK_CONFIG, else ./llm_config.yaml. Example: --config llm_config.yaml",
)  # fmt: skip

log_level_option = click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True,
    help="Minimum level of log events, which are written to stderr as JSONL. Example: --log-level warning",
)  # fmt: skip


def vacuum_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--vacuum` and `--rewrite`. The command is called with `vacuum`, which `--rewrite` implies, and `rewrite`."""

    @flag(
        "--vacuum", help_text="Free the space of deleted data, while others use the database. Example: --yes --vacuum"
    )
    @flag(
        "--rewrite",
        help_text="Rewrite the SQLite file or PostgreSQL's tables too, so that no deleted data remains in the files. Writers wait. "
        "Example: --yes --rewrite",
    )
    @functools.wraps(function)
    def call(*arguments: Any, vacuum: bool, rewrite: bool, **options: Any) -> Any:
        return function(*arguments, vacuum=vacuum or rewrite, rewrite=rewrite, **options)

    return call


def tenant_option(help_text: str) -> Decorator:
    return click.option(
        "--tenant", metavar="NAME", envvar="MINUTEBOOK_TENANT", default="default",
        help=f'{help_text} Default: $MINUTEBOOK_TENANT, else "default". Example: --tenant acme',
    )  # fmt: skip


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--db` and `--tenant`, the arguments of `open_database`."""
    database = click.option(
        "--db", "url", metavar="URL|FILE", envvar="MINUTEBOOK_DB", type=click.Path(),
        help="Database URL or SQLite file. Default: $MINUTEBOOK_DB, else a file in $XDG_STATE_HOME/minutebook. Example: --db chat.db",
    )  # fmt: skip
    return database(tenant_option("Tenant that owns the conversations.")(function))


def database_options(*, create: bool = False) -> Decorator:
    """`--db` and `--tenant`. The command is called with the open `database`, which is created if `create` is set."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @store_options
        @functools.wraps(function)
        def call(*arguments: Any, url: str | None, tenant: str, **options: Any) -> Any:
            from minutebook.cli.database import open_database

            with open_database(url, tenant, create=create) as database:
                return function(*arguments, database=database, **options)

        return call

    return decorate


def manager_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--manager` and `--max-tokens`, the arguments of `manager_from_texts`."""
    limit = count_option(
        "--max-tokens",
        help_text="Token budget of the view. Without --manager it selects token_budget. Example: --max-tokens 32000",
    )
    managers = click.option(
        "--manager",
        "managers",
        multiple=True,
        metavar="NAME[:K=V,…]",
        help="History manager: passthrough, sliding_window, turn_window, tool_result_truncator, tool_result_clearer, "
        "tool_stripper, active_tools, token_budget, its presets balanced, economy and quality, or retention. "
        "Can be repeated; managers are applied in order. "
        "Example: --manager tool_result_clearer --manager sliding_window:window_size=20,slack=10",
    )
    return managers(limit(function))


def state_folder() -> Path:
    """The folder of minutebook in the XDG state folder. It may not exist."""
    xdg_state = Path(os.environ.get("XDG_STATE_HOME", ""))
    parent = xdg_state if xdg_state.is_absolute() else Path.home() / ".local" / "state"
    return parent / "minutebook"


def default_database_url() -> str:
    """URL of the database that is used without `--db`: a file in the state folder."""
    return f"sqlite:///{quote(str(state_folder() / 'minutebook.db'))}"
