"""`minutebook serve`: run the HTTP service."""

import json
from pathlib import Path

import click

from minutebook.cli.exits import Command
from minutebook.cli.options import config_file_option, is_json, json_option, log_level_option


@click.command("serve", cls=Command, short_help="Run the HTTP service (OpenAI API with stored history).")
@config_file_option
@click.option(
    "--db",
    "database_url",
    metavar="URL|FILE",
    type=click.Path(),
    help="Database URL or SQLite file. Default: a file in the state folder. Example: --db postgresql://localhost/chat",
)
@click.option(
    "--upstream",
    metavar="URL",
    help="Base URL of an OpenAI-compatible provider. Default: a demo model. "
    "Example: --upstream https://api.openai.com/v1",
)
@click.option(
    "--key-env",
    metavar="NAME",
    help="Environment variable with the provider's API key. Example: --key-env OPENAI_API_KEY",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Address to listen on. On any address other than loopback, callers need an API key. Example: --host ::1",
)
@click.option(
    "--port",
    "-p",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Port to listen on; 0 selects a free one. Example: -p 8300",
)
@log_level_option
@json_option("Print the URL and settings as a line of JSON. Example: minutebook serve -p 0 --json")
def command(
    config_file: Path | None,
    database_url: str | None,
    upstream: str | None,
    key_env: str | None,
    host: str | None,
    port: int | None,
    log_level: str,
) -> None:
    """Run the HTTP service: the OpenAI API under /v1, threads with server-sent events under /threads.

    Set the base_url of an OpenAI client to the URL of the service, and send the conversation id in the header
    X-Conversation-Id. SIGHUP reloads the configuration. Ctrl-C stops the service after the running requests.

    Example: minutebook serve --db chat.db --upstream https://api.openai.com/v1 --key-env OPENAI_API_KEY
    """
    from minutebook.cli.server import serve
    from minutebook.service.config.loader import CommandLineFlag

    flags = {
        "database.url": CommandLineFlag("--db", database_url),
        "upstream.url": CommandLineFlag("--upstream", upstream),
        "upstream.key_env": CommandLineFlag("--key-env", key_env),
        "server.host": CommandLineFlag("--host", host),
        "server.port": CommandLineFlag("--port", port),
    }

    def announce(service_url: str, description: dict[str, str]) -> None:
        if is_json():
            click.echo(json.dumps({"url": service_url, **description}))
            return
        click.echo(f"minutebook listens on {service_url}")
        for name, value in description.items():
            click.echo(f"  {name:<10} {value}")
        click.echo(f"  OpenAI     base_url={service_url}/v1, with the header X-Conversation-Id")

    serve(config_file, flags, log_level=log_level.upper(), announce=announce)
