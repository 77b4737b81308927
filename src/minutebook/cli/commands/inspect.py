"""`minutebook inspect`: show conversations in the browser."""

from collections.abc import Sequence

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import InputFile, conversation_files, flag, is_json, json_option, manager_options


@click.command("inspect", cls=Command, short_help="Show in the browser what a model was sent, and why.")
@conversation_files
@manager_options
@click.option(
    "--model", metavar="MODEL",
    help="Model whose tokenizer, window and prices count. Default: the model named in the file. Example: --model gpt-4o",
)  # fmt: skip
@click.option(
    "--port", "-p", type=click.IntRange(0, 65_535), default=0, metavar="N",
    help="Port to listen on. Default: a free one. Example: -p 8300",
)  # fmt: skip
@flag(
    "--no-browser",
    help_text="Print the address, and do not open it. Example: minutebook inspect log.jsonl --no-browser",
)
@json_option("Print the address as a line of JSON. Example: minutebook inspect log.jsonl --json")
def command(
    files: Sequence[InputFile],
    from_format: str | None,
    managers: tuple[str, ...],
    max_tokens: int | None,
    model: str | None,
    port: int,
    no_browser: bool,
) -> None:
    """Show conversations in the browser: the record, what each request sent, and why.

    FILE is a transcript or a folder of them. Every view is a replay: by default with the token budget of the model's
    context window, else with --manager and --max-tokens. The pages are served on this machine only, to one browser. Ctrl-C
    ends the command.

    Example: minutebook inspect ~/.claude/projects --max-tokens 32000
    """
    from minutebook.cli.inspector import serve_inspector
    from minutebook.service.inspector.files import FileSource
    from minutebook.service.inspector.policy import ReplayPolicy

    source = FileSource(
        [file.path for file in files], ReplayPolicy(managers, max_tokens, model), format_name=from_format
    )
    source.start()
    serve_inspector(source, port=port, opens_browser=not no_browser and not is_json())
