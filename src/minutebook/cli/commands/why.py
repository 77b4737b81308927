"""`minutebook why`: why a message was sent, changed or left out in a request."""

import errno
from datetime import UTC
from typing import Any

import click

from minutebook.cli.database import Database
from minutebook.cli.exits import Command
from minutebook.cli.options import database_options, emit, json_option
from minutebook.conversation.handle.async_conversation import AsyncConversation
from minutebook.conversation.requests import Request


@click.command("why", cls=Command, short_help="Show why a message was not sent in a request.")
@click.argument("conversation", metavar="ID")
@click.option(
    "--message", type=click.IntRange(min=0), metavar="N", help="Position of the message, from 0. Example: --message 17"
)
@click.option(
    "--request",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of the request. Default: the newest. Example: --request 9",
)
@database_options()
@json_option("Print the answer as JSON. Example: minutebook why order-17 --message 17 --json")
def command(database: Database, conversation: str, message: int | None, request: int | None) -> None:
    """Show why a message of conversation ID was sent, changed or left out in a request.

    Without --message it shows every range of messages that the request changed or left out.

    Example: minutebook why order-17 --message 17 --request 9
    """
    recorded_request = database.run(_find_request(database, conversation, request))
    answer = {"conversation": conversation, **_request_json(recorded_request)}
    if message is None:
        left_out = list(map(dict, recorded_request.left_out))
        emit({**answer, "left_out": left_out}, lambda: _show(recorded_request))
        return
    reason = recorded_request.why(message)
    emit(
        {**answer, "message": message, "role": reason.role, "status": reason.status.value, "reason": reason.reason},
        f"request {recorded_request.number}, message {message} ({reason.role}): {reason}",
    )


async def _find_request(database: Database, conversation: str, number: int | None) -> Request:
    handle = AsyncConversation(conversation, store=database.store)
    await database.store.header(conversation)  # a conversation that does not exist is an error here
    if number is not None:
        return await handle.request(number)
    requests = await handle.requests(last=1)
    if not requests:
        problem = "has no recorded request; chat, serve, Conversation.view and agents record what they send"
        raise FileNotFoundError(errno.ENOENT, problem, f"conversation {conversation!r}")
    return requests[-1]


def _request_json(request: Request) -> dict[str, Any]:
    return {
        "request": request.number,
        "at": request.at.astimezone(UTC).isoformat(),
        "model": request.model,
        "policy": request.policy["name"],
        "messages": request.length,
        "sent": len(request.messages),
        "tokens": request.tokens_after,
    }


def _show(request: Request) -> None:
    click.echo(f"request {request.number} at {request.at:%Y-%m-%d %H:%M:%S}: {len(request.messages)} messages sent")
    for part in request.left_out:
        last_position = part["stop"] - 1
        positions = f"{part['start']}" if part["start"] == last_position else f"{part['start']}-{last_position}"
        click.echo(f"{positions:>11}  {part['status']:<9}  {part['reason']}")
    if not request.left_out:
        click.echo("every message was sent unchanged")
