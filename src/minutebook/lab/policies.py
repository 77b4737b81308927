"""Policies as the lab takes them: names with settings, managers, functions, configurations and Python files."""

import re
import runpy
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from minutebook.compaction.registry import strategy_names
from minutebook.conversation.config import ConversationConfig, PolicyConfig
from minutebook.conversation.policy import Policy, PolicySettings, manager_from_texts, policy_named
from minutebook.errors import InvalidSetting, MinutebookError, UnreadableInput
from minutebook.history.compose import name_from_class
from minutebook.history.protocol import HistoryManager
from minutebook.lab.replay import FULL, MakeManager, Peer, Policies
from minutebook.tokens.models import ModelInfo

PolicySpec: TypeAlias = str | HistoryManager | MakeManager | None
"""A name with settings such as `token_budget:target=0.3`, a manager, a function of the budget; None for the full history."""
BUDGET_POLICY: Final = "token_budget"
"""The recommended policy."""
BUDGET_POLICIES: Final = (BUDGET_POLICY, f"{BUDGET_POLICY}:preset=economy", f"{BUDGET_POLICY}:preset=quality")
"""The recommended policy with each preset."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
"""Part of the `repr` of an object that differs in every process."""
_SET: Final = re.compile(r"\{([^{}:]*)\}")
"""The `repr` of a set. The order of its items differs in every process."""
FILE_OBJECT: Final = "POLICIES"
"""The name that a Python file with policies defines, unless `FILE.py:NAME` names another."""


@dataclass(frozen=True)
class CommandLineSettings:
    """The configuration of policies that are not in a file."""

    conversation: ConversationConfig = field(default_factory=ConversationConfig)
    policies: Mapping[str, PolicyConfig] = field(default_factory=dict)


def policies_of(policy: PolicySpec | Mapping[str, PolicySpec], budget: int) -> Policies:
    """The policies by name, the full history first. Names and settings are checked before anything is replayed."""
    specs = policy if isinstance(policy, Mapping) else {_name(policy): policy}
    if specs.get(FULL) is not None:
        raise InvalidSetting("policy", FULL, "another name; this one is the history that the others are compared with")
    return {FULL: None, **{name: _maker(spec, budget) for name, spec in specs.items() if spec is not None}}


def _name(policy: PolicySpec) -> str:
    if policy is None or isinstance(policy, str):
        return policy or FULL
    return policy.__name__ if hasattr(policy, "__name__") else name_from_class(policy)


def _maker(spec: PolicySpec, budget: int) -> MakeManager:
    if isinstance(spec, str):
        named_policy(spec, budget)
        return partial(named_policy, spec)
    if isinstance(spec, type) or not (hasattr(spec, "curate") or isinstance(spec, Peer)):
        if not callable(spec):
            expected = "the name of a policy, a history manager, or a function that takes the budget and returns one"
            raise InvalidSetting("policy", spec, expected)
        return spec
    return partial(_constant, spec)


def _constant(manager: Any, _budget: int) -> Any:
    return manager


def named_policy(text: str, budget: int) -> HistoryManager | Policy:
    """The strategy or manager that a text such as `sliding_window:40` describes, with the budget as its limit.

    Raises:
        InvalidSetting: there is no such manager, or a setting is invalid.
    """
    if text in strategy_names():
        return policy_named(text, CommandLineSettings(), model=_model(budget), max_tokens=budget)
    return manager_from_texts([text], budget)


def configured_policies(config: PolicySettings, budget: int) -> dict[str, MakeManager]:
    """The policies of a service's configuration, by name. The budget is that of a policy that sets none."""
    makers: dict[str, MakeManager] = {name: partial(_configured_policy, config, name) for name in config.policies}
    for make in makers.values():
        make(budget)
    return makers


def _configured_policy(config: PolicySettings, name: str, budget: int) -> Policy:
    return policy_named(name, config, model=_model(budget), max_tokens=budget)


def definition_of(make: MakeManager | None) -> str:
    """What a policy does, besides its name: the text of its Python file, its configuration, or its settings.

    The code of a function is not part of it, nor are the settings of an object with the default `repr`.
    """
    if isinstance(make, partial) and make.func is _file_manager:
        return Path(_path_and_name(make.args[0])[0]).read_text(encoding="utf-8")
    if isinstance(make, partial) and make.func is _configured_policy:
        config, name = make.args
        return repr((config.policies[name], config.conversation))
    text = _ADDRESS.sub("", repr(make))
    return _SET.sub(lambda match: f"{{{', '.join(sorted(match[1].split(', ')))}}}", text)


def _model(budget: int) -> ModelInfo:
    return ModelInfo("any", max_input_tokens=budget, source="the caller")


def file_policies(file: str, budget: int) -> dict[str, MakeManager]:
    """The policies of a Python file: `mine.py`, which defines `POLICIES`, or `mine.py:NAME`.

    The object is a dict from names to functions that take the budget and return a manager, or one such function or manager.

    Raises:
        InvalidSetting: the file does not define the object, or it is something else.
        UnreadableInput: there is no such file, or running it or one of its functions raises an error.
    """
    makers: dict[str, MakeManager] = {name: partial(_file_manager, file, name) for name in _file_objects(file)}
    for make in makers.values():
        make(budget)
    return makers


def _file_manager(file: str, name: str, budget: int) -> Any:
    make = _maker(_file_objects(file)[name], budget)
    try:
        return make(budget)
    except MinutebookError:
        raise
    except Exception as error:  # the code is the user's
        raise _error_in(_path_and_name(file)[0], error) from error


@cache
def _file_objects(file: str) -> dict[str, Any]:
    path, name = _path_and_name(file)
    if not Path(path).is_file():
        raise UnreadableInput(path, "there is no such file; name a Python file that defines POLICIES, or FILE.py:NAME")
    found = _run_file(path).get(name or FILE_OBJECT)
    objects = found if isinstance(found, dict) else {name: found} if found is not None else {}
    if not objects or not all(
        isinstance(value, str) or callable(value) or hasattr(value, "curate") for value in objects.values()
    ):
        expected = f"a file with {name or FILE_OBJECT}: a dict from names to functions that take the budget and return a manager"
        raise InvalidSetting("--policy", file, expected)
    return objects


def _path_and_name(file: str) -> tuple[str, str]:
    """The parts of `FILE.py:NAME`; the name is empty if there is none."""
    path, _, name = file.partition(":") if file.count(".py:") else (file, "", "")
    return path, name


def _run_file(path: str) -> dict[str, Any]:
    try:
        return runpy.run_path(path)
    except Exception as error:  # the code is the user's
        raise _error_in(path, error) from error


def _error_in(path: str, error: Exception) -> UnreadableInput:
    line = error.lineno if isinstance(error, SyntaxError) else _last_line_in(path, error)
    return UnreadableInput(path, f"{type(error).__name__}: {error}; correct the file", line)


def _last_line_in(path: str, error: Exception) -> int | None:
    """The line of the file that was running when the error was raised."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return lines[-1] if lines else None
