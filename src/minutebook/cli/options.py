"""Options that several commands have."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import click

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
F = TypeVar("F", bound=Callable[..., Any])

PROVIDERS = ("openai", "anthropic", "gemini")


def file_argument(function: F) -> F:
    return click.argument("file", metavar="FILE|-")(function)


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
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def model_option(function: F) -> F:
    return click.option(
        "--model",
        metavar="MODEL",
        help="Count tokens as this model does; by default the model that the file names, else o200k_base. "
        "Example: --model gpt-4o",
    )(function)


def store_options(function: F) -> F:
    """Where conversations are kept: `--db` and `--tenant`, for `opened_database`."""
    place = click.option(
        "--db",
        "url",
        metavar="URL",
        envvar="MINUTEBOOK_DB",
        help="The database, else MINUTEBOOK_DB, else a file in $XDG_STATE_HOME/minutebook. Example: --db sqlite:///chat.db",
    )
    tenant = click.option(
        "--tenant",
        metavar="NAME",
        envvar="MINUTEBOOK_TENANT",
        default="default",
        show_default=True,
        help="Whose conversations, else MINUTEBOOK_TENANT. Example: --tenant acme",
    )
    return place(tenant(function))


def manager_options(function: F) -> F:
    """How what is sent is chosen: `--manager` and `--max-tokens`, for `manager_from`."""
    limit = click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        metavar="N",
        help="The most tokens to send; alone it means the budget manager. Example: --max-tokens 32000",
    )
    managers = click.option(
        "--manager",
        "managers",
        multiple=True,
        metavar="NAME[:K=V,…]",
        help="passthrough, window, turns, truncate, clear, strip, active-tools or budget; several apply in their order. "
        "Example: --manager clear --manager window:window_size=20,slack=10",
    )
    return managers(limit(function))
