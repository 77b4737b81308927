"""The base class of adapters that use a provider's official client: creates the client, maps its errors."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, TypedDict, Unpack
from weakref import WeakKeyDictionary

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.retry import RetryPolicy, error_from_status, error_from_transport, error_reason, transport_errors
from minutebook.agent.telemetry import Telemetry
from minutebook.errors import MissingExtra
from minutebook.tokens import TokenCounter


class ClientOptions(TypedDict, total=False):
    """Optional arguments of every adapter that uses an official client. None means the default of the client or of the adapter."""

    base_url: str | None
    api_key: str | None
    options: Mapping[str, Any] | None
    """Fields to add to the body of each request, such as `temperature`."""
    retry_policy: RetryPolicy | None
    telemetry: Telemetry | None
    counter: TokenCounter | None


class ClientAdapter(ProviderAdapter):
    """Uses a provider's official async client. `name` is also the name of the package and of its extra."""

    client_class: ClassVar[str]
    """The name of the client's class in the package."""
    error_code_key: ClassVar[str] = "code"
    """The key under which the body of an error has its code."""
    stream_statuses: ClassVar[Mapping[str, int]] = {}
    """Error code → HTTP status for errors inside a stream, which have no status. Other codes are a 500."""

    def __init__(
        self, model: str, *, client: Any, native_output: bool, **client_options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(
            model,
            retry_policy=client_options.get("retry_policy"),
            telemetry=client_options.get("telemetry"),
            counter=client_options.get("counter"),
        )
        try:
            self._package: Any = import_module(self.name)
        except ImportError as error:
            raise MissingExtra(self.name, self.name) from error
        self._client = client
        self._client_arguments = {"base_url": client_options.get("base_url"), "api_key": client_options.get("api_key")}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
        self._options = dict(client_options.get("options") or {})
        self._native_output = native_output

    @property
    def native_output(self) -> bool:
        return self._native_output

    def client(self) -> Any:
        """The client passed to the adapter, or else one per event loop, because connections belong to their loop."""
        if self._client is not None:
            return self._client
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # The client must not retry: `retry_policy` does.
            self._clients[loop] = getattr(self._package, self.client_class)(**self._client_arguments, max_retries=0)
        return self._clients[loop]

    async def aclose(self) -> None:
        """Close the client that was created for this event loop. A client passed to the adapter is not closed."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @contextmanager
    def client_errors(self) -> Iterator[None]:
        """Translate the client's errors in this block to ours."""
        try:
            yield
        except (self._package.APIConnectionError, *transport_errors()) as error:
            raise error_from_transport(self.name, error) from error
        except self._package.APIError as error:
            problem, code = error_reason(error.body, error.message, code_key=self.error_code_key)
            status = getattr(error, "status_code", 200)
            if status == 200:  # the error came inside a stream, after the response had started
                raise error_from_status(
                    self.name, self.stream_statuses.get(code or "", 500), problem, code=code
                ) from error
            headers = dict(error.response.headers)
            raise error_from_status(self.name, status, problem, code=code, headers=headers) from error
