"""`minutebook completion`: print a completion script for a shell."""

import click

from minutebook.cli.exits import Command


@click.command("completion", cls=Command, short_help="Print a completion script for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that enables completion of commands and options in bash, zsh or fish.

    Example: eval "$(minutebook completion bash)"
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    completion = completion_class(ctx.find_root().command, {}, "minutebook", "_MINUTEBOOK_COMPLETE")
    click.echo(completion.source_template % completion.source_vars())
