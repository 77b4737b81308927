"""Reads the configuration: defaults, then the file, then the environment, then flags; the last that says it wins.

Every value knows where it comes from. A file with problems is refused as a whole, and all of them are told at once.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from minutebook.errors import InvalidConfig, InvalidSetting, UnknownStrategy
from minutebook.service.config import ManagerConfig, ServiceConfig
from minutebook.service.confignodes import given_in
from minutebook.service.policy import problems_of
from minutebook.service.settings import BAD, DEFAULT, Given, Origin, Reader, plain

_LOG: Final = logging.getLogger("minutebook.service")
FILE_NAME: Final = "llm_config.yaml"
CONFIG_VARIABLE: Final = "MINUTEBOOK_CONFIG"
_PREFIX: Final = "MINUTEBOOK_"
_PASSWORD: Final = re.compile(r"(://[^/?#@:]*:)[^/?#]*@")
_PERSIST: Final = tuple(f"conversation.retention.{name}" for name in ("persist_tool_invocations", "tool_persistence"))
_SHORT: Final = {"MINUTEBOOK_DB": "database.url", "MINUTEBOOK_TENANT": "database.tenant"}
"""Variables that other commands know, too."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A value from the command line. None was not given."""

    name: str
    """As it is written: --port."""
    value: Any


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and where each of its values comes from."""

    config: ServiceConfig
    origins: Mapping[str, Origin]
    """Dotted key → where its value comes from; whatever is not there is a default."""
    path: Path | None = None
    """The file that was read, if there is one."""
    warnings: tuple[str, ...] = ()
    """What is written and has no effect, because something newer is written, too."""

    def origin(self, key: str) -> Origin:
        """Where a value comes from."""
        return self.origins.get(key, DEFAULT)


def config_path(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that is read when none is named: MINUTEBOOK_CONFIG, else the one here, else the one of the user."""
    named = environment.get(CONFIG_VARIABLE)
    return Path(named) if named else next(filter(Path.is_file, config_places(environment)), None)


def config_places(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where a file is looked for, in this order."""
    told = environment.get("XDG_CONFIG_HOME", "")
    home = Path(told) if Path(told).is_absolute() else Path.home() / ".config"
    return Path(FILE_NAME), home / "minutebook" / FILE_NAME


def load_config(
    path: Path | str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Flag] | None = None,
) -> LoadedConfig:
    """The configuration of a file, the environment and flags (dotted key → flag); without a path, of no file.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidConfig: something in it cannot be meant; `others` are its other problems.
    """
    path = None if path is None else Path(path)
    reader = Reader(special={tuple[ManagerConfig, ...]: _managers})
    root = Given({}, Origin("file", str(path)) if path else DEFAULT)
    if path is not None:
        root = given_in(path.read_bytes(), str(path), reader)
    _lay_environment(root, environment, reader)
    for key, flag in (flags or {}).items():
        if flag.value is not None:
            _lay(root, key, Given(flag.value, Origin("flag", flag.name), str(flag.value)), reader)
    warnings = _older(root)
    config = reader.read(ServiceConfig, root, "")
    if isinstance(config, ServiceConfig):
        written = plain(root).get("policies")
        for key, wrong in problems_of(config):
            if key != "conversation.policy" or config.conversation.policy not in (written or ()):
                _tell(reader, key, wrong)  # else it is there, and its own problems are told
    if reader.problems:
        first, *others = sorted(reader.problems, key=lambda one: (one.line or 0, one.column or 0))
        raise InvalidConfig(first.file, first.line, first.column, first.key, first.problem, first.hint, others)
    assert isinstance(config, ServiceConfig)
    for one, other in (_PERSIST, _PERSIST[::-1]):
        if one in reader.origins:  # either says what the other is
            reader.origins.setdefault(other, reader.origins[one])
    return LoadedConfig(config, reader.origins, path, warnings)


class ConfigHolder:
    """The configuration that holds now. A file that has become wrong does not take it away."""

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        flags: Mapping[str, Flag] | None = None,
    ) -> None:
        self._path, self._environment, self._flags = path, environment, flags
        self.current = self._load()
        """The last one that could be read."""

    def reload(self) -> InvalidConfig | OSError | None:
        """Read it again; what is wrong with it, if it cannot be read. The old one then stays."""
        try:
            self.current = self._load()
        except (InvalidConfig, OSError) as error:
            _LOG.error("the configuration is not reloaded, and the old one stays: %s", error)
            return error
        _LOG.info("the configuration is reloaded from %s", self.current.path)
        return None

    def _load(self) -> LoadedConfig:
        loaded = load_config(self._path, environment=self._environment, flags=self._flags)
        for warning in loaded.warnings:
            _LOG.warning("%s", warning)
        return loaded


def variables() -> dict[str, str]:
    """Environment variable → the key it sets, for every key that has a single value."""
    named = {_PREFIX + key.replace(".", "_").upper(): key for key in _leaves(ServiceConfig, "")}
    return {**named, **_SHORT}


def _leaves(kind: Any, key: str) -> Iterator[str]:
    """The keys that hold one value each; lists, and mappings whose keys are anybody's, have none."""
    hints = get_type_hints(kind)
    for each in fields(kind):
        inside, hint = f"{key}.{each.name}" if key else each.name, hints[each.name]
        inner = [one for one in get_args(hint) if one is not type(None)] if _is_optional(hint) else [hint]
        if is_dataclass(inner[0]):
            yield from _leaves(inner[0], inside)
        elif get_origin(inner[0]) in {None, Literal}:
            yield inside


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in {Union, UnionType}


def _lay_environment(root: Given, environment: Mapping[str, str], reader: Reader) -> None:
    known = variables()
    sections = tuple(f"{_PREFIX}{each.name.upper()}_" for each in fields(ServiceConfig))
    said: dict[str, str] = {}
    for name in sorted(environment):
        origin, text = Origin("env", name), environment[name]
        if name in known:
            first = said.setdefault(known[name], name)
            if environment[first] != text:
                reader.problem(origin, known[name], f"is something else in {first}", "keep one of them")
            _lay(root, known[name], Given(text, origin, text, loose=True), reader)
        elif name.startswith(sections):  # others may have variables with our prefix, but not with a section's
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else ""
            reader.problem(origin, "", "is not a variable that means anything", hint)


def _lay(root: Given, key: str, value: Given, reader: Reader) -> None:
    """Put a value over what is there."""
    *sections, last = key.split(".")
    place = root
    for section in sections:
        if not isinstance(place.value, dict):
            reader.problem(place.origin, section, "is not a section")
            return
        inner = place.value.get(section)
        if inner is None or inner.value is None:
            inner = place.value[section] = Given({}, value.origin)
        place = inner
    if isinstance(place.value, dict):
        place.value[last] = value


def _older(root: Given) -> tuple[str, ...]:
    """See to `history_limit`: alone it is the older configuration, and beside retention it has no effect."""
    conversation = root.value.get("conversation") if isinstance(root.value, dict) else None
    given = conversation.value if conversation is not None and isinstance(conversation.value, dict) else {}
    if "history_limit" not in given:
        return ()
    limit: Given = given["history_limit"]
    if "retention" not in given:
        given["retention"] = Given(None, limit.origin, "null")
        return ()
    if given["retention"].value is None and given["retention"].text:
        return ()
    return (f"{limit.origin}: conversation.history_limit has no effect beside conversation.retention",)


def _tell(reader: Reader, key: str, wrong: InvalidSetting | UnknownStrategy) -> None:
    """A problem that shows when the parts are made."""
    origin = reader.origins.get(key) or reader.origins.get(f"{key}[0]") or DEFAULT
    if isinstance(wrong, UnknownStrategy):
        reader.problem(origin, key, f"is {wrong.name!r}", str(wrong).partition("; ")[2])
    elif key.endswith(wrong.name):
        reader.problem(origin, key, f"is {wrong.value!r}", f"give {wrong.expected}")
    else:
        reader.problem(origin, key, f"cannot be meant: {wrong}")


def _managers(reader: Reader, given: Given, key: str) -> Any:
    """`token_budget`, or `{name: token_budget, target: 0.5}`, or a list of such."""
    if given.value is None:
        return ()
    several = given.value if isinstance(given.value, list) else [given]
    made = []
    for at, each in enumerate(several):
        inside = f"{key}[{at}]" if several is given.value else key
        reader.origins[inside] = each.origin
        settings = dict(plain(each)) if isinstance(each.value, dict) else {"name": each.value}
        name = settings.pop("name", None)
        if isinstance(name, str):
            made.append(ManagerConfig(name, settings))
        else:
            reader.problem(each.origin, inside, "has no name", "give the name of a manager, such as token_budget")
    return tuple(made) if len(made) == len(several) else BAD


def flattened(config: ServiceConfig) -> dict[str, Any]:
    """Every value by its dotted key, as JSON could say it; a URL without its password."""
    found: dict[str, Any] = {}
    _flatten(config, "", found)
    return found


def _flatten(value: Any, key: str, found: dict[str, Any]) -> None:
    if is_dataclass(value):
        for each in fields(value):
            _flatten(getattr(value, each.name), f"{key}.{each.name}" if key else each.name, found)
    elif isinstance(value, Mapping) and value:
        for name, each in value.items():
            _flatten(each, f"{key}.{name}", found)
    elif isinstance(value, tuple) and value:
        for at, each in enumerate(value):
            _flatten(each, f"{key}[{at}]", found)
    else:
        empty = {} if isinstance(value, Mapping) else [] if isinstance(value, tuple) else value
        found[key] = _PASSWORD.sub(r"\1***@", empty) if isinstance(empty, str) else empty
