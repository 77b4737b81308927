"""The service, killed while it streams, and clients that ask again until they have their answer."""

import asyncio
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from bench.report import progress
from minutebook.record.check import check
from minutebook.record.finding import errors
from minutebook.record.message import text_of
from minutebook.store.open import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from minutebook.testing.received import ReceivedRequest
from torture.killing import Tally
from torture.ledger import Found

TALKERS = 6
TOLD = 20
PATIENCE_SECONDS = 60.0
"""How long a client goes on asking before we say that it hangs."""
LEASE_SECONDS = 0.6
"""Short, so that what a kill leaves behind is over before the next."""
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
Message = dict[str, Any]


def model() -> ScriptedModel:
    """Looks something up for every question, then answers. The same question always has the same answer."""

    def answer(request: ReceivedRequest) -> Any:
        last = request.messages[-1]
        if last["role"] == "tool":
            return say(f"The answer is {last['content']}, as far as anybody knows.")
        return call("look_up", what=text_of(last))

    return ScriptedModel(otherwise=answer)


class Replica:
    """A `minutebook serve` in a process of its own, on a port that it keeps."""

    def __init__(self, db: str, upstream: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command = [
            *(sys.executable, "-c", "from minutebook.cli.main import main; main()"),
            *("serve", "--json", "--log-level", "error"),
            *("--db", db, "--upstream", upstream, "--port", str(self.port)),
        ]
        self._process: subprocess.Popen[str] | None = None
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            text=True,
            env={**clean, "MINUTEBOOK_SERVER_LEASE_SECONDS": str(LEASE_SECONDS)},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the service did not start; it ended with {self._process.wait()}"

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@dataclass
class Talker:
    """A client that talks, with tools, and asks again whenever it is not answered."""

    name: str
    replicas: Sequence[Replica]
    stopping: threading.Event
    history: list[Message] = field(default_factory=list)
    answered: int = 0
    asked_again: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    """What went wrong for the client, by kind."""
    problem: str | None = None

    def talk(self) -> None:
        """Turn after turn, until it is told to stop; the last turn is brought to its end."""
        try:
            with httpx2.Client(trust_env=False, timeout=30) as http:
                for turn in itertools.count():
                    if self.stopping.is_set():
                        return
                    self._turn(http, turn)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def _turn(self, http: httpx2.Client, turn: int) -> None:
        self.history.append({"role": "user", "content": f"question {turn} of {self.name}"})
        for step in itertools.count():
            said = self._asked(http, f"{self.name}-{turn}-{step}")
            self.history.append(said)
            self.answered += 1
            if not said.get("tool_calls"):
                return
            for each in said["tool_calls"]:
                self.history.append({"role": "tool", "tool_call_id": each["id"], "content": f"fact {turn}"})

    def _asked(self, http: httpx2.Client, key: str) -> Message:
        begun = time.monotonic()
        for attempt in itertools.count():
            replica = self.replicas[(hash(self.name) + attempt) % len(self.replicas)]
            try:
                return self._streamed(http, replica, key)
            except (httpx2.TransportError, _NotYet) as error:
                self.seen[type(error).__name__ if not isinstance(error, _NotYet) else str(error)] += 1
                self.asked_again += 1
            assert time.monotonic() - begun < PATIENCE_SECONDS, f"{key} was not answered in {PATIENCE_SECONDS:.0f} s"
            time.sleep(0.05)
        raise AssertionError

    def _streamed(self, http: httpx2.Client, replica: Replica, key: str) -> Message:
        headers = {"X-Conversation-Id": self.name, "Idempotency-Key": key}
        body = {"model": "scripted", "messages": self.history, "stream": True, "tools": TOOLS}
        text: list[str] = []
        calls: dict[int, Message] = {}
        with http.stream("POST", f"{replica.url}/v1/chat/completions", json=body, headers=headers) as answer:
            if answer.status_code in {409, 502, 503}:
                raise _NotYet(str(answer.status_code))
            assert answer.status_code == 200, f"{answer.status_code}: {answer.read()!r}"
            for line in answer.iter_lines():
                if line == "data: [DONE]":
                    said: Message = {"role": "assistant", "content": "".join(text) or None}
                    return said if not calls else {**said, "tool_calls": list(calls.values())}
                if line.startswith("data:"):
                    _take(json.loads(line[5:]), text, calls)
        raise _NotYet("cut off")


class _NotYet(Exception):
    """There is no answer yet; there will be one."""


def _take(chunk: Message, text: list[str], calls: dict[int, Message]) -> None:
    if "error" in chunk:
        raise _NotYet("error in the stream")
    for choice in chunk["choices"]:
        text.append(choice["delta"].get("content") or "")
        for piece in choice["delta"].get("tool_calls") or ():
            known = calls.setdefault(
                piece["index"], {"id": piece.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
            )
            for part in ("name", "arguments"):
                known["function"][part] += piece["function"].get(part) or ""


def kill_service(db: str, kills: int, *, replicas: int = 1, seed: int = 7, name: str = "") -> Tally:
    """Kill one of the replicas at random moments of load, and start it again."""
    draw, tally = random.Random(seed), Tally()
    with (
        LoopbackProvider(model(), remember=10) as provider,
        _running([Replica(db, provider.base_url) for _ in range(replicas)]) as servers,
    ):
        stopping = threading.Event()
        talkers = [Talker(f"talker-{number}", servers, stopping) for number in range(TALKERS)]
        with _talking(talkers, stopping):
            for kill in range(kills):
                time.sleep(draw.uniform(0.02, 3.0))
                victim = draw.choice(servers)
                victim.kill()
                victim.start()
                tally.kills += 1
                if kill % TOLD == TOLD - 1:
                    answered = sum(talker.answered for talker in talkers)
                    progress(f"{name}: {kill + 1:,} of {kills:,} killed, {answered:,} answers")
    for talker in talkers:
        assert talker.problem is None, talker.problem
        tally.acknowledged += talker.answered
        tally.unheard += talker.asked_again
        tally.found += asyncio.run(_found(db, talker))
    return tally


@contextmanager
def _running(replicas: list[Replica]) -> Iterator[list[Replica]]:
    try:
        for replica in replicas:
            replica.start()
        yield replicas
    finally:
        for replica in replicas:
            replica.stop()


@contextmanager
def _talking(talkers: Sequence[Talker], stopping: threading.Event) -> Iterator[None]:
    threads = [threading.Thread(target=talker.talk) for talker in talkers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


async def _found(db: str, talker: Talker) -> Found:
    """What is wrong with a talker's record: it must be what the talker heard, no more and no less."""
    async with open_store(db) as store:
        loaded = await store.load(talker.name)
    kept, heard = loaded.messages, talker.history
    seen = Counter(_key(message) for message in kept)
    wanted = Counter(_key(message) for message in heard)
    found = Found()
    found.lost = sum((wanted - seen).values())
    found.doubled = sum((seen - wanted).values())
    found.halves = len(errors(check(kept))) if kept else 0
    found.gaps = int(list(loaded.positions) != list(range(len(kept))))
    found.disordered = int([_key(message) for message in kept] != [_key(message) for message in heard])
    return found


def _key(message: Any) -> str:
    calls = [each["id"] for each in message.get("tool_calls") or ()]
    return json.dumps([message["role"], message.get("content"), calls, message.get("tool_call_id")])
