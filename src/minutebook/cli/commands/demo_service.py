"""`minutebook demo --serve`: a session through the service on SQLite, an official client and a provider with a small window."""

import asyncio
import json
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import openai
import uvicorn
from rich import box
from rich.table import Table
from rich.text import Text

from minutebook.cli.screen import console, percent
from minutebook.record.message import Message
from minutebook.service.app import create_app, service_from
from minutebook.service.config.loader import ConfigHolder, Flag
from minutebook.store.url import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, call, coding_session
from minutebook.testing.script import Answer, say

CONVERSATION: Final = "demo"
MODEL: Final = "gpt-4o"
_MARGIN: Final = 0.85
"""What the budget leaves free of the provider's window, for tools and answers."""


@dataclass
class Story:
    """What happened."""

    url: str
    window: int
    turns: int
    requests: int = 0
    refused: int = 0
    record: int = 0
    """Messages that are kept."""
    record_tokens: int = 0
    complete: bool = False
    """Whether the record holds all that the client said and heard."""
    sent: list[int] = field(default_factory=list)
    """Tokens of each request, as the provider counted them."""
    whole: list[int] = field(default_factory=list)
    """Tokens that each request would have had with the whole history."""

    def to_json(self) -> dict[str, Any]:
        return {
            "turns": self.turns,
            "requests": self.requests,
            "refused_by_the_provider": self.refused,
            "window": self.window,
            "record": {"messages": self.record, "tokens": self.record_tokens, "complete": self.complete},
            "largest_request": max(self.sent),
            "tokens_sent": sum(self.sent),
            "tokens_without_pruning": sum(self.whole),
        }


def told(seed: int, turns: int, window: int, progress: Callable[[int], None]) -> Story:
    """Live through a session of so many turns, through the service. `progress` hears of each."""
    session = coding_session(seed, turns)
    with tempfile.TemporaryDirectory(prefix="minutebook-demo-") as folder:
        db = f"sqlite:///{Path(folder) / 'demo.db'}"
        with (
            LoopbackProvider(ScriptedModel(*_steps(session)), max_context_tokens=window) as provider,
            _serving(db, provider.base_url, window) as url,
        ):
            story = Story(url, window, turns)
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
                heard = _talked(client, session, story, progress)
            story.refused = len(provider.problems)
            story.requests = len(provider.requests)
        asyncio.run(_look_back(db, story, heard))
    return story


def _steps(session: list[dict[str, Any]]) -> list[Answer]:
    """What the model says in the session, answer by answer."""
    steps = []
    for message in session:
        if message["role"] != "assistant":
            continue
        answer = say(message["content"]) if message.get("content") else Answer()
        for each in message.get("tool_calls") or ():
            answer += call(each["function"]["name"], each["function"]["arguments"])
        steps.append(answer)
    return steps


def _talked(
    client: openai.OpenAI, session: list[dict[str, Any]], story: Story, progress: Callable[[int], None]
) -> list[Message]:
    """The client's side: it resends all it knows with every request, as clients do, and runs the tools."""
    headers = {"X-Conversation-Id": CONVERSATION}
    heard: list[Any] = []
    waiting: list[str] = []
    for message in session:
        if message["role"] == "assistant":
            answer = client.chat.completions.with_raw_response.create(
                model=MODEL, messages=heard, extra_headers=headers
            )
            completion = answer.parse()
            story.whole.append(int(answer.headers["x-history-tokens"].split(",")[0]))
            story.sent.append(completion.usage.prompt_tokens if completion.usage else 0)
            said = completion.choices[0].message.model_dump(exclude_none=True)
            waiting = [each["id"] for each in said.get("tool_calls") or ()]
            heard.append(said)
        elif message["role"] == "tool":
            heard.append({"role": "tool", "tool_call_id": waiting.pop(0), "content": message["content"]})
        else:
            heard.append(message)
            progress(int(message["role"] == "user"))
    return heard


async def _look_back(db: str, story: Story, heard: list[Message]) -> None:
    """Read the record, after everything is stopped."""
    async with open_store(db) as store:
        kept = await store.load(CONVERSATION)
    story.record = len(kept.entries)
    story.record_tokens = kept.transcript().tokens
    story.complete = [_said(message) for message in kept.messages] == [_said(message) for message in heard]


def _said(message: Message) -> tuple[Any, ...]:
    calls = [each["id"] for each in message.get("tool_calls") or ()]
    return message["role"], message.get("content"), json.dumps(calls), message.get("tool_call_id")


@contextmanager
def _serving(db: str, upstream: str, window: int) -> Iterator[str]:
    """The service, in a thread of this process, until the block ends."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config, socket.socket() as listener:
        config.write(
            "conversation: {policy: small}\n"
            f"policies: {{small: {{manager: token_budget, max_tokens: {int(window * _MARGIN)}}}}}\n"
        )
        config.flush()
        flags = {"database.url": Flag("the demo", db), "upstream.url": Flag("the demo", upstream)}
        holder = ConfigHolder(config.name, environment={}, flags=flags)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(("127.0.0.1", 0))
        app = create_app(service_from(holder))
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


_ROWS = 10
_WIDTH = 30


def show_story(story: Story) -> None:
    """Print how a session went that was kept whole and sent in parts."""
    out = console()
    out.print(Text("The record keeps everything. The view is what the model reads.", "bold"))
    out.print(
        f"\nA coding agent's {story.turns} turns went through the service with the official openai client, which\n"
        f"resends its whole history each time. The provider behind it refuses more than {story.window:,} tokens.\n"
        "(Client, service, database and provider are real and ran here; the model read from a script.)\n"
    )
    out.print(_course(story))
    out.print(_sums(story))
    out.print("Everything is stopped again, and its database is gone. Yours begins with: minutebook serve")


def _course(story: Story) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("request", justify="right")
    table.add_column("whole history", justify="right")
    table.add_column("sent", justify="right")
    table.add_column("sent of the whole", no_wrap=True)
    most = max(story.whole)
    last = len(story.sent) - 1
    for place in sorted({round(step * last / (_ROWS - 1)) for step in range(_ROWS)}):
        whole, sent = story.whole[place], story.sent[place]
        bar = Text("█" * max(1, round(_WIDTH * sent / most)), "green")
        bar.append("░" * round(_WIDTH * max(0, whole - sent) / most), "dim")
        table.add_row(f"{place + 1}", f"{whole:,}", f"{sent:,}", bar)
    return table


def _sums(story: Story) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right", style="bold green")
    for what, figure in {
        "messages in the record": f"{story.record:,}",
        "  all that the client said and heard": "yes" if story.complete else "NO",
        "requests": f"{story.requests:,}",
        "  that the provider refused": f"{story.refused:,}",
        "  that it would have refused with the whole history": f"{sum(whole > story.window for whole in story.whole):,}",
        "largest request, tokens": f"{max(story.sent):,}",
        "tokens with the whole history each time": f"{sum(story.whole):,}",
        "tokens sent": f"{sum(story.sent):,}",
        "  of the whole": percent(sum(story.sent), sum(story.whole)),
    }.items():
        table.add_row(what, figure)
    return table
