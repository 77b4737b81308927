"""`minutebook serve`: the chat service, on this machine or beyond."""

import json
from pathlib import Path

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import is_json, json_option


@click.command("serve", cls=Command, short_help="Serve chat over HTTP, with kept and pruned history.")
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The configuration, else MINUTEBOOK_CONFIG, else ./llm_config.yaml. Example: --config llm_config.yaml",
)
@click.option(
    "--db", "url", metavar="URL", help="Where conversations are kept. Example: --db postgresql://localhost/chat"
)
@click.option(
    "--upstream",
    metavar="URL",
    help="The provider's OpenAI-compatible API; without one, a demo model answers. "
    "Example: --upstream https://api.openai.com/v1",
)
@click.option(
    "--key-env", metavar="NAME", help="The variable with the provider's key. Example: --key-env OPENAI_API_KEY"
)
@click.option(
    "--host", "-h", metavar="ADDRESS", help="Where to listen; beyond this machine only with keys. Example: -h ::1"
)
@click.option(
    "--port", "-p", type=click.IntRange(0, 65_535), metavar="N", help="0 for any that is free. Example: -p 8300"
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="How much is logged, as lines of JSON, on stderr. Example: --log-level warning",
)
@json_option("Print where it listens as one line of JSON. Example: minutebook serve -p 0 --json")
def command(
    config_file: Path | None,
    url: str | None,
    upstream: str | None,
    key_env: str | None,
    host: str | None,
    port: int | None,
    log_level: str,
) -> None:
    """Serve chat over HTTP: OpenAI's API under /v1, threads with server-sent events under /threads.

    Point any OpenAI client's base_url here, and name the conversation in the header X-Conversation-Id. SIGHUP reads the
    configuration again; Ctrl-C lets the answers that are being made come to their end.

    Example: minutebook serve --db sqlite:///chat.db --upstream https://api.openai.com/v1 --key-env OPENAI_API_KEY
    """
    try:
        from minutebook.cli.server import serve
        from minutebook.service.config.loader import Flag
    except ModuleNotFoundError as error:
        from minutebook.errors import MissingExtra

        raise MissingExtra(error.name or "fastapi", "service") from error

    flags = {
        "database.url": Flag("--db", url),
        "upstream.url": Flag("--upstream", upstream),
        "upstream.key_env": Flag("--key-env", key_env),
        "server.host": Flag("--host", host),
        "server.port": Flag("--port", port),
    }

    def tell(address: str, about: dict[str, str]) -> None:
        if is_json():
            click.echo(json.dumps({"url": address, **about}))
            return
        click.echo(f"minutebook listens on {address}")
        for name, value in about.items():
            click.echo(f"  {name:<10} {value}")
        click.echo(f"  OpenAI     base_url={address}/v1, and a header X-Conversation-Id")

    serve(config_file, flags, log_level=log_level.upper(), tell=tell)
