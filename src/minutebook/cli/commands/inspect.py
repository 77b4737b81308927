"""`minutebook inspect`: show conversations in the browser."""

from collections.abc import Sequence
from pathlib import Path

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import (
    InputFile,
    conversation_files,
    flag,
    is_json,
    json_option,
    manager_options,
    tenant_option,
)
from minutebook.errors import InvalidSetting


@click.command("inspect", cls=Command, short_help="Show in the browser what a model was sent, and why.")
@conversation_files
@manager_options
@click.option(
    "--model", metavar="MODEL",
    help="Model whose tokenizer, window and prices are used. Default: the model named in the file. Example: --model gpt-4o",
)  # fmt: skip
@tenant_option("Tenant of a database.")
@click.option(
    "--port", "-p", type=click.IntRange(0, 65_535), default=0, metavar="N",
    help="Port to listen on. Default: a free one. Example: -p 8300",
)  # fmt: skip
@flag(
    "--no-browser", help_text="Print the address, and do not open it. Example: minutebook inspect a.jsonl --no-browser"
)
@json_option("Print the address as a line of JSON. Example: minutebook inspect log.jsonl --json")
def command(
    files: Sequence[InputFile],
    from_format: str | None,
    managers: tuple[str, ...],
    max_tokens: int | None,
    model: str | None,
    tenant: str,
    port: int,
    no_browser: bool,
) -> None:
    """Show conversations in the browser: the record, what each request sent, and why.

    FILE is a transcript, a folder of them, or a database of minutebook: its file or URL. Recorded requests of a database are
    shown as they were sent. Every other view is a replay: by default with the token budget of the model's context window,
    else with --manager and --max-tokens. The pages are served on this machine only, to one browser. Ctrl-C ends the command.

    Example: minutebook inspect ~/.claude/projects --max-tokens 32000
    """
    from minutebook.cli.database import store_of
    from minutebook.cli.inspector import policy_of_options, serve_inspector
    from minutebook.lab.databases import is_database
    from minutebook.service.inspector.sources.database import OpenConversations, StoreSource
    from minutebook.service.inspector.sources.files import FileSource

    policy = policy_of_options(managers, max_tokens, model)
    opens_browser = not no_browser and not is_json()
    paths = [file.path for file in files]
    if any(map(is_database, paths)):
        if len(paths) > 1:
            raise InvalidSetting("FILE", " ".join(paths), "one database, or files and folders")
        store = store_of(paths[0], tenant)
        stored = StoreSource(store, policy, name=paths[0], cache=OpenConversations(), undo=store.undo_fold)
        serve_inspector(stored, port=port, opens_browser=opens_browser, store=store)
        return
    for path in paths:
        if path != "-":
            Path(path).open("rb").close()  # raises if it does not exist, before the browser is opened
    source = FileSource(paths, policy, format_name=from_format)
    source.start()
    serve_inspector(source, port=port, opens_browser=opens_browser)
