"""The strategies that go by a name: ours, and those that you register."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from minutebook.compaction.hybrid import HybridStrategy
from minutebook.compaction.strategy import HistoryStrategy
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
"""A setting's name in configuration and in the agent language → the strategy's own name for it."""
_registered: dict[str, Callable[[], HistoryStrategy]] = {}


def register_strategy(name: str, make: Callable[[], HistoryStrategy]) -> None:
    """Let a strategy of your own be chosen by its name, in code, configuration and the agent language.

    Raises:
        InvalidSetting: there is one of that name.
    """
    if name in BUILTIN_STRATEGIES or name in _registered:
        there = "built in" if name in BUILTIN_STRATEGIES else "registered"
        raise InvalidSetting("name", name, f"another: a strategy of that name is {there} already")
    _registered[name] = make


def unregister_strategy(name: str) -> None:
    """Forget a strategy of your own; one that is not there is forgotten already."""
    _registered.pop(name, None)


def strategy_names() -> list[str]:
    """Every name that `strategy_named` knows."""
    return sorted({*BUILTIN_STRATEGIES, *_registered})


def strategy_named(name: str) -> HistoryStrategy:
    """The strategy of that name, at its defaults.

    Raises:
        UnknownName: there is none.
    """
    make = BUILTIN_STRATEGIES.get(name) or _registered.get(name)
    if make is None:
        raise UnknownName("strategy", name, strategy_names(), "register_strategy it")
    return make()


def strategy_with_settings(name: str, given: Mapping[str, Any]) -> tuple[HistoryStrategy, set[str]]:
    """The strategy of that name with settings by the names of `SETTING_FIELDS`, and which of them it has.

    Raises:
        UnknownName: there is none.
        InvalidSetting: a setting has a value that the strategy refuses.
    """
    strategy = strategy_named(name)
    if isinstance(strategy, HybridStrategy):
        nested, inside = with_settings(strategy.summarize, given)
        made, outside = with_settings(replace(strategy, summarize=nested), given)
        return made, inside | outside
    if isinstance(strategy, TurnStrategy) and given.get("keep_turns") is not None:
        strategy = replace(strategy, max_turns=max(strategy.max_turns, given["keep_turns"]))
    return with_settings(strategy, given)


def with_settings(strategy: Any, given: Mapping[str, Any]) -> tuple[Any, set[str]]:
    """A strategy with those of the settings that it has, and which these are."""
    own = {each.name for each in fields(strategy)} if is_dataclass(strategy) else set()
    taken = {name for name in given if SETTING_FIELDS[name] in own}
    return (replace(strategy, **{SETTING_FIELDS[name]: given[name] for name in taken}) if taken else strategy), taken
