"""A real server on this machine that speaks as OpenAI and Anthropic do, for tests with the official clients.

    with LoopbackProvider(ScriptedModel("Hello.")) as provider:
        client = openai.OpenAI(base_url=provider.base_url, api_key="any")
        client.chat.completions.create(model="any", messages=[{"role": "user", "content": "Hi"}])
        provider.requests[0].messages

It plays a script, and is as strict as the providers: it answers 400 to what they answer 400 to, counts tokens, enforces a
context window, knows which beginning of a prompt it has seen before, limits rates and cuts connections.
"""

import time
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import Self

from minutebook.errors import InvalidSetting
from minutebook.testing.provider_desk import Desk, ModelFor
from minutebook.testing.provider_http import LoopbackServer
from minutebook.testing.provider_limit import RateLimit, Turnstile
from minutebook.testing.provider_meter import CacheRules, Meter
from minutebook.testing.provider_thinking import Thoughts
from minutebook.testing.received import ReceivedRequest
from minutebook.testing.script import ScriptedModel
from minutebook.tokens import TokenCounter, counter_for


def nobody_waits(seconds: float) -> None:
    """What `slow` steps do unless the provider is given a `wait`."""


class LoopbackProvider:
    """Serves a scripted model over HTTP from the moment it is made until it is closed.

    One script is played to all conversations in the order in which their requests arrive; a function of the request
    gives each conversation its own, and must return the same script for the same conversation. A `LookupError` from it
    is a model that does not exist. One that runs for long should `remember` only so many requests.

    Raises:
        InvalidSetting: an option cannot be meant.
    """

    def __init__(
        self,
        model: ScriptedModel | ModelFor,
        *,
        max_context_tokens: int | None = None,
        strict: bool = True,
        counter: TokenCounter | None = None,
        rate_limit: RateLimit | int | None = None,
        api_key: str | None = None,
        cache: CacheRules | None = None,
        preserved_thinking: bool = False,
        models: tuple[str, ...] = ("scripted",),
        remember: int | None = None,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = nobody_waits,
    ) -> None:
        if max_context_tokens is not None and max_context_tokens < 1:
            raise InvalidSetting("max_context_tokens", max_context_tokens, "a number above 0, or None for no limit")
        if not isinstance(model, ScriptedModel) and not callable(model):
            raise InvalidSetting("model", model, "a ScriptedModel, or a function from a request to one")
        limit = RateLimit(rate_limit) if isinstance(rate_limit, int) else rate_limit
        self._desk = Desk(
            (lambda _: model) if isinstance(model, ScriptedModel) else model,
            meter=Meter(counter or counter_for("gpt-4o"), cache or CacheRules()),
            turnstile=Turnstile(limit, clock),
            thoughts=Thoughts(bound_to_prompt=preserved_thinking),
            clock=clock,
            strict=strict,
            max_context_tokens=max_context_tokens,
            api_key=api_key,
            models=models,
            remember=remember,
        )
        self._lock = Lock()
        self._closed = False
        self._server = LoopbackServer(self._desk, wait)
        self.anthropic_url = f"http://127.0.0.1:{self._server.port}"
        """The `base_url` of Anthropic's client, which adds `/v1` itself."""
        self.base_url = f"{self.anthropic_url}/v1"
        """The `base_url` of OpenAI's client."""

    @property
    def requests(self) -> list[ReceivedRequest]:
        """Every request that had a body, in the order of arrival, with what became of it; the last `remember` of them."""
        return self._desk.received

    @property
    def problems(self) -> list[str]:
        """Why requests were refused or could not be answered; an empty list is what most tests want to see."""
        return [request.problem for request in self.requests if request.problem is not None]

    def close(self) -> None:
        """Hang up on all clients and free the port. Closing twice is closing once."""
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r}, {len(self.requests)} requests)"
