"""`minutebook config`: show and validate the configuration of the service."""

import errno
import json
import os
from collections.abc import Mapping
from typing import Any, Final

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import emit, is_json, json_option

_VALUE_WIDTH: Final = 32
"""Maximum width of the value column. The origin of a longer value is not aligned."""


@click.group("config", short_help="Show and validate the service configuration.")
def command() -> None:
    """Show the service's configuration with the origin of every value, validate a file, or show which file is used.

    Later sources override earlier ones: defaults, llm_config.yaml, environment variables (MINUTEBOOK_SERVER_PORT sets
    server.port), flags.

    Example: minutebook config show
    """


@command.command("show", cls=Command, short_help="Show all values and their origins.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(),
    help="Configuration file. Default: the file that 'minutebook config path' prints. Example: --config llm_config.yaml",
)
@json_option("Print a JSON object that maps keys to value and origin. Example: minutebook config show --json")
def show(file: str | None) -> None:
    """Show all values and their origins: a default, a line of the file, a variable or a flag.

    Passwords in URLs are not shown.

    Example: minutebook config show
    """
    from minutebook.service.config.loader import config_path, flat_settings, load_config

    loaded = load_config(config_path() if file is None else file)
    values = flat_settings(loaded.config)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    settings: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        settings[key] = {"value": value, "origin": str(loaded.origin(key))}
        if key == "conversation.policy":  # if no policy is configured, the endpoints use different ones
            settings[f"{key} of /threads"] = {**settings[key], "value": loaded.config.conversation.threads_policy}
    emit(settings, lambda: _print_settings(settings))


def _print_settings(settings: Mapping[str, Mapping[str, Any]]) -> None:
    from minutebook.cli.screen import one_line

    lines = [
        (key, one_line(value if isinstance(value := entry["value"], str) else json.dumps(value)), entry["origin"])
        for key, entry in settings.items()
    ]
    key_width = max(len(key) for key, _, _ in lines)
    value_width = min(_VALUE_WIDTH, max(len(value) for _, value, _ in lines))
    for key, value, origin in lines:
        click.echo(f"{key:<{key_width}}  {value:<{value_width}}  {click.style(origin, dim=origin == 'default')}")


@command.command("check", cls=Command, short_help="Validate a configuration file.")
@click.argument("file", metavar="FILE", type=click.Path())
@json_option("Print the problems as JSON. Example: minutebook config check llm_config.yaml --json")
def check(file: str) -> int:
    """Validate FILE without the environment, and print all problems with their lines. The exit code is 5 if there are any.

    Values that serve would refuse are problems too: a wrong database URL, a tool that cannot be imported. An environment variable
    that serve needs and that is not set is a warning.

    Example: minutebook config check llm_config.yaml
    """
    from minutebook.cli.exits import INVALID
    from minutebook.cli.server import require_startable
    from minutebook.errors import InvalidConfig
    from minutebook.service.config.loader import load_config

    try:
        loaded = load_config(file, environment={})
        require_startable(loaded)
    except InvalidConfig as error:
        if not is_json():
            raise
        problems = [
            {"line": item.line, "column": item.column, "key": item.key, "problem": item.problem, "hint": item.hint}
            for item in (error, *error.others)
        ]
        emit({"file": file, "problems": problems, "warnings": []}, "")
        return INVALID
    warnings = [*loaded.warnings]
    key_env = loaded.config.upstream.key_env
    if key_env is not None and not os.environ.get(key_env):
        warnings.append(f"upstream.key_env: the environment variable {key_env} is not set; serve needs it")
    for warning in () if is_json() else warnings:
        click.echo(f"warning: {warning}", err=True)
    text = f"{file} is valid: {len(loaded.origins):,} values are set"
    emit({"file": file, "problems": [], "warnings": warnings}, text)
    return 0


@command.command("path", cls=Command, short_help="Print the path of the configuration file.")
def path() -> None:
    """Print the path of the file that is used without --config: $MINUTEBOOK_CONFIG, ./llm_config.yaml or the user's file.

    If no file exists, the possible paths are printed and the exit code is 3.

    Example: minutebook config path
    """
    from minutebook.service.config.loader import config_path, config_paths

    existing = config_path(os.environ)
    if existing is None:
        first_path, *other_paths = map(str, config_paths())
        problem = f"file not found; also tried {', '.join(other_paths)}; the defaults are used"
        raise FileNotFoundError(errno.ENOENT, problem, first_path)
    click.echo(existing)
