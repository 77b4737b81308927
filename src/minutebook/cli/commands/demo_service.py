"""`minutebook demo --serve`: run a session through the service, with the official client and a small context window."""

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
from minutebook.cli.progress import count_progress
from minutebook.cli.screen import console, headed_table
from minutebook.record.message import Message
from minutebook.service.app import build_service, create_app
from minutebook.service.config.loader import CommandLineFlag, ConfigHolder
from minutebook.store.types import LoadedConversation
from minutebook.store.url import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, call
from minutebook.testing.script import ScriptedAnswer, say

CONVERSATION: Final = "demo"
_BUDGET_SHARE: Final = 0.85
"""Share of the context window that the token budget uses. The rest is for tools and answers."""
_TABLE_ROWS, _BAR_WIDTH = 10, 30


def run_session(session: list[dict[str, Any]], turns: int, window: int) -> None:
    """Run a session through the service, and print what was stored and sent."""
    with tempfile.TemporaryDirectory(prefix="minutebook-demo-") as folder:
        db = f"sqlite:///{Path(folder) / 'demo.db'}"
        with (
            LoopbackProvider(ScriptedModel(*_answers(session)), max_context_tokens=window) as provider,
            _run_service(db, provider.base_url, window) as url,
            openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        ):
            client_messages, sizes = _run_client(client, session, turns)
            rejected, requests = len(provider.problems), len(provider.requests)
        stored = asyncio.run(_load(db))
    history_tokens, sent_tokens = zip(*sizes, strict=True)
    complete = list(map(_comparable, stored.messages)) == list(map(_comparable, client_messages))
    record = {"messages": len(stored.entries), "tokens": stored.transcript().tokens, "complete": complete}
    figures = {"turns": turns, "window": window, "record": record}
    figures |= {"requests": requests, "rejected_requests": rejected}
    figures |= {"largest_request": max(sent_tokens), "tokens_sent": sum(sent_tokens)}
    figures["tokens_without_pruning"] = sum(history_tokens)
    emit(figures, lambda: _show(figures, sizes))


def _answers(session: list[dict[str, Any]]) -> Iterator[ScriptedAnswer]:
    """The answers of the model in the session."""
    for message in session:
        if message["role"] == "assistant":
            answer = say(message["content"]) if message.get("content") else ScriptedAnswer()
            for tool_call in message.get("tool_calls") or ():
                answer += call(tool_call["function"]["name"], tool_call["function"]["arguments"])
            yield answer


def _run_client(
    client: openai.OpenAI, session: list[dict[str, Any]], turns: int
) -> tuple[list[Message], list[tuple[int, int]]]:
    """Act as the client: send the whole history with every request, and answer the tool calls.

    Returns the client's messages, and for each request the tokens of the whole history and of the view that was sent.
    """
    messages: list[Any] = []
    sizes: list[tuple[int, int]] = []
    call_ids: list[str] = []
    with count_progress("turns", turns, prints_during_progress=False, min_total=1) as advance:
        for message in session:
            if message["role"] == "assistant":
                response = client.chat.completions.with_raw_response.create(
                    model="gpt-4o", messages=messages, extra_headers={"X-Conversation-Id": CONVERSATION}
                )
                completion = response.parse()
                sent = completion.usage.prompt_tokens if completion.usage else 0
                sizes.append((int(response.headers["x-history-tokens"].split(",")[0]), sent))
                messages.append(completion.choices[0].message.model_dump(exclude_none=True))
                call_ids = [tool_call["id"] for tool_call in messages[-1].get("tool_calls") or ()]
            elif message["role"] == "tool":
                messages.append({"role": "tool", "tool_call_id": call_ids.pop(0), "content": message["content"]})
            else:
                messages.append(message)
                advance(int(message["role"] == "user"))
    return messages, sizes


async def _load(db: str) -> LoadedConversation:
    async with open_store(db) as store:
        return await store.load(CONVERSATION)


def _comparable(message: Message) -> tuple[Any, ...]:
    """The parts of a message that the client and the record have in common."""
    call_ids = [tool_call["id"] for tool_call in message.get("tool_calls") or ()]
    return message["role"], message.get("content"), call_ids, message.get("tool_call_id")


@contextmanager
def _run_service(db: str, upstream: str, window: int) -> Iterator[str]:
    """Run the service in a thread for this block. Yields its URL."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config, socket.create_server(("127.0.0.1", 0)) as listener:
        config.write(
            "conversation: {policy: small}\n"
            f"policies: {{small: {{manager: token_budget, max_tokens: {int(window * _BUDGET_SHARE)}}}}}\n"
        )
        config.flush()
        flags = {"database.url": CommandLineFlag("the demo", db), "upstream.url": CommandLineFlag("the demo", upstream)}
        app = create_app(build_service(ConfigHolder(config.name, environment={}, flags=flags)))
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
    out.print(Text("A session through the service, with a provider that has a small context window.", "bold"))
    out.print(
        f"\nA coding agent with {figures['turns']} user messages used the official openai client, which sends its whole\n"
        "history with every request. The service stores it and sends on what fits. The provider rejects\n"
        f"requests of more than {window:,} tokens.\n"
        "(Client, service, database and provider are real and ran here; the model's answers are scripted.)\n"
    )
    table = headed_table()
    for title in ("request", "tokens of the history", "tokens sent"):
        table.add_column(title, justify="right")
    table.add_column("█ sent  ░ left out", no_wrap=True)
    scale, last = max(history for history, _ in sizes), len(sizes) - 1
    for index in sorted({round(step * last / (_TABLE_ROWS - 1)) for step in range(_TABLE_ROWS)}):
        history, sent = sizes[index]
        bar = Text("█" * max(1, round(_BAR_WIDTH * sent / scale)), "green")
        bar.append("░" * round(_BAR_WIDTH * max(0, history - sent) / scale), "dim")
        table.add_row(f"{index + 1}", f"{history:,}", f"{sent:,}", bar)
    out.print(table)
    too_long = sum(history > window for history, _ in sizes)
    complete = "every message of the client and the model" if record["complete"] else "NOT every message"
    out.print(
        f"stored:   {record['messages']:,} messages, {record['tokens']:,} tokens: {complete}\n"
        f"rejected: {figures['rejected_requests']} of {figures['requests']} requests; with the whole history it would "
        f"have been {too_long}\n"
        f"sent:     {figures['tokens_sent']:,} tokens instead of {figures['tokens_without_pruning']:,}, "
        f"{figures['largest_request']:,} at most\n"
    )
    out.print("The service was stopped and its data removed. To run it with your own database: minutebook serve")
