"""The reference page of the command line, generated from the commands."""

import inspect

import click

from minutebook.cli.exits import __doc__ as exits_doc
from minutebook.cli.main import cli


def command_reference() -> str:
    """All commands with their arguments and options, as Markdown. The output is deterministic."""
    context = click.Context(cli, info_name="minutebook", **cli.context_settings)
    parts = ["# The command line", _help(cli), _options(cli, context), _exit_codes()]
    parts += _commands(cli, context, "minutebook")
    return "\n\n".join(part for part in parts if part) + "\n"


def _commands(group: click.Group, context: click.Context, path: str) -> list[str]:
    """The sections of the commands of a group and of its subgroups."""
    parts = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        usage = " ".join([path, name, *command.collect_usage_pieces(inner)])
        parts += [f"## {path} {name}", f"```\n{usage}\n```", _help(command), _options(command, inner)]
        if isinstance(command, click.Group):
            parts += _commands(command, inner, f"{path} {name}")
    return parts


def _help(command: click.Command) -> str:
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    texts = [" ".join(paragraph.split()) for paragraph in paragraphs]
    return "\n\n".join(_example(text) if text.startswith("Example: ") else text for text in texts)


def _example(text: str) -> str:
    return f"```sh\n{text.removeprefix('Example: ')}\n```"


def _options(command: click.Command, context: click.Context) -> str:
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record:
            rows.append(f"| `{record[0].replace('|', chr(92) + '|')}` | {record[1].replace('|', chr(92) + '|')} |")
    return "\n".join(["| option | |", "|---|---|", *rows]) if rows else ""


def _exit_codes() -> str:
    assert exits_doc is not None
    return "## Exit codes\n\n" + exits_doc.partition("\n\n")[2].strip()
