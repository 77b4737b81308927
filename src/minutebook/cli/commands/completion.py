"""`minutebook completion`: what a shell needs to complete commands and options."""

import click

from minutebook.cli.exits import Command


@click.command("completion", cls=Command, short_help="Completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script that lets SHELL complete commands and options.

    Example: eval "$(minutebook completion bash)"
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(ctx.find_root().command, {}, "minutebook", "_MINUTEBOOK_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())
