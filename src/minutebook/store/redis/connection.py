"""One client, on an event loop in a thread of its own, for whoever asks from whichever thread and loop.

A command is sent once. When a connection breaks, nobody knows whether the server still got it, so trying again is for
the caller, who has an idempotency key for that.

Where a driver's errors become ours.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit
from weakref import WeakValueDictionary

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ResponseError

from minutebook.errors import InvalidSetting, StoreDamaged, StoreFull, StoreReadOnly, StoreUnavailable
from minutebook.store.loop_thread import LoopThread

_BY_WORD: Final[tuple[tuple[str, type[StoreUnavailable]], ...]] = (
    ("OOM", StoreFull),
    ("READONLY", StoreReadOnly),
    ("MISCONF", StoreReadOnly),
    ("WRONGTYPE", StoreDamaged),
)
"""A word that the server's message begins with or holds → our error."""


def translated(error: exceptions.RedisError | OSError, store: str) -> StoreUnavailable:
    """Our error for one of the driver's."""
    said = str(error) or type(error).__name__
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreFull(store, said)
    if isinstance(error, exceptions.ReadOnlyError):
        return StoreReadOnly(store, said)
    if isinstance(error, exceptions.ResponseError):
        for word, kind in _BY_WORD:
            if word in said:
                return kind(store, said)
    return StoreUnavailable(store, said)


@contextmanager
def errors_of(store: str) -> Iterator[None]:
    """Let no driver's error out."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        if isinstance(error, StoreUnavailable):
            raise
        raise translated(error, store) from error


T = TypeVar("T")
Value = str | int | bytes

AT_ONCE: Final = 32
"""How many commands are on their way at the same time."""
CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 30
MOST_KNOWN: Final = 50_000
_LOG: Final = logging.getLogger("minutebook.store")
_WITHOUT_PRELUDE: Final = {
    "find_conversation",
    "claim_conversation_id",
    "remove_expired",
    "remove_claim",
    "erase",
    "acquire_lease",
    "renew_or_release_lease",
    "claim_document_id",
    "release_document_id",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and what of the URL is ours."""

    url: str
    name: str
    """The URL without user and password, for messages."""
    lifetime: int | None
    """How many milliseconds a conversation lives after its last append."""
    prefix: str


def address_of(url: str) -> Address:
    """Our part of a URL and the driver's.

    Raises:
        InvalidSetting: ours cannot be meant.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    ttl, prefix = query.pop("ttl", None), query.pop("prefix", "")
    if ttl is not None and not (ttl.isdecimal() and 0 < int(ttl) < 1 << 40):
        raise InvalidSetting("ttl", ttl, "how many seconds a conversation lives after its last append, 1 or more")
    if set(prefix) & {"{", "}"}:
        raise InvalidSetting("prefix", prefix, "text without braces")
    server = parts.hostname or parts.path or "localhost"
    name = (
        f"{parts.scheme}://{server}" + (f":{parts.port}" if parts.port else "") + (parts.path if parts.hostname else "")
    )
    return Address(
        parts._replace(query=urlencode(query)).geturl(), name, None if ttl is None else int(ttl) * 1000, prefix
    )


@dataclass
class Engine:
    """What all handles on one server share."""

    address: Address
    places: dict[tuple[str, str], str] = field(default_factory=dict)
    """Tenant and id → recipient, as far as known. What is not there any more is found out when it is asked for."""
    known: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Tenant and id → the conversation as it was last seen; the scripts check whether it still is."""
    durable: bool | None = None
    """Whether what was acknowledged is on the server's disk; None where the server does not say."""
    _locks: "WeakValueDictionary[tuple[str, str], asyncio.Lock]" = field(default_factory=WeakValueDictionary)
    _loop: LoopThread = field(init=False)
    _client: "Redis | None" = None
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def __post_init__(self) -> None:
        self._loop = LoopThread(self.address.name)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something on our loop."""
        return await self._loop.call(self._guarded(work))

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with errors_of(self.address.name):
            return await work()

    def lock(self, tenant: str, conversation: str) -> asyncio.Lock:
        """Who appends from this process takes turns, so that they do not outrun each other's versions."""
        name = (tenant, conversation)
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def script(self, name: str, keys: Sequence[str], args: Sequence[Value]) -> list[Any]:
        """Carry out one of our scripts."""
        text, digest = _script(name)
        client = self.client
        try:
            reply: list[Any] = await self.send(client.evalsha(digest, len(keys), *keys, *args))
        except NoScriptError:
            reply = await self.send(client.eval(text, len(keys), *keys, *args))
        return reply

    async def send(self, command: Awaitable[Any]) -> Any:
        """Await a command of the client, when there is a connection for it."""
        async with self._slots:
            return await command

    @property
    def client(self) -> "Redis":
        if self._client is None:
            self._client = _client(self.address.url)
        return self._client

    def remember(self, tenant: str, conversation: str, recipient: str, state: Any = None) -> None:
        if len(self.places) > MOST_KNOWN:
            self.places.clear()
            self.known.clear()
        self.places[tenant, conversation] = recipient
        if state is not None:
            self.known[tenant, conversation] = state

    def forget(self, tenant: str, conversation: str) -> None:
        self.places.pop((tenant, conversation), None)
        self.known.pop((tenant, conversation), None)

    async def check(self) -> None:
        """Reach the server, and say so if it may lose what it acknowledges."""
        persistence = await self.send(self.client.info("persistence"))
        always = await self._setting("appendfsync")
        policy = await self._setting("maxmemory-policy")
        if not persistence.get("aof_enabled"):
            self.durable = False
        elif always is not None:
            self.durable = always == "always"
        if self.durable is False:
            _LOG.warning(
                "%s: acknowledged does not mean on the disk: a crash of the server loses what it took last;"
                " set appendonly yes and appendfsync always",
                self.address.name,
            )
        if policy is not None and policy != "noeviction":
            _LOG.warning(
                "%s: maxmemory-policy %s lets the server drop parts of a conversation; set noeviction",
                self.address.name,
                policy,
            )

    async def _setting(self, name: str) -> str | None:
        """A setting of the server, if we may see it."""
        try:
            found = await self.send(self.client.config_get(name))
        except ResponseError:
            return None
        value = {_text(key): _text(value) for key, value in found.items()}.get(name)
        return value or None

    async def persists_snapshots(self) -> bool:
        return bool(await self._setting("save"))

    async def close(self) -> None:
        """Let what was begun be finished, then hang up."""
        await self._loop.close(self._end())

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()


def _client(url: str) -> "Redis":
    try:
        return Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
        )
    except ValueError as problem:
        raise InvalidSetting(
            "store", urlsplit(url).scheme + "://…", f"a URL that redis-py takes ({problem})"
        ) from problem


@cache
def _script(name: str) -> tuple[str, str]:
    """A script and the digest under which the server knows it."""
    folder = files("minutebook.store.redis") / "scripts"
    text = (folder / f"{name}.lua").read_text("utf-8")
    if name not in _WITHOUT_PRELUDE:
        text = (folder / "common.lua").read_text("utf-8") + text
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
