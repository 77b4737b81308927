"""`minutebook demo --serve`: a session through the service on SQLite, with an official client and a small window."""

import asyncio
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import openai
import uvicorn
from rich.text import Text

from minutebook.cli.options import emit
from minutebook.cli.progress import counting
from minutebook.cli.screen import console, headed_table
from minutebook.record.message import Message
from minutebook.service.app import create_app, service_from
from minutebook.service.config.loader import ConfigHolder, Flag
from minutebook.store.types import Loaded
from minutebook.store.url import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, call
from minutebook.testing.script import Answer, say

CONVERSATION: Final = "demo"
_MARGIN: Final = 0.85
"""What the budget leaves free of the provider's window, for tools and answers."""
_ROWS, _WIDTH = 10, 30


def run_session(session: list[dict[str, Any]], turns: int, window: int) -> None:
    """Run a session through the service, and print what was stored and what was sent."""
    with tempfile.TemporaryDirectory(prefix="minutebook-demo-") as folder:
        db = f"sqlite:///{Path(folder) / 'demo.db'}"
        with (
            LoopbackProvider(ScriptedModel(*_answers(session)), max_context_tokens=window) as provider,
            _serving(db, provider.base_url, window) as url,
            openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        ):
            said, sizes = _talk(client, session, turns)
            rejected, requests = len(provider.problems), len(provider.requests)
        stored = asyncio.run(_load(db))
    whole, sent = zip(*sizes, strict=True)
    complete = list(map(_essence, stored.messages)) == list(map(_essence, said))
    record = {"messages": len(stored.entries), "tokens": stored.transcript().tokens, "complete": complete}
    figures = {"turns": turns, "window": window, "record": record}
    figures |= {"requests": requests, "refused_by_the_provider": rejected}
    figures |= {"largest_request": max(sent), "tokens_sent": sum(sent), "tokens_without_pruning": sum(whole)}
    emit(figures, lambda: _show(figures, sizes))


def _answers(session: list[dict[str, Any]]) -> Iterator[Answer]:
    """What the model says in the session."""
    for message in session:
        if message["role"] == "assistant":
            answer = say(message["content"]) if message.get("content") else Answer()
            for each in message.get("tool_calls") or ():
                answer += call(each["function"]["name"], each["function"]["arguments"])
            yield answer


def _talk(
    client: openai.OpenAI, session: list[dict[str, Any]], turns: int
) -> tuple[list[Message], list[tuple[int, int]]]:
    """The client's side: it resends its whole history with every request, as clients do, and runs the tools.

    Returns all that was said, and for each request the tokens of the whole history and those that were sent.
    """
    said: list[Any] = []
    sizes: list[tuple[int, int]] = []
    calls: list[str] = []
    with counting("turns", turns, silent=True, least=1) as advance:
        for message in session:
            if message["role"] == "assistant":
                raw = client.chat.completions.with_raw_response.create(
                    model="gpt-4o", messages=said, extra_headers={"X-Conversation-Id": CONVERSATION}
                )
                completion = raw.parse()
                sent = completion.usage.prompt_tokens if completion.usage else 0
                sizes.append((int(raw.headers["x-history-tokens"].split(",")[0]), sent))
                said.append(completion.choices[0].message.model_dump(exclude_none=True))
                calls = [each["id"] for each in said[-1].get("tool_calls") or ()]
            elif message["role"] == "tool":
                said.append({"role": "tool", "tool_call_id": calls.pop(0), "content": message["content"]})
            else:
                said.append(message)
                advance(int(message["role"] == "user"))
    return said, sizes


async def _load(db: str) -> Loaded:
    async with open_store(db) as store:
        return await store.load(CONVERSATION)


def _essence(message: Message) -> tuple[Any, ...]:
    calls = [each["id"] for each in message.get("tool_calls") or ()]
    return message["role"], message.get("content"), calls, message.get("tool_call_id")


@contextmanager
def _serving(db: str, upstream: str, window: int) -> Iterator[str]:
    """The service, in a thread of this process, until the block ends."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config, socket.create_server(("127.0.0.1", 0)) as listener:
        config.write(
            "conversation: {policy: small}\n"
            f"policies: {{small: {{manager: token_budget, max_tokens: {int(window * _MARGIN)}}}}}\n"
        )
        config.flush()
        flags = {"database.url": Flag("the demo", db), "upstream.url": Flag("the demo", upstream)}
        app = create_app(service_from(ConfigHolder(config.name, environment={}, flags=flags)))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                thread.join(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _show(figures: dict[str, Any], sizes: list[tuple[int, int]]) -> None:
    out, window, record = console(), figures["window"], figures["record"]
    out.print(Text("The same through the service, with a provider that accepts few tokens.", "bold"))
    out.print(
        f"\n{figures['turns']} turns of a coding agent went through the service with the official openai client, which sends "
        f"its\nwhole history every time. The provider rejects requests of more than {window:,} tokens.\n"
        "(Client, service, database and provider are real and ran here; the model's answers are scripted.)\n"
    )
    table = headed_table()
    for title in ("request", "tokens of the history", "tokens sent"):
        table.add_column(title, justify="right")
    table.add_column("sent / history", no_wrap=True)
    most, last = max(whole for whole, _ in sizes), len(sizes) - 1
    for place in sorted({round(step * last / (_ROWS - 1)) for step in range(_ROWS)}):
        whole, sent = sizes[place]
        bar = Text("█" * max(1, round(_WIDTH * sent / most)), "green")
        bar.append("░" * round(_WIDTH * max(0, whole - sent) / most), "dim")
        table.add_row(f"{place + 1}", f"{whole:,}", f"{sent:,}", bar)
    out.print(table)
    too_long = sum(whole > window for whole, _ in sizes)
    complete = "every message of the client and the model" if record["complete"] else "NOT every message"
    out.print(
        f"stored:   {record['messages']:,} messages, {record['tokens']:,} tokens: {complete}\n"
        f"rejected: {figures['refused_by_the_provider']} of {figures['requests']} requests; with the whole history it would "
        f"have been {too_long}\n"
        f"sent:     {figures['tokens_sent']:,} tokens instead of {figures['tokens_without_pruning']:,}, "
        f"{figures['largest_request']:,} at most\n"
    )
    out.print("Everything is stopped and removed again. To serve a database of your own: minutebook serve")
