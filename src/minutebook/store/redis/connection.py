"""The connection to a Redis server: one client on its own event loop, for callers in any thread or event loop.

A command is sent once. If the connection breaks, it is not known whether the server has run the command, so the caller
must decide whether to retry; an append has an idempotency key for that.
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

from minutebook.errors import InvalidSetting, StoreDamaged, StoreFull, StoreReadOnly, StoreRejected, StoreUnavailable
from minutebook.store.encryption import marker
from minutebook.store.loop_thread import LoopThread
from minutebook.store.process_fork import ForkAware
from minutebook.store.redis.keys import all_tenants_pattern
from minutebook.store.redis.rows import HeaderRow

T = TypeVar("T")
Value = str | int | bytes

SCAN_COUNT: Final = 1_000
"""Number of keys that the server examines in one step of a scan."""
MAX_CONCURRENT_COMMANDS: Final = 32
CONNECT_SECONDS: Final = 5
RESPONSE_SECONDS: Final = 30
MAX_CACHED: Final = 50_000
"""Maximum number of conversations in the caches of an engine."""
FORMAT: Final = "1"
"""The version of the keys and of what they contain. A later one is recorded in the settings as `format`; the first is not."""
_LOG: Final = logging.getLogger("minutebook.store")
_SCRIPTS_WITHOUT_COMMON: Final = {
    "acquire_lease",
    "claim_conversation_id",
    "claim_document_id",
    "erase",
    "find_claim",
    "release_document_ids",
    "remove_ids",
    "renew_or_release_lease",
    "void_claim",
}
"""The scripts that do not use `common.lua`: they do not work on the keys of one conversation."""
_TRANSIENT_ERRORS: Final = (
    *(exceptions.ConnectionError, exceptions.TimeoutError, OSError),
    *(exceptions.ClusterDownError, exceptions.TryAgainError, exceptions.AskError),
)
_REFUSED_ERRORS: Final = (exceptions.AuthenticationError, exceptions.AuthorizationError)
"""Connection errors that a retry does not fix."""
_ERRORS_BY_CODE: Final[tuple[tuple[str, type[StoreUnavailable]], ...]] = (
    ("OOM", StoreFull),
    ("READONLY", StoreReadOnly),
    ("MISCONF", StoreReadOnly),
    ("WRONGTYPE", StoreDamaged),
    *((code, StoreUnavailable) for code in ("LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "BUSY ")),
)
"""An error code in the server's message → the class of the error to raise."""


def store_error(error: exceptions.RedisError | OSError, store: str) -> StoreUnavailable:
    """The `StoreUnavailable` for a driver's error."""
    problem = str(error) or type(error).__name__
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreFull(store, problem)
    if isinstance(error, exceptions.ReadOnlyError):
        return StoreReadOnly(store, problem)
    for code, error_class in _ERRORS_BY_CODE:
        if isinstance(error, exceptions.ResponseError) and code in problem:
            return error_class(store, problem)
    is_transient = isinstance(error, _TRANSIENT_ERRORS) and not isinstance(error, _REFUSED_ERRORS)
    return (StoreUnavailable if is_transient else StoreRejected)(store, problem)


@contextmanager
def map_errors(store: str) -> Iterator[None]:
    """Convert the driver's errors that this block raises to `StoreUnavailable`."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        if isinstance(error, StoreUnavailable):
            raise
        raise store_error(error, store) from error


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The parts of a store URL."""

    url: str
    """The URL for the driver, without the options `ttl` and `prefix`."""
    name: str
    """The URL without user and password, for messages."""
    lifetime: int | None
    """Milliseconds after the last append until a conversation expires; None if conversations do not expire."""
    prefix: str
    """The start of the name of every key."""


def parse_url(url: str) -> RedisAddress:
    """Split a store URL into the driver's URL and the options `ttl` and `prefix`.

    Raises:
        InvalidSetting: an option, the port or the number of the database is invalid.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        expected = f"a Redis URL, such as redis://host:6379/0; {error}"
        raise InvalidSetting("store", f"{url.partition(':')[0]}://…", expected) from None
    query = dict(parse_qsl(parts.query))
    ttl, prefix = query.pop("ttl", None), query.pop("prefix", "")
    if ttl is not None and not (ttl.isdecimal() and 0 < int(ttl) < 1 << 40):
        raise InvalidSetting(
            "ttl", ttl, "1 or more seconds, the time after the last append until a conversation expires"
        )
    if set(prefix) & {"{", "}"}:
        raise InvalidSetting("prefix", prefix, "text without braces")
    driver_url = parts._replace(query=urlencode(query)).geturl()
    _require_driver_options(driver_url)
    server = parts.hostname or parts.path or "localhost"
    name = (
        f"{parts.scheme}://{server}" + (f":{parts.port}" if parts.port else "") + (parts.path if parts.hostname else "")
    )
    return RedisAddress(driver_url, name, None if ttl is None else int(ttl) * 1000, prefix)


def _require_driver_options(url: str) -> None:
    """Raise `InvalidSetting` for what the driver would refuse at the first command, or ignore.

    The error does not quote a value: it may be a part of the password.
    """
    parts = urlsplit(url)
    database = parts.path.strip("/")
    problem = "the database is not a number" if database and not database.isdecimal() else ""
    try:
        _client(url).connection_pool.make_connection()  # type: ignore[no-untyped-call]  # does not connect
    except TypeError as error:
        problem = f"there is no option {str(error).rpartition(' ')[2]}"
    except (ValueError, AttributeError, exceptions.RedisError):
        problem = problem or "the port or an option has an invalid value"
    if problem:
        expected = (
            f"a Redis URL: {parts.scheme}://user:password@host:6379/0, with options such as ttl and prefix; {problem}"
        )
        raise InvalidSetting("store", f"{parts.scheme}://…", expected)


@dataclass(eq=False)
class RedisEngine(ForkAware):
    """The state that all handles on one server share: the client, its event loop, and caches."""

    address: RedisAddress
    recipients: dict[tuple[str, str], str] = field(default_factory=dict)
    """A cache: (tenant, conversation) → recipient. An entry may be stale; the scripts report a missing conversation."""
    rows: dict[tuple[str, str], HeaderRow] = field(default_factory=dict)
    """A cache: (tenant, conversation) → its last known header. The scripts check whether it is current."""
    durable: bool | None = None
    """Whether acknowledged writes are on the server's disk; None if the server does not say."""
    key_ids: Sequence[str] = ()
    """The master keys of encrypted conversations, the current one first."""
    _are_settings_checked: bool = False
    _locks: "WeakValueDictionary[tuple[str, str], asyncio.Lock]" = field(default_factory=WeakValueDictionary)
    _loop: LoopThread = field(init=False)
    _client: "Redis | None" = None
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_COMMANDS))

    def __post_init__(self) -> None:
        self._loop = LoopThread(self.address.name)
        super().__init__()

    def after_fork_in_child(self) -> None:
        self._client, self._locks = None, WeakValueDictionary()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_COMMANDS)
        if not self._loop.is_closed:
            self._loop = LoopThread(self.address.name)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function on the engine's loop. Errors of the driver are converted to `StoreUnavailable`."""
        return await self._loop.call(self._run(work))

    async def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with map_errors(self.address.name):
            if not self._are_settings_checked:
                await self._check_settings()
                self._are_settings_checked = True
            return await work()

    async def _check_settings(self) -> None:
        """Compare the recorded master key with `key_ids`; if there are no conversations, record the current one.

        Raises:
            StoreRejected: the data is of a newer version.
            MissingKey: the conversations are encrypted, and no key was given.
            WrongKey: they are encrypted with another key.
            InvalidSetting: a key was given, and there are conversations that are not encrypted.
        """
        settings = await self._read_settings()
        data_format = settings.get("format", FORMAT)
        if data_format != FORMAT:
            problem = f"has data of format {data_format}, but this version supports {FORMAT}; upgrade minutebook"
            raise StoreRejected(self.address.name, problem)
        recorded_id = settings.get(marker.SETTING)
        is_new = recorded_id is None and bool(self.key_ids) and not await self._has_conversations()
        new_id = marker.value_to_record(self.address.name, recorded_id, self.key_ids, is_new=is_new)
        if new_id is not None:
            await self.send(self.client.hsetnx(self.settings_key, marker.SETTING, new_id))
            recorded_id = (await self._read_settings()).get(marker.SETTING)
            marker.value_to_record(self.address.name, recorded_id, self.key_ids, is_new=False)

    async def _has_conversations(self) -> bool:
        """Whether any tenant has a conversation. Reads the names of all keys if there is none."""
        pattern, cursor = all_tenants_pattern(self.address.prefix), 0
        while True:
            cursor, keys = await self.send(self.client.scan(cursor, match=pattern, count=SCAN_COUNT))
            if keys or not cursor:
                return bool(keys)

    async def _read_settings(self) -> dict[str, str]:
        return {
            _text(name): _text(value)
            for name, value in (await self.send(self.client.hgetall(self.settings_key))).items()
        }

    @property
    def settings_key(self) -> str:
        """The key of a hash with the settings that all processes share."""
        return f"{self.address.prefix}minutebook:settings"

    def append_lock(self, tenant: str, conversation: str) -> asyncio.Lock:
        """The lock under which this process appends to a conversation, so that its appends do not conflict."""
        key = (tenant, conversation)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    async def run_script(self, name: str, keys: Sequence[str], args: Sequence[Value]) -> list[Any]:
        """Run a script of the folder `scripts`. The first item of its reply says what happened, such as `b"done"`."""
        text, digest = _script(name)
        client = self.client
        try:
            reply: list[Any] = await self.send(client.evalsha(digest, len(keys), *keys, *args))
        except NoScriptError:
            reply = await self.send(client.eval(text, len(keys), *keys, *args))
        return reply

    async def send(self, command: Awaitable[Any]) -> Any:
        """Await a command of the client as soon as fewer than `MAX_CONCURRENT_COMMANDS` are running."""
        async with self._slots:
            return await command

    @property
    def client(self) -> "Redis":
        if self._client is None:
            self._client = _client(self.address.url)
        return self._client

    def add_to_cache(self, tenant: str, conversation: str, recipient: str, row: HeaderRow | None = None) -> None:
        if len(self.recipients) > MAX_CACHED:
            self.recipients.clear()
            self.rows.clear()
        self.recipients[tenant, conversation] = recipient
        if row is not None:
            self.rows[tenant, conversation] = row

    def remove_from_cache(self, tenant: str, conversation: str) -> None:
        self.recipients.pop((tenant, conversation), None)
        self.rows.pop((tenant, conversation), None)

    async def check(self) -> None:
        """Connect to the server, and log a warning if it may lose acknowledged writes."""
        persistence = await self.send(self.client.info("persistence"))
        fsync_policy = await self._server_setting("appendfsync")
        eviction_policy = await self._server_setting("maxmemory-policy")
        if not persistence.get("aof_enabled"):
            self.durable = False
        elif fsync_policy is not None:
            self.durable = fsync_policy == "always"
        if self.durable is False:
            _LOG.warning(
                "%s: acknowledged writes may not be on the server's disk, and a crash of the server loses the last ones;"
                " set appendonly yes and appendfsync always",
                self.address.name,
            )
        if eviction_policy is not None and eviction_policy != "noeviction":
            _LOG.warning(
                "%s: with maxmemory-policy %s the server may evict parts of a conversation; set noeviction",
                self.address.name,
                eviction_policy,
            )

    async def _server_setting(self, name: str) -> str | None:
        """A setting of the server; None if the user may not read it."""
        try:
            settings = await self.send(self.client.config_get(name))
        except ResponseError:
            return None
        return {_text(key): _text(value) for key, value in settings.items()}.get(name) or None

    async def has_snapshots(self) -> bool:
        return bool(await self._server_setting("save"))

    async def close(self) -> None:
        """Finish running commands and close the connections."""
        await self._loop.close(self._close())

    async def _close(self) -> None:
        other_tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*other_tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()


def _client(url: str) -> "Redis":
    return Redis.from_url(
        url,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=RESPONSE_SECONDS,
    )


@cache
def _script(name: str) -> tuple[str, str]:
    """The text of a script and its SHA-1 digest, by which the server caches it."""
    folder = files("minutebook.store.redis") / "scripts"
    text = (folder / f"{name}.lua").read_text("utf-8")
    if name not in _SCRIPTS_WITHOUT_COMMON:
        text = (folder / "common.lua").read_text("utf-8") + text
    return text, sha1(text.encode(), usedforsecurity=False).hexdigest()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
