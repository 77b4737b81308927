"""Reads the configuration: defaults, then the file, then the environment, then flags; the last that says it wins.

Every value has an origin. A file with problems is refused as a whole, and all of its problems are reported at once.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from minutebook.conversation.config import Settings, invalid_setting, value_from_text
from minutebook.conversation.policy import policy_problems
from minutebook.errors import InvalidConfig, InvalidSetting, MissingExtra, UnknownName, closest
from minutebook.service.config.schema import ServiceConfig

_LOG: Final = logging.getLogger("minutebook.service")
FILE_NAME: Final = "llm_config.yaml"
CONFIG_VARIABLE: Final = "MINUTEBOOK_CONFIG"
_PREFIX: Final = "MINUTEBOOK_"
_PASSWORD: Final = re.compile(r"(://[^/?#@:]*:)[^/?#]*@")
_PERSIST: Final = tuple(f"conversation.retention.{name}" for name in ("persist_tool_invocations", "tool_persistence"))
_SHORT: Final = {"MINUTEBOOK_DB": "database.url", "MINUTEBOOK_TENANT": "database.tenant"}
"""Variables that other commands know, too."""
_DEEPEST: Final = 32
"""No configuration is nested deeper; an alias within what it stands for is."""
_VALID_ITEM: Final = {"tools": {"builtin": "clock"}, "manager": "passthrough"}
"""What replaces a refused item of a list, so that the others keep their places."""

Location: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value, as pydantic gives them."""


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where a value comes from."""

    kind: Literal["default", "file", "env", "flag"] = "default"
    name: str = ""
    """The file, the environment variable or the flag."""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        if self.kind == "file":
            return self.name if self.line is None else f"{self.name}:{self.line}"
        return f"{self.kind} {self.name}".rstrip()


DEFAULT: Final = ValueSource()


@dataclass(frozen=True, slots=True)
class CommandLineFlag:
    """A value from the command line. None was not given."""

    name: str
    """As it is written: --port."""
    value: Any


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and where each of its values comes from."""

    config: ServiceConfig
    origins: Mapping[str, ValueSource]
    """Dotted key → where its value comes from; whatever is not there is a default."""
    path: Path | None = None
    """The file that was read, if there is one."""
    warnings: tuple[str, ...] = ()
    """What is written and has no effect, because something newer is written, too."""

    def origin(self, key: str) -> ValueSource:
        """Where a value comes from."""
        return self.origins.get(key, DEFAULT)


def config_path(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that is read when none is named: MINUTEBOOK_CONFIG, else the one here, else the one of the user."""
    named = environment.get(CONFIG_VARIABLE)
    return Path(named) if named else next(filter(Path.is_file, config_paths(environment)), None)


def config_paths(environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where a file is looked for, in this order."""
    told = environment.get("XDG_CONFIG_HOME", "")
    home = Path(told) if Path(told).is_absolute() else Path.home() / ".config"
    return Path(FILE_NAME), home / "minutebook" / FILE_NAME


def load_config(
    path: Path | str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, CommandLineFlag] | None = None,
) -> LoadedConfig:
    """The configuration of a file, the environment and flags (dotted key → flag); without a path, of no file.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidConfig: something in it cannot be meant; `others` are its other problems.
    """
    path = None if path is None else Path(path)
    sources = Sources()
    if path is not None:
        sources.add_yaml(path.read_bytes(), str(path))
    sources.add_environment(environment)
    for key, flag in (flags or {}).items():
        if flag.value is not None:
            sources.set(key, flag.value, ValueSource("flag", flag.name))
    warnings = sources.prefer_retention()
    config = sources.config()
    if sources.problems:
        first, *others = sorted(sources.problems, key=lambda each: (each.line or 0, each.column or 0))
        raise InvalidConfig(first.file, first.line, first.column, first.key, first.problem, first.hint, others)
    origins = {
        _dotted(at): origin
        for at, _ in _leaf_values(config.model_dump())
        if (origin := sources.origin_of(at)) is not None
    }
    for one, other in (_PERSIST, _PERSIST[::-1]):
        if one in origins:  # either says what the other is
            origins.setdefault(other, origins[one])
    return LoadedConfig(config, origins, path, warnings)


class ConfigHolder:
    """The configuration that holds now. A file that has become wrong does not take it away."""

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        flags: Mapping[str, CommandLineFlag] | None = None,
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


def environment_variables() -> dict[str, str]:
    """Environment variable → the key it sets, for every key that has a single value."""
    return {**{_PREFIX + key.replace(".", "_").upper(): key for key in dict(_leaves(ServiceConfig))}, **_SHORT}


def flat_settings(config: ServiceConfig) -> dict[str, Any]:
    """Every value by its dotted key, as JSON could say it; a URL without its password."""
    return {
        _dotted(at): _PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value
        for at, value in _leaf_values(config.model_dump())
    }


@dataclass(slots=True)
class Sources:
    """The values of all sources in one tree, with the origin of each, and what is wrong with them."""

    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[Location, ValueSource] = field(default_factory=dict)
    keys: dict[Location, ValueSource] = field(default_factory=dict)
    """Where the key of a value is written, for a file."""
    texts: dict[Location, str] = field(default_factory=dict)
    """A scalar as it is written: YAML takes `off` for false."""
    problems: list[InvalidConfig] = field(default_factory=list)
    _incomplete: set[Location] = field(default_factory=set)
    """Sections from which a refused value was removed."""

    def add_yaml(self, data: bytes, file: str) -> None:
        """Read a file; what is wrong with it as YAML is a problem.

        Raises:
            MissingExtra: there is nothing that reads YAML.
        """
        try:
            import yaml
        except ImportError as error:
            raise MissingExtra("pyyaml", "service") from error

        def position(node: Any) -> ValueSource:
            return ValueSource("file", file, node.start_mark.line + 1, node.start_mark.column + 1)

        def compose(node: Any, at: Location) -> Any:
            self.origins[at] = position(node)
            if len(at) > _DEEPEST:
                raise yaml.constructor.ConstructorError(None, None, "it is nested too deep", node.start_mark)
            if isinstance(node, yaml.SequenceNode):
                return [compose(each, (*at, index)) for index, each in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode):
                members: dict[str, Any] = {}
                for key, value in node.value:
                    inside = (*at, str(key.value))
                    if inside[-1] in members:
                        problem = f"is there twice, first in line {self.keys[inside].line}"
                        self.report(inside, problem, "keep one of them", position(key))
                    else:
                        self.keys[inside] = position(key)
                        members[str(key.value)] = compose(value, inside)
                return members
            self.texts[at] = node.value
            try:
                return loader.construct_object(node)
            except ValueError as error:  # 2026-13-45 looks like a date, and is none
                raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error

        whole = ValueSource("file", file)
        try:
            loader = yaml.SafeLoader(data.decode("utf-8-sig"))
            root = loader.get_single_node()
            tree = {} if root is None else compose(root, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            at = whole if mark is None else ValueSource("file", file, mark.line + 1, mark.column + 1)
            self.report((), f"is not YAML: {error.problem or error.context}", origin=at)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            self.report((), f"is not YAML: {' '.join(str(error).split())}", origin=whole)
        else:
            if isinstance(tree, dict):
                self.tree = tree
            else:
                self.report((), "is not a mapping", "give sections with keys: server, conversation, …")

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Set what the environment sets. A variable that only looks like one of ours is a problem."""
        known, kinds = environment_variables(), dict(_leaves(ServiceConfig))
        sections = tuple(f"{_PREFIX}{name.upper()}_" for name in ServiceConfig.model_fields)
        first: dict[str, str] = {}
        for name in sorted(environment):
            origin, text = ValueSource("env", name), environment[name]
            if key := known.get(name):
                if environment[first.setdefault(key, name)] != text:
                    self.report(tuple(key.split(".")), f"is something else in {first[key]}", "keep one of them", origin)
                self.set(key, value_from_text(text, kinds[key]), origin, text)
            elif name.startswith(sections):  # others may have variables with our prefix, but not with a section's
                near = closest(name, known)
                self.report((), "unknown variable", f"did you mean {near}?" if near else "", origin)

    def set(self, key: str, value: Any, origin: ValueSource, text: str | None = None) -> None:
        """Set one value over what an earlier source says."""
        *sections, last = at = key.split(".")
        place = self.tree
        for section in sections:
            if place.get(section) is None:
                place[section] = {}
            if not isinstance(place[section], dict):
                return  # validation reports what is there instead of a section
            place = place[section]
        place[last] = value
        self.origins[tuple(at)], self.texts[tuple(at)] = origin, str(value) if text is None else text

    def prefer_retention(self) -> tuple[str, ...]:
        """See to `history_limit`: alone it is the older configuration, and beside retention it has no effect."""
        conversation = self.tree.get("conversation")
        if not isinstance(conversation, dict):
            return ()
        at = ("conversation", "retention")
        if conversation.get("retention", {}) is None and not self.texts[at]:
            conversation["retention"] = {}  # a section of which every line is commented out
        if "history_limit" in conversation:
            if conversation.setdefault("retention") is not None:
                origin = self.origins["conversation", "history_limit"]
                return (f"{origin}: conversation.history_limit has no effect beside conversation.retention",)
            self.origins.setdefault(at, self.origins["conversation", "history_limit"])
        return ()

    def config(self) -> ServiceConfig:
        """The configuration; where a value is refused, with its default and one problem more."""
        policies = self.tree.get("policies")
        policy_names = {*policies} if isinstance(policies, dict) else set()
        while True:
            try:
                config = ServiceConfig.model_validate(self.tree)
                break
            except ValidationError as error:
                for each in error.errors(include_url=False):
                    self._refuse(each)
        for loc, wrong in policy_problems(config):
            at = self._written(loc) if isinstance(loc[-1], int) else loc  # a manager may be written as its name alone
            if isinstance(loc[-1], int) and wrong.name != "manager":
                self.report(at, f"cannot be meant: {wrong}")
            elif loc != ("conversation", "policy") or config.conversation.policy not in policy_names:
                self._report_setting(at, wrong)  # else it is there, and its own problems are reported
        return config

    def origin_of(self, at: Location) -> ValueSource | None:
        """Where a value comes from; a manager may be written as its name alone. None for a default."""
        at = tuple(part for part in at if part != "settings")
        shortest = 3 if at[2:3] == ("manager",) else len(at)
        return next((self.origins[at[:n]] for n in range(len(at), shortest - 1, -1) if at[:n] in self.origins), None)

    def report(self, at: Location, problem: str, hint: str = "", origin: ValueSource | None = None) -> None:
        origin = origin or self.origins.get(at) or DEFAULT
        where = origin.name if origin.kind == "file" else str(origin)
        self.problems.append(InvalidConfig(where, origin.line, origin.column, _dotted(at), problem, hint))

    def _refuse(self, error: ErrorDetails) -> None:
        """Report an error of pydantic, and remove its value: what else is wrong shows in the next validation."""
        at, kind, value = self._written(error["loc"]), error["type"], error["input"]
        cause = error.get("ctx", {}).get("error")
        if kind == "extra_forbidden":
            known = _section_at(at[:-1]).model_fields
            near = closest(str(at[-1]), known)
            hint = f"did you mean {_dotted((*at[:-1], near))}?" if near else f"there are {', '.join(known)}"
            self.report(at, "unknown key", hint, self.keys.get(at))
        elif kind == "literal_error":
            options, text = re.findall("'(.*?)'", error["ctx"]["expected"]), self.texts.get(at)
            if text in options and text != value:
                self._container(at)[at[-1]] = text
                return
            near = closest(str(text), options)
            hint = f"did you mean {near!r}?" if near else f"give {invalid_setting(error, '').expected}"
            self.report(at, f"is {self._shown(at, value)}", hint)
        elif isinstance(cause, InvalidSetting):
            named = self._written((*at, cause.name))
            if named != at or at not in self._incomplete:  # else it may only lack what was refused
                self._report_setting(named, cause)
            at = named
        else:
            shown = self._shown(at, value) if kind.endswith("_type") else repr(value)
            quotes = ", in quotes" if kind == "string_type" and self.texts.get(at) else ""
            self.report(at, f"is {shown}", f"give {invalid_setting(error, '').expected}{quotes}")
        container = self._container(at)
        if isinstance(container, list):
            container[int(at[-1])] = _VALID_ITEM[str(at[-2])]
        else:
            del container[at[-1]]
        self._incomplete.add(at[:-1])

    def _report_setting(self, at: Location, wrong: InvalidSetting | UnknownName) -> None:
        origin = self.origins.get(self._written(at))
        if isinstance(wrong, UnknownName):
            self.report(at, f"is {wrong.name!r}", str(wrong).partition("; ")[2], origin)
        else:
            self.report(at, f"is {wrong.value!r}", f"give {wrong.expected}", origin)

    def _written(self, loc: Location) -> Location:
        """The part of a location that is in the tree."""
        place: Any = self.tree
        for depth, part in enumerate(loc):
            if part not in (place if isinstance(place, dict) else range(len(place)) if isinstance(place, list) else ()):
                return loc[:depth]
            place = place[part]
        return loc

    def _container(self, at: Location) -> Any:
        place: Any = self.tree
        for part in at[:-1]:
            place = place[part]
        return place

    def _shown(self, at: Location, value: Any) -> str:
        if isinstance(value, (dict, list)):
            return "a mapping" if isinstance(value, dict) else "a list"
        return "empty" if value is None else repr(self.texts.get(at, value))


def _leaves(model: type[Settings], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys that have one value each, with their types; lists, and mappings with keys of the user, have none."""
    for name, each in model.model_fields.items():
        section = _section_in(each.annotation)
        if get_origin(each.annotation) in {tuple, Mapping}:
            continue
        if section is None:
            yield prefix + name, each.annotation
        else:
            yield from _leaves(section, f"{prefix}{name}.")


def _section_in(annotation: Any) -> type[Settings] | None:
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)), None)


def _section_at(at: Location) -> type[Settings]:
    """The class of the section at a location; a policy or tool has its name or index after its field."""
    model: type[Settings] = ServiceConfig
    for part in at[:1] if at[0:1] in {("policies",), ("tools",)} else at:
        model = _section_in(model.model_fields[str(part)].annotation) or model
    return model


def _leaf_values(value: Any, at: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Every value that is no section, with its location."""
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _leaf_values(each, (*at, name))
    elif isinstance(value, (list, tuple)) and value:
        for index, each in enumerate(value):
            yield from _leaf_values(each, (*at, index))
    else:
        yield at, [] if value == () else value


def _dotted(at: Location) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).removeprefix(".")
