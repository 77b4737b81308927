"""Threads of a running service, as a client sees them."""

import json
import os
from dataclasses import dataclass
from threading import Event

import pytest

from minutebook.testing import ScriptedModel, call
from tests.programs import Program
from tests.servers import require_postgres, shared
from tests.service.serving import Served, served

WHOLE = {"accept": "application/json"}
TOOLS = "tools: [{python: 'tests.service.talking_tools:add'}]\n"
DATABASES = ("sqlite", "postgres")


@pytest.fixture(params=DATABASES)
def db(request, tmp_path):
    """The URL of an empty database: a file, or a real PostgreSQL."""
    return empty_database(request.param, tmp_path)


def empty_database(kind, tmp_path):
    if kind == "sqlite":
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


def talking(model=None, **options):
    """A service whose threads are talked in; the options are those of `served`."""
    return served(model, kind=Talking, **options)


def adding(turns, *, says="Sum {number}: "):
    """A model that uses a tool in every turn, and then answers."""
    steps = []
    for number in range(turns):
        steps += [call("add", a=number, b=1_000_000), says.format(number=number) + "so it is. " * 5]
    return ScriptedModel(*steps)


class Apart:
    """A service in a process of its own, which can be killed."""

    def __init__(self, db, upstream, *, lease_seconds=1.0, config=None):
        """`config` is a configuration file."""
        options = ["--log-level", "error", "--db", db, "--upstream", upstream, "--port", "0"]
        options += [] if config is None else ["--config", str(config)]
        variables = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
        variables["MINUTEBOOK_SERVER_LEASE_SECONDS"] = str(lease_seconds)
        self._process = Program("serve", "--json", *options, env=variables)
        line = self._process.stdout.readline()
        if not line:
            self.kill()
            raise AssertionError("the service did not start")
        self.url = json.loads(line)["url"]

    def kill(self):
        """End it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()
