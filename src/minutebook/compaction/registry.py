"""Strategies by name: the built-in ones, and those registered by the application."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from minutebook.compaction.hybrid import HybridStrategy
from minutebook.compaction.strategy import HistoryStrategy, require_strategy
from minutebook.compaction.summarize import SummarizeStrategy
from minutebook.compaction.truncate import TruncateStrategy
from minutebook.compaction.turns import TurnStrategy
from minutebook.errors import InvalidSetting, UnknownName

BUILTIN_STRATEGIES: Final[dict[str, Callable[[], HistoryStrategy]]] = {
    "summarize": SummarizeStrategy,
    "truncate": TruncateStrategy,
    "turns": TurnStrategy,
    "hybrid": HybridStrategy,
}
SETTING_FIELDS: Final[Mapping[str, str]] = {
    "trigger": "threshold",
    "target": "target",
    "keep_turns": "keep_turns",
    "keep_files": "recent_files",
}
"""Name of a setting in configuration and in the agent language → the name of the strategy's field."""
_registered: dict[str, Callable[[], HistoryStrategy]] = {}


def register_strategy(name: str, factory: Callable[[], HistoryStrategy]) -> None:
    """Make your own strategy available by name in code, configuration and the agent language.

    Raises:
        InvalidSetting: the name is taken, or `factory` cannot be called.
    """
    if not callable(factory):
        raise InvalidSetting("factory", factory, "a strategy's class, or a function that returns a strategy")
    if name in BUILTIN_STRATEGIES:
        raise InvalidSetting("name", name, f"a name other than the built-in {', '.join(BUILTIN_STRATEGIES)}")
    if name in _registered:
        raise InvalidSetting("name", name, "a name that is not registered yet; call unregister_strategy first")
    _registered[name] = factory


def unregister_strategy(name: str) -> None:
    """Remove a registered strategy, if there is one of that name."""
    _registered.pop(name, None)


def strategy_names() -> list[str]:
    """All names that `strategy_named` accepts."""
    return sorted({*BUILTIN_STRATEGIES, *_registered})


def strategy_named(name: str) -> HistoryStrategy:
    """The strategy of that name, with default settings.

    Raises:
        UnknownName: there is no strategy of that name.
    """
    factory = BUILTIN_STRATEGIES.get(name) or _registered.get(name)
    if factory is None:
        raise UnknownName("strategy", name, strategy_names(), "register it with register_strategy")
    return factory()


def strategy_from(strategy: HistoryStrategy | str) -> HistoryStrategy:
    """The strategy for an argument that is a strategy or the name of one.

    Raises:
        UnknownName: there is no strategy of that name.
        InvalidSetting: the object is not a strategy.
    """
    return require_strategy(strategy_named(strategy) if isinstance(strategy, str) else strategy)


def strategy_with_settings(name: str, settings: Mapping[str, Any]) -> tuple[HistoryStrategy, set[str]]:
    """The strategy of that name with the settings that it supports, and the names of these settings.

    The names of the settings are those of `SETTING_FIELDS`.

    Raises:
        UnknownName: there is no such strategy.
        InvalidSetting: a setting is out of range.
    """
    strategy = strategy_named(name)
    if isinstance(strategy, HybridStrategy):
        summarize, summarize_settings = with_settings(strategy.summarize, settings)
        hybrid, hybrid_settings = with_settings(replace(strategy, summarize=summarize), settings)
        return hybrid, summarize_settings | hybrid_settings
    if isinstance(strategy, TurnStrategy) and settings.get("keep_turns") is not None:
        strategy = replace(strategy, max_turns=max(strategy.max_turns, settings["keep_turns"]))
    return with_settings(strategy, settings)


def with_settings(strategy: Any, settings: Mapping[str, Any]) -> tuple[Any, set[str]]:
    """The strategy with those settings that it has a field for, and their names."""
    field_names = {field.name for field in fields(strategy)} if is_dataclass(strategy) else set()
    supported = {name for name in settings if SETTING_FIELDS[name] in field_names}
    if not supported:
        return strategy, supported
    return replace(strategy, **{SETTING_FIELDS[name]: settings[name] for name in supported}), supported
