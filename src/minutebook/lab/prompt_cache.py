"""What a provider charges for consecutive requests: prices, and the rules of its prompt cache.

Anthropic caches what a client marks, and writing costs extra; clients mark the end of each request, so that all of it is
written. OpenAI caches long prompts automatically, in steps of 128 tokens, and writing is free. Both forget a prefix that is
not used for some time.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from minutebook.errors import InvalidSetting
from minutebook.history.cache_cost import TYPICAL_PRICES
from minutebook.record.message import Provider
from minutebook.tokens.models import ModelTable, Prices, known_model_info


@dataclass(frozen=True, slots=True)
class CacheRules:
    """Rules of a provider's prompt cache. The defaults report every hit, also for short prompts."""

    minimum_tokens: int = 0
    """Shorter prefixes are not cached."""
    step_tokens: int = 1
    """Hits are rounded down to a multiple of this."""
    marks_needed: bool = True
    """If True, Anthropic's cache covers a request only up to its last `cache_control`."""


OPENAI_CACHE = CacheRules(minimum_tokens=1024, step_tokens=128)
ANTHROPIC_CACHE = CacheRules(minimum_tokens=1024)
_MINIMUMS: Final = {"opus-4-5": 4096, "opus-4-6": 4096, "haiku-4-5": 4096, "haiku": 2048}
"""Part of the name of an Anthropic model → the minimum of its cache. The first match counts; the others have 1,024."""
_FIVE_MINUTES: Final = 300.0


@dataclass(frozen=True, slots=True)
class Billing:
    """How the input of a model is charged.

    Raises:
        InvalidSetting: `prices.input` is missing or 0.
    """

    prices: Prices = TYPICAL_PRICES
    """A missing cache price equals the price of plain input."""
    rules: CacheRules = CacheRules()
    ttl_seconds: float | None = None
    """A prefix that was not used for longer is no longer in the cache. None: it stays, as it does for messages without times."""
    provider: Provider = "openai"
    """The format of the requests. Anthropic's merges neighbouring messages of one role, which changes the count a little."""
    model: str | None = None
    """The model with these prices, in US dollars per million tokens; None if the prices are only relative."""

    def __post_init__(self) -> None:
        if not self.prices.input:
            raise InvalidSetting("prices", self.prices, "prices with input above 0")

    @property
    def input_price(self) -> float:
        return self.prices.input or 1.0

    @property
    def read_price(self) -> float:
        return self.input_price if self.prices.cache_read is None else self.prices.cache_read

    @property
    def write_price(self) -> float:
        return self.input_price if self.prices.cache_write is None else self.prices.cache_write


TYPICAL_BILLING: Final = Billing()
"""Typical prices, relative to plain input, and a cache without a minimum and without a time limit."""


def billing_of(model: str | None, own: ModelTable | None = None) -> Billing:
    """The billing of a model; typical prices if it is None or its prices are unknown. `own` is your own table of models."""
    if model is None:
        return TYPICAL_BILLING
    info = known_model_info(model, own)
    if info is None or not info.prices.input:
        return TYPICAL_BILLING
    if "claude" in model or info.provider == "anthropic":
        minimum = next((tokens for part, tokens in _MINIMUMS.items() if part in model), ANTHROPIC_CACHE.minimum_tokens)
        return Billing(info.prices, CacheRules(minimum), _FIVE_MINUTES, "anthropic", model)
    rules = OPENAI_CACHE if info.provider in {"openai", "azure"} else CacheRules(OPENAI_CACHE.minimum_tokens)
    return Billing(info.prices, rules, _FIVE_MINUTES, model=model)


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One part of a prompt that is cached as a whole: a message, or neighbouring messages that a provider merges."""

    key: Hashable
    """Equal for equal items."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Charge:
    """The tokens of one request by price, and the cost of all."""

    tokens: int
    cached: int
    """Read from the cache."""
    written: int
    """Written to the cache."""
    cost: float
    """With a model's prices, in millionths of a US dollar; otherwise in tokens of plain input."""

    @property
    def fresh(self) -> int:
        """Tokens at the price of plain input."""
        return self.tokens - self.cached - self.written


@dataclass(slots=True)
class PromptCache:
    """The cache of one conversation. `send` charges a request and adds its prefixes to the cache."""

    billing: Billing = TYPICAL_BILLING
    _children: dict[tuple[int, Hashable], int] = field(default_factory=dict)
    """Number of a prefix and the key of the next item → the number of the longer prefix. The empty prefix is 0."""
    _used_at: list[float] = field(default_factory=lambda: [0.0])
    """Time of the last use of each prefix, in seconds."""

    def send(self, items: Sequence[PromptItem], at: float | None = None) -> Charge:
        """Charge one request. `at` is its time in seconds; without it, nothing in the cache expires."""
        time = self._used_at[0] if at is None else at
        children, used_at, ttl = self._children, self._used_at, self.billing.ttl_seconds
        tokens = shared = prefix = 0
        is_shared = True
        for item in items:
            step = (prefix, item.key)
            known = children.get(step)
            if known is None:
                known = children[step] = len(used_at)
                used_at.append(time)
                is_shared = False
            elif is_shared and ttl is not None and time - used_at[known] > ttl:
                is_shared = False
            used_at[known] = time
            prefix = known
            tokens += item.tokens
            if is_shared:
                shared += item.tokens
        used_at[0] = time
        return self._charge(tokens, shared)

    def _charge(self, tokens: int, shared: int) -> Charge:
        billing, rules = self.billing, self.billing.rules
        cached = shared // rules.step_tokens * rules.step_tokens if shared >= rules.minimum_tokens else 0
        written = tokens - cached if tokens >= rules.minimum_tokens else 0
        fresh = tokens - cached - written
        cost = billing.read_price * cached + billing.write_price * written + billing.input_price * fresh
        return Charge(tokens, cached, written, cost)
