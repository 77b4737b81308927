"""Options that several commands have, and what they stand for: the open database, JSON or text, the state folder."""

import functools
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import click

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_JSON = "minutebook.json"
PROVIDERS = ("openai", "anthropic", "gemini")


file_argument = click.argument("file", metavar="FILE|-")


def flag(*names: str, help_text: str) -> Decorator:
    return click.option(*names, is_flag=True, help=help_text)


def count_option(name: str, *, default: int | None = None, help_text: str) -> Decorator:
    """An option whose value is 1 or more."""
    return click.option(
        name, type=click.IntRange(min=1), metavar="N", default=default, show_default=True, help=help_text
    )


def provider_option(*, everyone: bool, help_text: str) -> Decorator:
    names = (*PROVIDERS, "all") if everyone else PROVIDERS
    return click.option(
        "--provider",
        type=click.Choice(names),
        default="openai",
        show_default=True,
        help=f"{help_text} Example: --provider anthropic",
    )


def json_option(help_text: str) -> Decorator:
    """`--json`, for `is_json` and `emit`."""

    def note(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[_JSON] = value

    return click.option("--json", is_flag=True, expose_value=False, callback=note, help=help_text)


def is_json() -> bool:
    """Whether the command that runs was called with `--json`."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_JSON, False)


def emit(value: Any, text: str | Callable[[], Any]) -> None:
    """Print the value as one JSON document with `--json`, else the text, or whatever `text` prints."""
    if is_json():
        click.echo(json.dumps(value, indent=2))
    elif callable(text):
        text()
    else:
        click.echo(text)


def emit_lines(values: Iterable[Any]) -> None:
    """Print each value as one line of JSON."""
    for value in values:
        click.echo(json.dumps(value))


model_option = click.option(
    "--model",
    metavar="MODEL",
    help="Count tokens as this model does; by default the model that the file names, else o200k_base. "
    "Example: --model gpt-4o",
)


def store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where conversations are kept: `--db` and `--tenant`, for `opened_database`."""
    place = click.option(
        "--db", "url", metavar="URL", envvar="MINUTEBOOK_DB",
        help="The database, else MINUTEBOOK_DB, else a file in $XDG_STATE_HOME/minutebook. Example: --db sqlite:///chat.db",
    )  # fmt: skip
    tenant = click.option(
        "--tenant", metavar="NAME", envvar="MINUTEBOOK_TENANT", default="default", show_default=True,
        help="Whose conversations, else MINUTEBOOK_TENANT. Example: --tenant acme",
    )  # fmt: skip
    return place(tenant(function))


def on_database(*, make: bool = False) -> Decorator:
    """`--db` and `--tenant`; the command is called with the open `database` that they name, made if `make` says so."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @store_options
        @functools.wraps(function)
        def call(*arguments: Any, url: str | None, tenant: str, **options: Any) -> Any:
            from minutebook.cli.database import opened_database

            with opened_database(url, tenant, make=make) as database:
                return function(*arguments, database=database, **options)

        return call

    return decorate


def manager_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How what is sent is chosen: `--manager` and `--max-tokens`, for `manager_from_texts`."""
    limit = count_option(
        "--max-tokens", help_text="The most tokens to send; alone it means token_budget. Example: --max-tokens 32000"
    )
    managers = click.option(
        "--manager",
        "managers",
        multiple=True,
        metavar="NAME[:K=V,…]",
        help="passthrough, sliding_window, turn_window, tool_result_truncator, tool_result_clearer, tool_stripper, "
        "active_tools, token_budget or retention, as in a configuration file; several apply in their order. "
        "Example: --manager tool_result_clearer --manager sliding_window:window_size=20,slack=10",
    )
    return managers(limit(function))


def state_folder() -> Path:
    """Our part of the folder for state of the XDG rules; it may not be there yet."""
    told = os.environ.get("XDG_STATE_HOME", "")
    state = Path(told) if Path(told).is_absolute() else Path.home() / ".local" / "state"
    return state / "minutebook"


def own_database_url() -> str:
    """The database of whoever names none: a file in the state folder."""
    return f"sqlite:///{quote(str(state_folder() / 'minutebook.db'))}"
