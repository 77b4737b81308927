"""How a command ends: the exit code for every error, and one line that says what went wrong.

| code | meaning |
|---|---|
| 0 | done |
| 1 | it could not be done |
| 2 | the command was not called as it should be |
| 3 | a file, a database, a conversation or a fold was not found |
| 5 | the input is not what it should be |
| 6 | done, and there are findings |
| 130 | interrupted |
| 141 | whoever read the output stopped reading |
| 143 | told to stop, by `kill` or the end of the terminal |

Errors go to stderr as `error: …`; with `--json` as `{"error": {"type": …, "message": …}}`. Stdout carries data only.
"""

import contextlib
import json
import os
import sys
from typing import Any, Final

import click

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
    ProgramInvalid,
    UnknownName,
    UnreadableInput,
)

FAILED, USAGE, NOT_FOUND, INVALID, FINDINGS, INTERRUPTED, UNREAD, STOPPED = 1, 2, 3, 5, 6, 130, 141, 143

EXIT_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (UnreadableInput, INVALID),
    (InvalidConfig, INVALID),
    (InvalidMessage, INVALID),
    (BrokenConversation, INVALID),
    (ProgramInvalid, INVALID),
    (InvalidSetting, USAGE),
    (UnknownName, USAGE),
    (ConversationNotFound, NOT_FOUND),
    (FoldNotFound, NOT_FOUND),
    (DocumentNotFound, NOT_FOUND),
    (FileNotFoundError, NOT_FOUND),
    (MinutebookError, FAILED),
    (OSError, FAILED),
)
"""The first class that an error is one of decides."""


class Command(click.Command):
    """A command that ends with an exit code and a clear line, never with a traceback.

    What its function returns is the exit code, None for 0.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            _stop_writing()
            ctx.exit(UNREAD)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        # The boundary: whatever it is, a user gets a line to act on; MINUTEBOOK_DEBUG shows where it came from.
        except Exception as error:
            if os.environ.get("MINUTEBOOK_DEBUG"):
                raise
            complain(error)
            ctx.exit(exit_code(error))
        if code:
            ctx.exit(code)


def exit_code(error: Exception) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def complain(error: Exception, *, advice: str = "") -> None:
    """Say on stderr what went wrong, and what to do about it where the error itself does not know.

    A command that knows more than the error does may also have given it notes.
    """
    message = "; ".join(filter(None, [_message(error), *getattr(error, "__notes__", ()), advice]))
    if is_json():
        click.echo(json.dumps({"error": {"type": type(error).__name__, "message": message}}), err=True)
    else:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)


def _message(error: Exception) -> str:
    if isinstance(error, MinutebookError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return (
        f"minutebook itself failed ({type(error).__name__}: {error}). "
        "Please report this; MINUTEBOOK_DEBUG=1 shows where it happened"
    )


def _stop_writing() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not stumble over it on its way out."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
