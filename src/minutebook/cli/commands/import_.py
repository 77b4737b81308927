"""`minutebook import`: add the conversations of files to the database."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from minutebook.cli.database import Database
from minutebook.cli.exits import EXIT_FINDINGS, FAILED, Command
from minutebook.cli.files import ConversationFiles
from minutebook.cli.importer import Importer, ImportResult
from minutebook.cli.options import InputFile, conversation_files, database_options, emit, is_json, json_option
from minutebook.errors import UnreadableInput


@click.command("import", cls=Command, short_help="Add the conversations of a file to the database.")
@conversation_files
@click.option(
    "--recipient",
    metavar="R",
    help="Recipient of the conversations. Default: the one in the export, chat for chat files of earlier versions, "
    "else each conversation's id. Example: --recipient alice",
)
@database_options(create=True)
@json_option("Print counts, broken and refused conversations as JSON. Example: --json")
def command(database: Database, files: Sequence[InputFile], from_format: str | None, recipient: str | None) -> int:
    """Add the conversations of the files to the database, which is created if it does not exist.

    A FILE may have any format that `minutebook formats` lists. All files of a FOLDER are imported. Times, ids, models and
    recorded usage are kept; compactions become folds and branches become forks. A conversation without an id is named after
    the file and its index in it, and after the folder too if another conversation has that name. Importing a file twice adds
    nothing; a session that has grown gets its new messages. Stored messages are never changed: if a file has other messages
    than the stored conversation of its id, a branch ID~2 gets them.

    The exit code is 6 if `minutebook check` finds errors in a conversation (it is imported unchanged), or if a part of a
    file was not understood (it is skipped). It is 1 if a conversation was refused, for example because its id is taken. The
    other conversations are imported.

    Example: minutebook import log.jsonl --recipient alice
    """
    result = ImportResult()
    conversations = ConversationFiles(files, from_format, prints_during_progress=False)
    importer = Importer(database, recipient, result)
    try:
        for file in files:
            for conversation in conversations.read(file, read_export=importer.import_export):
                importer.import_conversation(conversation)
    except UnreadableInput:
        if not is_json():
            _print_result(result)  # what was imported before the file that cannot be read
        raise
    except KeyboardInterrupt:
        _print_result(result)
        click.echo("interrupted; run the same command again to import the rest", err=True)
        raise
    emit({**asdict(result), "skipped": conversations.skipped}, lambda: _print_result(result))
    code = FAILED if result.refused else EXIT_FINDINGS if result.broken else 0
    return conversations.report_skipped(code)


def _print_result(result: ImportResult) -> None:
    """Print counts and problems to stderr."""
    kinds = (
        ("imported with problems", result.broken),
        ("imported as a branch", result.branched),
        ("not imported", result.refused),
    )
    for kind, conversations in kinds:
        for conversation in conversations:
            problems = "; ".join(conversation.problems)
            click.echo(f"{conversation.file}: {conversation.id!r}: {kind}: {problems}", err=True)
    text = f"imported {result.conversations:,} conversations with {result.messages:,} messages"
    if result.existing_conversations:
        text += f"; {result.existing_conversations:,} with {result.existing_messages:,} messages already existed"
    click.echo(text, err=True)
