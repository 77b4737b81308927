"""Threads of a running service, as a client sees them."""

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

import pytest

from minutebook.service.app import create_app
from minutebook.service.configfile import ConfigHolder
from minutebook.service.opening import service_from
from minutebook.testing import LoopbackProvider, ScriptedModel, call
from tests.servers import require_postgres, shared
from tests.service.serving import Served, listening

WHOLE = {"accept": "application/json"}
TOOLS = "tools: [{python: 'tests.service.talking_tools:add'}]\n"
DATABASES = ("sqlite", "postgres")


@pytest.fixture(params=DATABASES)
def db(request, tmp_path):
    """The URL of an empty database: a file, or a real PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chat.db'}"
    require_postgres()
    return shared.empty()


class Gate:
    """What a provider's `slow` steps wait for; `reached` says that one does."""

    def __init__(self):
        self.reached, self._open = Event(), Event()

    def wait(self, _seconds):
        self.reached.set()
        assert self._open.wait(20), "nobody opened the gate"

    def open(self):
        self._open.set()


@dataclass(frozen=True)
class Heard:
    """One server-sent event."""

    id: str
    event: str
    data: dict
    raw: str


def heard(lines):
    """The events in the lines of a stream; comments are none."""
    found = []
    for block in "\n".join(lines).split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if fields:
            found.append(Heard(fields["id"], fields["event"], json.loads(fields["data"]), block.strip("\n")))
    return found


def text_in(events):
    """What a client shows that puts the deltas together."""
    text = ""
    for each in events:
        if each.event == "message":
            text += each.data["delta"]
        elif each.data.get("notice") == "restarted":
            text = each.data["text"]
    return text


class Thread:
    """A thread, and a client that speaks in it."""

    def __init__(self, http, made):
        self.http, self.id = http, made["id"]
        self.path = f"/threads/{self.id}"

    def ask(self, text, *, headers=None, **body):
        """The answer, whole."""
        given = {"text": text, "model": "gpt-4o", **body}
        return self.http.post(f"{self.path}/messages", json=given, headers={**WHOLE, **(headers or {})})

    def hear(self, text, *, headers=None, upto=None, **body):
        """The events of an answer; with `upto` the client hangs up after so many."""
        given = {"text": text, "model": "gpt-4o", **body}
        with self.http.stream("POST", f"{self.path}/messages", json=given, headers=headers) as answer:
            return self._read(answer, upto)

    def come_back(self, run, last_event_id=None, *, upto=None):
        headers = {} if last_event_id is None else {"last-event-id": last_event_id}
        with self.http.stream("GET", f"{self.path}/runs/{run}/events", headers=headers) as answer:
            return self._read(answer, upto)

    def messages(self, **params):
        answer = self.http.get(f"{self.path}/messages", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    @staticmethod
    def _read(answer, upto):
        assert answer.status_code == 200, answer.read()
        lines = []
        for line in answer.iter_lines():
            lines.append(line)
            if upto is not None and not line and len(heard(lines)) >= upto:
                break
        return heard(lines)


class Talking(Served):
    """A running service."""

    def thread(self, http=None, **body):
        http = http or self.http()
        self.clients.append(http)
        made = http.post("/threads", json=body)
        assert made.status_code == 201, made.text
        return Thread(http, made.json())

    def sent(self):
        """What the provider was sent, request by request."""
        return [request.messages for request in self.provider.requests]


@contextmanager
def talking(
    model=None, *, db="memory:", config="", folder=None, store=None, environment=None, provider=None, **options
):
    """A service behind a real port, in front of a provider that plays a script; `options` are the provider's."""
    own = provider or LoopbackProvider(model or ScriptedModel(otherwise="Yes."), **options)
    variables = {"MINUTEBOOK_DB": db, "MINUTEBOOK_UPSTREAM_URL": own.base_url, **(environment or {})}
    path = None
    if config:
        path = folder / "llm_config.yaml"
        path.write_text(config)
    try:
        service = service_from(ConfigHolder(path, environment=variables), store=store)
        with listening(create_app(service)) as url:
            here = Talking(url, service, own)
            try:
                yield here
            finally:
                for client in here.clients:
                    client.close()
    finally:
        if provider is None:
            own.close()


def adding(turns, *, says="Sum {number}: "):
    """A model that uses a tool in every turn, and then answers."""
    steps = []
    for number in range(turns):
        steps += [call("add", a=number, b=1_000_000), says.format(number=number) + "so it is. " * 5]
    return ScriptedModel(*steps)


class Apart:
    """A service in a process of its own, which can be killed."""

    def __init__(self, db, upstream, *, lease_seconds=2.0):
        command = [sys.executable, "-m", "tests.service.talking", db, upstream, str(lease_seconds)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            self.kill()
            raise AssertionError("the service did not start")

    def kill(self):
        """End it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def main(db, upstream, lease_seconds):
    """Serve until somebody kills us."""
    variables = {
        "MINUTEBOOK_DB": db,
        "MINUTEBOOK_UPSTREAM_URL": upstream,
        "MINUTEBOOK_SERVER_LEASE_SECONDS": lease_seconds,
    }
    service = service_from(ConfigHolder(None, environment=variables))
    with listening(create_app(service)) as url:
        print(url, flush=True)  # noqa: T201 - whoever started us reads it
        Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
