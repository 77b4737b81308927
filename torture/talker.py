"""Clients that ask again until they have their answer."""

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx2

from torture.replica import Replica
from torture.story import Story

TURNS = 8
"""Turns of a conversation; then the next begins, so that it is not their length that takes the time."""
PATIENCE_SECONDS = 60.0
"""How long a client goes on asking before we say that it hangs."""
LATER = frozenset({409, 503})
"""What a server may answer that is well and cannot answer now. Everything else is none of a retrying client's business."""
PAUSE_SECONDS = 0.05
T = TypeVar("T")


class NotYet(Exception):
    """There is no answer yet; there will be one."""

    def __init__(self, why: str, wait_seconds: float = PAUSE_SECONDS) -> None:
        super().__init__(why)
        self.wait_seconds = wait_seconds


@dataclass(frozen=True)
class Line:
    """One try: to whom, and with which headers."""

    http: httpx2.Client
    url: str
    headers: dict[str, str]

    def post(self, path: str, body: Any) -> httpx2.Response:
        return required(self.http.post(f"{self.url}{path}", json=body, headers=self.headers))


@dataclass
class Talker(ABC):
    """A client that talks in one conversation after another, and asks again whenever it is not answered."""

    name: str
    replicas: Sequence[Replica]
    stopping: threading.Event
    keyed: bool = True
    """Whether it says with a key that it asks again; otherwise it counts its tries, as the official clients do."""
    stories: list[Story] = field(default_factory=list)
    answered: int = 0
    asked_again: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    """What went wrong for the client, by kind."""
    problem: str | None = None
    _http: httpx2.Client = field(init=False)

    def talk(self) -> None:
        """Turn after turn, until it is told to stop; the last turn is brought to its end."""
        try:
            with httpx2.Client(trust_env=False, timeout=30) as self._http:
                for number in itertools.count():
                    if self.stopping.is_set():
                        return
                    story = Story(f"{self.name}-{number}")
                    self.begin(story)
                    self.stories.append(story)
                    for turn in range(TURNS):
                        if not self.stopping.is_set():
                            self.turn(story, turn)
        except Exception as error:
            self.problem = f"{self.name}: {type(error).__name__}: {error}"

    @abstractmethod
    def begin(self, story: Story) -> None:
        """Make the conversation, where it has to be made."""

    @abstractmethod
    def turn(self, story: Story, turn: int) -> None:
        """Ask, and go on until there is an answer."""

    def ask(self, key: str, attempt: Callable[[Line], T]) -> T:
        """Try until it is answered."""
        begun, start = time.monotonic(), sum(map(ord, key))
        for number in itertools.count():
            replica = self.replicas[(start + number) % len(self.replicas)]
            again = {"Idempotency-Key": key} if self.keyed else {"X-Stainless-Retry-Count": str(number)}
            try:
                answer = attempt(Line(self._http, replica.url, again))
            except (httpx2.TransportError, NotYet) as error:
                self.seen[str(error) if isinstance(error, NotYet) else type(error).__name__] += 1
                self.asked_again += 1
                wait = error.wait_seconds if isinstance(error, NotYet) else PAUSE_SECONDS
            else:
                self.answered += 1
                return answer
            late = f"{key} was not answered in {PATIENCE_SECONDS:.0f} s: {dict(self.seen)}"
            assert time.monotonic() - begun < PATIENCE_SECONDS, late
            time.sleep(wait)
        raise AssertionError


def required(answer: httpx2.Response) -> httpx2.Response:
    """The answer, if it is one.

    Raises:
        NotYet: it is to be asked for again, as the server says when.
    """
    if answer.status_code in LATER:
        answer.read()
        code = answer.json()["error"]["code"]
        wait = int(answer.headers.get("retry-after-ms", PAUSE_SECONDS * 1_000)) / 1_000
        raise NotYet(f"{answer.status_code} {code}", wait)
    if not answer.is_success:
        raise AssertionError(f"{answer.status_code}: {answer.read()!r}")
    return answer


def events(answer: httpx2.Response) -> Iterator[tuple[dict[str, str], str]]:
    """The events of a stream: their fields, and their data."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line and "data" in fields:
            yield fields, fields["data"]
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
