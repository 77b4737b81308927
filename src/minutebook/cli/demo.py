"""`minutebook demo`: a whole agent session, sent three ways."""

import json
from typing import TYPE_CHECKING, Any

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import json_option

if TYPE_CHECKING:
    from minutebook.cli.replay import Replayed

BUDGET = 16_000
WINDOW = 40


@click.command("demo", cls=Command, short_help="A coding agent's session, sent three ways.")
@click.option("--seed", type=int, metavar="N", default=0, show_default=True, help="Which session. Example: --seed 7")
@click.option(
    "--turns", type=click.IntRange(min=1), metavar="N", default=16, show_default=True,
    help="How many requests the user makes. Example: --turns 50",
)  # fmt: skip
@click.option(
    "--max-tokens", type=click.IntRange(min=2000), metavar="N", default=BUDGET, show_default=True,
    help="The budget of the third way, and what counts as over budget. Example: --max-tokens 32000",
)  # fmt: skip
@click.option(
    "--serve",
    is_flag=True,
    help="The whole story: a session through the service, with the official client. Example: minutebook demo --serve",
)
@click.option(
    "--session",
    "only_session",
    is_flag=True,
    help="Print the session itself as JSON, for the other commands. Example: minutebook demo --session | minutebook tokens -",
)
@json_option("Print the figures as one JSON document. Example: minutebook demo --json")
def command(seed: int, turns: int, max_tokens: int, serve: bool, only_session: bool, as_json: bool) -> None:
    """Replay a coding agent's session and compare what is sent: everything, a window, or a token budget.

    The session is simulated from the seed, and no model is asked. Before every call that the agent made, each of three
    managers builds the view that the model would have been sent; the table says what that would have cost.

    With --serve the session is lived through: the service is started on SQLite, the official client talks to it, and a
    provider with a window of --max-tokens answers. Afterwards everything is stopped.

    Example: minutebook demo --session | minutebook view - --max-tokens 8000
    """
    if serve:
        _tell(seed, turns, max_tokens, as_json=as_json)
        return
    from minutebook.testing import coding_session

    session = coding_session(seed, turns)
    if only_session:
        click.echo(json.dumps({"id": f"demo-{seed}", "messages": session}, indent=2))
        return
    results = _replay(session, max_tokens)
    if as_json:
        record = {"messages": len(session), "tokens": results[0].transcript.tokens, "turns": turns, "seed": seed}
        managers = [result.to_json() for result in results]
        click.echo(json.dumps({"record": record, "budget": max_tokens, "managers": managers}, indent=2))
    else:
        from minutebook.cli.demotables import show

        show(results, turns, max_tokens)


def _tell(seed: int, turns: int, window: int, *, as_json: bool) -> None:
    from minutebook.cli.progress import counting

    try:
        from minutebook.cli.demostory import told
    except ModuleNotFoundError as error:
        from minutebook.errors import MissingExtra

        raise MissingExtra(error.name or "fastapi", "service") from error
    with counting("turns", turns, silent=True, least=1) as count:
        story = told(seed, turns, window, count)
    if as_json:
        click.echo(json.dumps(story.to_json(), indent=2))
    else:
        from minutebook.cli.demopages import show_story

        show_story(story)


def _replay(session: list[dict[str, Any]], budget: int) -> list["Replayed"]:
    from minutebook import PassthroughManager, SlidingWindowManager, TokenBudgetManager
    from minutebook.cli.replay import replayed

    return [
        replayed(session, PassthroughManager(), "everything", budget),
        replayed(session, SlidingWindowManager(window_size=WINDOW), f"last {WINDOW} messages", budget),
        replayed(session, TokenBudgetManager(max_tokens=budget), f"{budget:,} tokens", budget),
    ]
