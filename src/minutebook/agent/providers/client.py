"""What the adapters over an official provider client share: making the client, its options and its errors."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, TypedDict, Unpack
from weakref import WeakKeyDictionary

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.retry import Throttle, error_reason, from_status, from_transport, transport_errors
from minutebook.agent.telemetry import Telemetry
from minutebook.errors import MissingExtra
from minutebook.tokens import TokenCounter


class ClientOptions(TypedDict, total=False):
    """What every adapter over an official client takes besides the model; None or nothing is the default."""

    base_url: str | None
    api_key: str | None
    options: Mapping[str, Any] | None
    throttle: Throttle | None
    telemetry: Telemetry | None
    counter: TokenCounter | None


class ClientAdapter(ProviderAdapter):
    """An adapter over a provider's official async client. `name` is also the name of the package and of its extra."""

    client_class: ClassVar[str]
    error_code_key: ClassVar[str] = "code"
    """The key of an error body that holds its code."""
    stream_statuses: ClassVar[Mapping[str, int]] = {}
    """The status that an error code stands for where the error comes inside a stream; any other is a 500."""

    def __init__(self, model: str, *, client: Any, native_output: bool, **shared: Unpack[ClientOptions]) -> None:
        super().__init__(
            model,
            throttle=shared.get("throttle"),
            telemetry=shared.get("telemetry"),
            counter=shared.get("counter"),
        )
        try:
            self._package: Any = import_module(self.name)
        except ImportError as error:
            raise MissingExtra(self.name, self.name) from error
        self._client = client
        self._address = {"base_url": shared.get("base_url"), "api_key": shared.get("api_key")}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._options = dict(shared.get("options") or {})
        self._native_output = native_output

    @property
    def native_output(self) -> bool:
        return self._native_output

    def client(self) -> Any:
        """The client that was given, or one for this event loop: open connections belong to the loop that made them."""
        if self._client is not None:
            return self._client
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # The client must not retry: the throttle does, and knows how long we may wait.
            self._clients[loop] = getattr(self._package, self.client_class)(**self._address, max_retries=0)
        return self._clients[loop]

    async def aclose(self) -> None:
        """Close the client that was made in this event loop; one that was given is its owner's to close."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @contextmanager
    def client_errors(self) -> Iterator[None]:
        """Raise the client's errors as ours, at this one seam."""
        try:
            yield
        except (self._package.APIConnectionError, *transport_errors()) as error:
            raise from_transport(self.name, error) from error
        except self._package.APIError as error:
            problem, code = error_reason(error.body, error.message, code_key=self.error_code_key)
            status = getattr(error, "status_code", 200)
            if status == 200:  # in the middle of a stream there is no status any more
                raise from_status(self.name, self.stream_statuses.get(code or "", 500), problem, code=code) from error
            headers = dict(error.response.headers)
            raise from_status(self.name, status, problem, code=code, headers=headers) from error
