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
