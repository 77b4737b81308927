"""`minutebook config`: what the service is told, and who told it."""

import errno
import json
import os
from collections.abc import Mapping
from typing import Any, Final

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import emit, is_json, json_option

_WIDEST: Final = 32
"""A value that is longer pushes its origin to the right."""


@click.group("config", short_help="What the service is told, and by whom.")
def command() -> None:
    """Show the service's configuration with the origin of every value, check a file, say which file is read.

    Defaults come first, then llm_config.yaml, then environment variables (MINUTEBOOK_SERVER_PORT sets server.port),
    then flags; the last that says it wins.

    Example: minutebook config show
    """


@command.command("show", cls=Command, short_help="Every value, with where it comes from.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    help="The file to read instead of the one that 'minutebook config path' names. Example: --config llm_config.yaml",
)
@json_option("Print one JSON object: key → value and origin. Example: minutebook config show --json")
def show(file: str | None) -> None:
    """Show every value, and whether it is a default or which line, variable or flag it comes from.

    Passwords in URLs are not shown.

    Example: minutebook config show
    """
    from minutebook.service.config.loader import config_path, flattened, load_config

    found = load_config(config_path() if file is None else file)
    values = flattened(found.config)
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    shown = {key: {"value": value, "origin": str(found.origin(key))} for key, value in values.items()}
    emit(shown, lambda: _print(shown))


def _print(shown: Mapping[str, Mapping[str, Any]]) -> None:
    from minutebook.cli.screen import one_line

    lines = [
        (key, one_line(value if isinstance(value := entry["value"], str) else json.dumps(value)), entry["origin"])
        for key, entry in shown.items()
    ]
    keys = max(len(key) for key, _, _ in lines)
    wide = min(_WIDEST, max(len(value) for _, value, _ in lines))
    for key, value, origin in lines:
        click.echo(f"{key:<{keys}}  {value:<{wide}}  {click.style(origin, dim=origin == 'default')}")


@command.command("check", cls=Command, short_help="Whether a file can be read.")
@click.argument("file", metavar="FILE")
@json_option("Print the problems as one JSON document. Example: minutebook config check llm_config.yaml --json")
def check(file: str) -> int:
    """Read FILE alone, without the environment, and tell every problem with its line. The exit code is 5 if there are any.

    Example: minutebook config check llm_config.yaml
    """
    from minutebook.cli.exits import INVALID
    from minutebook.errors import InvalidConfig
    from minutebook.service.config.loader import load_config

    try:
        found = load_config(file, environment={})
    except InvalidConfig as error:
        if not is_json():
            raise
        problems = [
            {"line": one.line, "column": one.column, "key": one.key, "problem": one.problem, "hint": one.hint}
            for one in (error, *error.others)
        ]
        emit({"file": file, "problems": problems, "warnings": []}, "")
        return INVALID
    for warning in () if is_json() else found.warnings:
        click.echo(f"warning: {warning}", err=True)
    text = f"{file} can be read: {len(found.origins):,} values are set"
    emit({"file": file, "problems": [], "warnings": found.warnings}, text)
    return 0


@command.command("path", cls=Command, short_help="Which file is read.")
def path() -> None:
    """Say which file is read when none is named: MINUTEBOOK_CONFIG, else llm_config.yaml here, else the user's.

    Where there is none, the places are named, and the exit code is 3.

    Example: minutebook config path
    """
    from minutebook.service.config.loader import config_path, config_places

    found = config_path(os.environ)
    if found is None:
        first, *others = map(str, config_places())
        problem = f"there is no such file, nor {' nor '.join(others)}; the defaults hold"
        raise FileNotFoundError(errno.ENOENT, problem, first)
    click.echo(found)
