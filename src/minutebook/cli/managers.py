"""Managers by name, with options: `window:window_size=20,slack=10`, or `window:20` for the first option alone."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Final, get_type_hints

import minutebook
from minutebook.errors import InvalidSetting
from minutebook.history.protocol import HistoryManager

MANAGERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "active-tools": ("ActiveToolsManager", {}),
    "budget": ("TokenBudgetManager", {}),
    "clear": ("ToolResultClearer", {}),
    "passthrough": ("PassthroughManager", {}),
    "strip": ("ToolStripper", {}),
    "truncate": ("ToolResultTruncator", {}),
    "turns": ("TurnWindowManager", {"turns": 5}),
    "window": ("SlidingWindowManager", {"window_size": 40}),
}
"""Name → the manager's public name, and what is taken where an option that it needs is not given."""

NOT_ON_A_LINE: Final = frozenset({"counter"})
"""Settings that cannot be written as text."""


def manager_from(texts: Sequence[str], max_tokens: int | None) -> HistoryManager:
    """The manager that these texts name, several composed in their order.

    None at all is the budget manager if there is a budget, else the passthrough.

    Raises:
        InvalidSetting: there is no such manager or no such option, or its value cannot be meant.
    """
    if not texts:
        texts = ("passthrough",) if max_tokens is None else ("budget",)
    made = [_manager(text, max_tokens) for text in texts]
    return made[0] if len(made) == 1 else minutebook.ComposedManager(tuple(made))


def _manager(text: str, max_tokens: int | None) -> HistoryManager:
    name, _, options = text.partition(":")
    if name not in MANAGERS:
        raise InvalidSetting("--manager", name, f"one of {', '.join(MANAGERS)}{_hint(name, MANAGERS)}")
    public, settings = MANAGERS[name]
    kind = getattr(minutebook, public)
    given = dict(settings) | _options(kind, name, options)
    if name == "budget" and "max_tokens" not in given:
        if max_tokens is None:
            raise InvalidSetting("--manager", text, "it a budget: --max-tokens 32000, or budget:32000")
        given["max_tokens"] = max_tokens
    if name == "active-tools" and "active" not in given:
        raise InvalidSetting("--manager", text, "it the tools on offer: active-tools:read_file+search")
    made: HistoryManager = kind(**given)
    return made


def _options(kind: type, manager: str, text: str) -> dict[str, Any]:
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind) if field.name not in NOT_ON_A_LINE]
    given: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if not equals and not given and known:
            key, value = known[0], part
        if key not in known:
            choice = f"one of {', '.join(known)}{_hint(key, known)}" if known else "none; it has no options"
            raise InvalidSetting(f"--manager {manager}: option", key, choice)
        given[key] = _value(manager, key, value, hints[key])
    return given


def _value(manager: str, key: str, text: str, kind: Any) -> Any:
    where = f"--manager {manager}: {key}"
    try:
        if kind is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if kind in {int, float}:
            return kind(text.replace("_", ""))
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise InvalidSetting(where, text, expected) from None
    return frozenset(filter(None, text.split("+"))) if key == "active" else text


def _hint(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
