"""Clients that retry until they have an answer."""

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import httpx2

from torture.client_history import ClientHistory
from torture.replica import Replica

TURNS = 8
"""Turns of a conversation. Then the client starts a new one, so that long conversations do not slow the test down."""
TIMEOUT_SECONDS = 60.0
"""Time without an answer after which a client counts as hanging."""
RETRYABLE_STATUSES = frozenset({503})
"""Statuses that a healthy server may send for a request that it cannot answer now. 409 is none of them: a request waits for
longer than the lease of a killed server (`replica.CONFIG`), and no two requests use one conversation."""
RETRY_SECONDS = 0.05
T = TypeVar("T")


class RetryLater(Exception):
    """There is no answer yet, and a retry will get one."""

    def __init__(self, reason: str, wait_seconds: float = RETRY_SECONDS) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


@dataclass(frozen=True)
class Attempt:
    """One attempt at a request: the server to use, and the headers to send."""

    http: httpx2.Client
    url: str
    headers: dict[str, str]

    def post(self, path: str, body: Any) -> httpx2.Response:
        return require_success(self.http.post(f"{self.url}{path}", json=body, headers=self.headers))


@dataclass
class RetryingClient(ABC):
    """Has one conversation after another, and retries every request that gets no answer."""

    name: str
    replicas: Sequence[Replica]
    stopping: threading.Event
    uses_keys: bool = True
    """Whether requests have an idempotency key. Otherwise they have a retry count, as those of the official clients."""
    histories: list[ClientHistory] = field(default_factory=list)
    answers: int = 0
    retries: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Number of failed attempts by reason."""
    problem: str | None = None
    """Why the client gave up, if it did."""
    _http: httpx2.Client = field(init=False)

    def run(self) -> None:
        """Send requests until `stopping` is set. The current turn is completed."""
        try:
            with httpx2.Client(trust_env=False, timeout=30) as self._http:
                for number in itertools.count():
                    if self.stopping.is_set():
                        return
                    history = ClientHistory(f"{self.name}-{number}")
                    self.start_conversation(history)
                    self.histories.append(history)
                    for turn in range(TURNS):
                        if not self.stopping.is_set():
                            self.run_turn(history, turn)
        except Exception as error:
            self.problem = f"{self.name}: {type(error).__name__}: {error}"

    @abstractmethod
    def start_conversation(self, history: ClientHistory) -> None:
        """Create the conversation, if the API requires it."""

    @abstractmethod
    def run_turn(self, history: ClientHistory, turn: int) -> None:
        """Send a question, and run tools until there is an answer."""

    def request(self, key: str, send: Callable[[Attempt], T]) -> T:
        """Call `send` until it returns an answer; `key` is the idempotency key."""
        started, first_replica = time.monotonic(), sum(map(ord, key))
        for number in itertools.count():
            replica = self.replicas[(first_replica + number) % len(self.replicas)]
            headers = {"Idempotency-Key": key} if self.uses_keys else {"X-Stainless-Retry-Count": str(number)}
            try:
                answer = send(Attempt(self._http, replica.url, headers))
            except (httpx2.TransportError, RetryLater) as error:
                self.failures[str(error) if isinstance(error, RetryLater) else type(error).__name__] += 1
                self.retries += 1
                wait_seconds = error.wait_seconds if isinstance(error, RetryLater) else RETRY_SECONDS
            else:
                self.answers += 1
                return answer
            timeout = f"{key} was not answered within {TIMEOUT_SECONDS:.0f} s: {dict(self.failures)}"
            assert time.monotonic() - started < TIMEOUT_SECONDS, timeout
            time.sleep(wait_seconds)
        raise AssertionError


def require_success(response: httpx2.Response) -> httpx2.Response:
    """Return the response if it has succeeded.

    Raises:
        RetryLater: the server asks for a retry.
        AssertionError: the request failed in another way.
    """
    if response.status_code in RETRYABLE_STATUSES:
        response.read()
        code = response.json()["error"]["code"]
        wait_seconds = int(response.headers.get("retry-after-ms", RETRY_SECONDS * 1_000)) / 1_000
        raise RetryLater(f"{response.status_code} {code}", wait_seconds)
    if not response.is_success:
        raise AssertionError(f"{response.status_code}: {response.read()!r}")
    return response


class ServerEvent(NamedTuple):
    fields: dict[str, str]
    data: str


def server_events(response: httpx2.Response) -> Iterator[ServerEvent]:
    """The server-sent events of a stream."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if not line and "data" in fields:
            yield ServerEvent(fields, fields["data"])
            fields = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
