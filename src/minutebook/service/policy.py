"""Policies by name: what chooses among the messages, what folds old ones, and how much may be sent.

A name is `retention`, one of the configuration's own policies, a strategy or a manager. Summaries are made by policies
that ask for a strategy, and by no other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Final, get_type_hints

from minutebook.compaction.manager import CompactionManager, KeepFold
from minutebook.compaction.registry import strategy_names
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.dsl.histories import FIELDS, strategy_for
from minutebook.dsl.spec import CompactionSpec, HistorySpec
from minutebook.errors import InvalidSetting, UnknownStrategy
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.compose import ComposedManager, PassthroughManager
from minutebook.history.observe import strategy_name
from minutebook.history.protocol import EventBus, HistoryManager
from minutebook.history.results import ToolResultClearer, ToolResultTruncator
from minutebook.history.tools import ActiveToolsManager, ToolStripper
from minutebook.history.window import SlidingWindowManager, TurnWindowManager
from minutebook.record.fold import Fold
from minutebook.service.config import DEFAULT_POLICY, ManagerConfig, Mode, PolicyConfig, ServiceConfig
from minutebook.service.retention import Report, RetentionPolicy
from minutebook.tokens.models import ModelInfo

MANAGERS: Final[Mapping[str, type]] = {
    "active_tools": ActiveToolsManager,
    "passthrough": PassthroughManager,
    "sliding_window": SlidingWindowManager,
    "token_budget": TokenBudgetManager,
    "tool_result_clearer": ToolResultClearer,
    "tool_result_truncator": ToolResultTruncator,
    "tool_stripper": ToolStripper,
    "turn_window": TurnWindowManager,
}
"""Short name → manager: `sliding_window`, `token_budget`, …"""

_NEEDED: Final[Mapping[str, Mapping[str, Any]]] = {
    "sliding_window": {"window_size": 40},
    "turn_window": {"turns": 5},
}
"""What is taken where a manager is named without what it needs."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How the conversations of a request are kept short."""

    name: str
    manager: HistoryManager
    """Pure: messages in, messages out."""
    strategy: HistoryStrategy | None = None
    max_tokens: int | None = None
    """The most tokens of messages that a call may be sent, where the policy says it."""
    mode: Mode = "on"
    """`shadow` where nothing is to be pruned yet."""
    summary_model: str | None = None
    """Who writes its summaries; None for the conversation's own model."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it was made from, for `describe`."""
    _compaction: Callable[[Sequence[Fold], KeepFold | None, EventBus | None], CompactionManager] | None = None
    _described: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What `describe` answers, once it was asked: every request writes it down."""

    def compaction(
        self, folds: Sequence[Fold] = (), keep: KeepFold | None = None, *, bus: EventBus | None = None
    ) -> CompactionManager | None:
        """What folds old parts of one conversation; None where nothing is folded."""
        return None if self._compaction is None else self._compaction(folds, keep, bus)

    def describe(self) -> dict[str, Any]:
        """The policy as JSON: its name, its parts and their settings. Equal policies are described alike."""
        if not self._described:
            self._described.update(self._description())
        return dict(self._described)

    def _description(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "mode": self.mode,
            "strategy": None if self.strategy is None else {"name": self.strategy.name, **_settings(self.strategy)},
            "manager": _described(self.manager),
            "max_tokens": self.max_tokens,
            "summary_model": self.summary_model,
            **self.settings,
        }


def policy_names(config: ServiceConfig) -> list[str]:
    """Every name that `policy_named` knows."""
    return sorted({DEFAULT_POLICY, *config.policies, *strategy_names(), *MANAGERS})


def policy_named(
    name: str,
    config: ServiceConfig,
    *,
    model: ModelInfo,
    summarizer: Summarizer | None = None,
    report: Report | None = None,
) -> Policy:
    """The policy of that name. `report` is told what retention decided, in place of the log.

    Raises:
        InvalidSetting: there is none of that name, or it cannot be set so.
        UnknownStrategy: it asks for a strategy that nobody registered.
    """
    if name not in policy_names(config):
        raise _unknown(name, config)
    retention = RetentionPolicy(config.conversation.effective_retention, report=report)
    if not config.conversation.include_history:
        return Policy(name, TurnWindowManager(1), settings={"include_history": False})
    if name == DEFAULT_POLICY:
        return Policy(
            name, retention.manager(), mode=retention.config.mode, settings={"retention": asdict(retention.config)}
        )
    entry = config.policies.get(name) or _plain(name)
    strategy = None if entry.strategy is None else strategy_of(entry)
    return Policy(
        name,
        _manager(entry, model, retention),
        strategy,
        entry.max_tokens,
        retention.config.mode if any(each.name == DEFAULT_POLICY for each in entry.manager) else "on",
        entry.model,
        _compaction=None if strategy is None else _compactor(strategy, model, summarizer),
    )


def summary_model(name: str, config: ServiceConfig) -> str | None:
    """The model that a policy wants its summaries written by, for whoever makes the summarizer."""
    entry = config.policies.get(name)
    return None if entry is None else entry.model


def strategy_of(entry: PolicyConfig) -> HistoryStrategy:
    """The strategy of a policy, set as the policy says: the same that the agent language makes of the same words.

    Raises:
        UnknownStrategy: nobody registered it.
        InvalidSetting: it does not know a setting, or cannot be set so.
    """
    given = {name: getattr(entry, name) for name in FIELDS if getattr(entry, name) is not None}
    strategy, taken = strategy_for(HistorySpec(strategy=entry.strategy), CompactionSpec(**given))
    for name, value in given.items():
        if name not in taken:
            raise InvalidSetting(name, value, f"it to another strategy: {entry.strategy} has no such setting")
    return strategy


def problems_of(config: ServiceConfig) -> Iterator[tuple[str, InvalidSetting | UnknownStrategy]]:
    """What is wrong with the policies, each with the key it is wrong at: names, and settings that cannot be meant."""
    model = ModelInfo("any")
    for name, entry in config.policies.items():
        try:
            if entry.strategy is not None:
                strategy_of(entry)
        except UnknownStrategy as error:
            yield f"policies.{name}.strategy", error
        except InvalidSetting as error:
            said = {inner: outer for outer, inner in FIELDS.items()}.get(error.name, error.name)
            yield f"policies.{name}.{said}", InvalidSetting(said, error.value, error.expected)
        for at, each in enumerate(entry.manager):
            try:
                if each.name != DEFAULT_POLICY:
                    manager_of(each, entry.max_tokens, model)
            except InvalidSetting as error:
                yield f"policies.{name}.manager{f'[{at}]' if len(entry.manager) > 1 else ''}", error
    if config.conversation.policy not in policy_names(config):
        yield "conversation.policy", _unknown(config.conversation.policy, config)


def _unknown(name: str, config: ServiceConfig) -> InvalidSetting:
    known = policy_names(config)
    return InvalidSetting("policy", name, f"one of {', '.join(known)}{_hint(name, known)}")


def _plain(name: str) -> PolicyConfig:
    """A strategy or a manager as a policy, at its defaults. Where both go by one name, it is the strategy."""
    return PolicyConfig(strategy=name) if name in strategy_names() else PolicyConfig(manager=(ManagerConfig(name),))


def _manager(entry: PolicyConfig, model: ModelInfo, retention: RetentionPolicy) -> HistoryManager:
    made = [
        retention.manager() if each.name == DEFAULT_POLICY else manager_of(each, entry.max_tokens, model)
        for each in entry.manager
    ]
    if not made and entry.strategy is None:
        made = [manager_of(ManagerConfig("token_budget"), entry.max_tokens, model)]
    if len(made) == 1:
        return made[0]
    return ComposedManager(tuple(made)) if made else PassthroughManager()


def manager_of(config: ManagerConfig, max_tokens: int | None, model: ModelInfo) -> HistoryManager:
    """The manager of that name with these settings; a budget is the policy's, else what the model reads.

    Raises:
        InvalidSetting: there is no such manager or no such setting, or its value cannot be meant.
    """
    if config.name not in MANAGERS:
        known = [DEFAULT_POLICY, *MANAGERS]
        raise InvalidSetting("manager", config.name, f"one of {', '.join(known)}{_hint(config.name, known)}")
    kind = MANAGERS[config.name]
    given = dict(_NEEDED.get(config.name, {}))
    hints = get_type_hints(kind)
    known = [each.name for each in fields(kind) if each.name != "counter"]
    for name, value in config.settings.items():
        if name not in known:
            expected = f"one of {', '.join(known)}{_hint(name, known)}" if known else "none: it has no settings"
            raise InvalidSetting(f"a setting of {config.name}", name, expected)
        given[name] = _typed(f"{name} of {config.name}", value, hints[name], name)
    if kind is TokenBudgetManager:
        given.setdefault("max_tokens", model.room() if max_tokens is None else max_tokens)
    if kind is ActiveToolsManager and "active" not in given:
        raise InvalidSetting("active_tools", "without active", "it the names of the tools on offer: active: [search]")
    made: HistoryManager = kind(**given)
    return made


def _typed(name: str, value: Any, kind: Any, setting: str) -> Any:
    if setting == "active":
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidSetting(name, value, "a list of names")
        return frozenset(value)
    if kind is float and type(value) is int:
        return float(value)
    if kind in {int, float, bool, str} and type(value) is not kind:
        expected = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind]
        raise InvalidSetting(name, value, expected)
    return value


def _compactor(
    strategy: HistoryStrategy, model: ModelInfo, summarizer: Summarizer | None
) -> Callable[[Sequence[Fold], KeepFold | None, EventBus | None], CompactionManager]:
    def make(folds: Sequence[Fold], keep: KeepFold | None, bus: EventBus | None) -> CompactionManager:
        return CompactionManager(strategy, model, summarizer, folds=folds, keep=keep, bus=bus)

    return make


def _described(manager: HistoryManager) -> Any:
    if isinstance(manager, ComposedManager):
        return [_described(each) for each in manager.managers]
    return {"name": strategy_name(manager), **_settings(manager)}


def _settings(part: object) -> dict[str, Any]:
    """The settings of a manager or strategy that JSON can say."""
    if not is_dataclass(part):
        return {}
    found: dict[str, Any] = {}
    for each in fields(part):
        value = getattr(part, each.name)
        if isinstance(value, frozenset):
            value = sorted(value)
        if is_dataclass(value):
            value = _settings(value)
        if isinstance(value, (str, int, float, bool, list, dict, type(None))):
            found[each.name] = value
    return found


def _hint(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
