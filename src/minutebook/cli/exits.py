"""Exit codes and error output of commands.

| code | meaning |
|---|---|
| 0 | success |
| 1 | failed |
| 2 | wrong usage: an unknown option, a missing argument, an invalid value |
| 3 | a file, a database, a conversation or a fold was not found |
| 5 | invalid input |
| 6 | success, with findings |
| 130 | interrupted |
| 141 | the reader of stdout closed the pipe |
| 143 | terminated by `kill` or because the terminal was closed |

Errors go to stderr as `error: …`; with `--json` as `{"error": {"type": …, "message": …}}`. Only data goes to stdout.
"""

import contextlib
import json
import os
import sys
from typing import Any, Final

import click

from minutebook._lazy import missing_extra
from minutebook.cli.options import is_json
from minutebook.errors import (
    BrokenConversation,
    ConversationNotFound,
    DocumentNotFound,
    FoldNotFound,
    InvalidConfig,
    InvalidMessage,
    InvalidSetting,
    MinutebookError,
    MissingKey,
    MissingSetting,
    ProgramInvalid,
    UnknownName,
    UnreadableInput,
    WrongKey,
)

FAILED, USAGE, NOT_FOUND, INVALID, EXIT_FINDINGS, INTERRUPTED, BROKEN_PIPE, TERMINATED = 1, 2, 3, 5, 6, 130, 141, 143

EXIT_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (UnreadableInput, INVALID),
    (InvalidConfig, INVALID),
    (InvalidMessage, INVALID),
    (BrokenConversation, INVALID),
    (ProgramInvalid, INVALID),
    (InvalidSetting, USAGE),
    (MissingKey, USAGE),
    (WrongKey, USAGE),
    (MissingSetting, USAGE),
    (UnknownName, USAGE),
    (ConversationNotFound, NOT_FOUND),
    (FoldNotFound, NOT_FOUND),
    (DocumentNotFound, NOT_FOUND),
    (FileNotFoundError, NOT_FOUND),
    (IsADirectoryError, INVALID),
    (MinutebookError, FAILED),
    (OSError, FAILED),
)
"""The first class that matches the error decides."""


class Command(click.Command):
    """A command that reports errors as one line and an exit code, without a traceback.

    Its function returns the exit code; None is 0.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            _discard_stdout()
            ctx.exit(BROKEN_PIPE)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        # The outermost handler: every error is reported as a line. MINUTEBOOK_DEBUG shows the traceback.
        except Exception as error:
            if os.environ.get("MINUTEBOOK_DEBUG"):
                raise
            reported = (missing_extra(error) if isinstance(error, ModuleNotFoundError) else None) or error
            print_error(reported)
            ctx.exit(exit_code(reported))
        if code:
            ctx.exit(code)


def exit_code(error: Exception) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def print_error(error: Exception, *, advice: str = "") -> None:
    """Print the error to stderr, with its notes (`add_note`) and the advice."""
    message = "; ".join(filter(None, [_message(error), *getattr(error, "__notes__", ()), advice]))
    if is_json():
        click.echo(json.dumps({"error": {"type": type(error).__name__, "message": message}}), err=True)
    else:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)


def _message(error: Exception) -> str:
    if isinstance(error, MinutebookError):
        return str(error)
    if isinstance(error, IsADirectoryError):
        return f"{error.filename}: is a folder; name a file, or several as {error.filename}/*"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"internal error ({type(error).__name__}: {error}). Please report it; MINUTEBOOK_DEBUG=1 shows the traceback"


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null: flushing the buffered output at exit would fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
