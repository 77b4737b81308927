"""The strategies that go by a name: ours, and those that you register."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from minutebook.compaction.hybrid import HybridStrategy
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarize import SummarizeStrategy
from minutebook.compaction.truncate import TruncateStrategy
from minutebook.compaction.turns import TurnStrategy
from minutebook.errors import DuplicateName, UnknownStrategy

BUILTIN_STRATEGIES: Final[dict[str, Callable[[], HistoryStrategy]]] = {
    "summarize": SummarizeStrategy,
    "truncate": TruncateStrategy,
    "turns": TurnStrategy,
    "hybrid": HybridStrategy,
}
_registered: dict[str, Callable[[], HistoryStrategy]] = {}


def register_strategy(name: str, make: Callable[[], HistoryStrategy]) -> None:
    """Let a strategy of your own be chosen by its name, in code, configuration and the agent language.

    Raises:
        DuplicateName: there is one of that name.
    """
    if name in BUILTIN_STRATEGIES or name in _registered:
        raise DuplicateName("strategy", name, ["built in" if name in BUILTIN_STRATEGIES else "registered"])
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
        UnknownStrategy: there is none.
    """
    make = BUILTIN_STRATEGIES.get(name) or _registered.get(name)
    if make is None:
        known = strategy_names()
        similar = get_close_matches(name, known, n=1)
        raise UnknownStrategy(name, known, similar[0] if similar else None)
    return make()
