"""Reads the configuration: defaults, then the file, then the environment, then flags; the last that says it wins.

Every value knows where it comes from. A file with problems is refused as a whole, and all of them are told at once.

From values that somebody wrote down to frozen dataclasses, with every problem at its place.

A value remembers where it was written. Reading goes on after a problem, so that all problems of a file are told at once.

A YAML file as values that know their lines.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from minutebook.conversation.config import ManagerConfig
from minutebook.conversation.policy import problems_of
from minutebook.errors import InvalidConfig, InvalidSetting, MissingExtra, UnknownName, closest
from minutebook.service.config.schema import ServiceConfig

T = TypeVar("T")
YES: Final = frozenset({"true", "yes", "on", "1"})
NO: Final = frozenset({"false", "no", "off", "0"})
BAD: Final = object()
"""What a value is read as that cannot be meant."""


@dataclass(frozen=True, slots=True)
class Origin:
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


DEFAULT: Final = Origin()


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written: a scalar, a mapping of texts to such values, or a list of them."""

    value: Any
    origin: Origin
    text: str | None = None
    """The scalar as it was written, before anything made a number or a truth of it: YAML takes `off` for false."""
    key: Origin | None = None
    """Where its key was written."""
    loose: bool = False
    """Whether it is text that may stand for a number or a truth, as in the environment."""


@dataclass(slots=True)
class Reader:
    """What is read, and what was wrong with it."""

    problems: list[InvalidConfig] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    """Dotted key → where its value comes from, for every key that was given."""
    special: Mapping[Any, "Special"] = field(default_factory=dict)
    """Types that have their own way of being read."""

    def problem(self, origin: Origin, key: str, problem: str, hint: str = "") -> None:
        where = str(origin) if origin.kind != "file" else origin.name
        self.problems.append(InvalidConfig(where, origin.line, origin.column, key, problem, hint))

    def read(self, kind: Any, given: Given, key: str) -> Any:
        """The value as `kind`; BAD, and a problem more, if it is none."""
        if kind in self.special:
            return self.special[kind](self, given, key)
        if is_dataclass(kind) and isinstance(kind, type):
            return self.structure(kind, given, key)
        shape, inner = get_origin(kind), get_args(kind)
        if shape in {Union, UnionType}:
            return self._optional(inner, given, key)
        if shape is Literal:
            return self._choice(inner, given, key)
        if shape is tuple:
            return self._items(inner[0], given, key)
        if shape is not None and issubclass(shape, Mapping):
            found = {
                name: self.read(inner[1], each, f"{key}.{name}") for name, each in self.mapping(given, key).items()
            }
            return {name: each for name, each in found.items() if each is not BAD}
        return self._scalar(kind, given, key)

    def structure(self, kind: type[T], given: Given, key: str) -> T | object:
        """The dataclass that a mapping spells; where a value is bad, with the default in its place.

        Keys that it has not are problems.
        """
        members = self.mapping(given, key)
        hints = get_type_hints(kind)
        known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        for name, each in members.items():
            inside = f"{key}.{name}" if key else name
            if name not in known:
                self.unknown(each, inside, name, known)
            elif (value := self.read(hints[name], each, inside)) is not BAD:
                values[name] = value
        while True:
            try:
                return kind(**values)
            except InvalidSetting as error:
                bad = error.name if error.name in values else None
                if bad is None and len(values) < len(members):
                    return BAD  # it may only lack what could not be read
                inside = f"{key}.{bad}" if bad and key else bad or key
                at = members[bad].origin if bad else given.origin
                self.problem(at, inside, f"is {error.value!r}", f"give {error.expected}")
                if bad is None:
                    return BAD
                del values[bad]  # and on, for what else is wrong

    def mapping(self, given: Given, key: str) -> dict[str, Given]:
        if given.value is None:
            return {}  # a section of which every key is commented out
        if not isinstance(given.value, dict):
            self.problem(given.origin, key, f"is {_shown(given)}", "give keys with values")
            return {}
        return given.value

    def unknown(self, given: Given, key: str, name: str, known: list[str]) -> None:
        """Say that there is no such key, and which one may be meant."""
        near = closest(name, known)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}"
        self.problem(given.key or given.origin, key, "is not a key that means anything here", hint)

    def _optional(self, kinds: tuple[Any, ...], given: Given, key: str) -> Any:
        kind = next(kind for kind in kinds if kind is not NoneType)
        if given.value is None and not given.text and is_dataclass(kind):
            return self.read(kind, given, key)
        if given.value is None or (given.loose and not given.text):
            self.origins[key] = given.origin
            return None
        return self.read(kind, given, key)

    def _choice(self, options: tuple[str, ...], given: Given, key: str) -> Any:
        self.origins[key] = given.origin
        said = given.value if isinstance(given.value, str) else given.text
        if said in options:
            return said
        near = closest(str(said), options)
        hint = f"did you mean {near!r}?" if near else f"give {', '.join(options[:-1])} or {options[-1]}"
        self.problem(given.origin, key, f"is {_shown(given)}", hint)
        return BAD

    def _items(self, kind: Any, given: Given, key: str) -> tuple[Any, ...]:
        if given.value is None:
            return ()
        if not isinstance(given.value, list):
            self.problem(given.origin, key, f"is {_shown(given)}", "give a list: - … on a line for each")
            return ()
        found = [self.read(kind, each, f"{key}[{at}]") for at, each in enumerate(given.value)]
        return tuple(each for each in found if each is not BAD)

    def _scalar(self, kind: Any, given: Given, key: str) -> Any:
        self.origins[key] = given.origin
        value = _loosened(kind, given.value) if given.loose and isinstance(given.value, str) else given.value
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is kind:
            return value
        expected = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
        quote = ", in quotes" if kind is str and given.text else ""
        self.problem(given.origin, key, f"is {_shown(given)}", f"give {expected}{quote}")
        return BAD


Special = Callable[[Reader, Given, str], Any]


def plain(given: Given) -> Any:
    """The value without where it was written."""
    if isinstance(given.value, dict):
        return {name: plain(each) for name, each in given.value.items()}
    if isinstance(given.value, list):
        return [plain(each) for each in given.value]
    return given.value


def _loosened(kind: Any, text: str) -> Any:
    """What a text of the environment stands for, or the text itself."""
    try:
        if kind is bool:
            return True if text.lower() in YES else False if text.lower() in NO else text
        return kind(text) if kind in {int, float} else text
    except ValueError:
        return text


def _shown(given: Given) -> str:
    if isinstance(given.value, dict):
        return "a mapping"
    if isinstance(given.value, list):
        return "a list"
    return "empty" if given.value is None else repr(given.text if given.text is not None else given.value)


_DEEPEST: Final = 32
"""No configuration is nested deeper; an alias within what it stands for is."""


def given_in(data: bytes, name: str, reader: Reader) -> Given:
    """What a file says; what is wrong with it as YAML is the reader's problem.

    Raises:
        MissingExtra: there is nothing that reads YAML.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra("pyyaml", "service") from error
    whole = Origin("file", name)
    try:
        loader = yaml.SafeLoader(data.decode("utf-8-sig"))
        node = loader.get_single_node()
        if node is None:
            return Given({}, whole)
        found = _Nodes(loader, name, reader).given(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = whole if mark is None else Origin("file", name, mark.line + 1, mark.column + 1)
        reader.problem(at, "", f"is not YAML: {error.problem or error.context}")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reader.problem(whole, "", f"is not YAML: {' '.join(str(error).split())}")
    else:
        if isinstance(found.value, dict):
            return found
        reader.problem(found.origin, "", "is not a mapping", "give sections with keys: server, conversation, …")
    return Given({}, whole)


class _Nodes:
    """The nodes of one file."""

    def __init__(self, loader: Any, name: str, reader: Reader) -> None:
        self._loader, self._name, self._reader = loader, name, reader

    def given(self, node: Any, key: Origin | None = None, depth: int = 0) -> Given:
        """The value of a node, and of all that is in it."""
        from yaml import MappingNode, SequenceNode
        from yaml.constructor import ConstructorError

        at = self._at(node)
        if depth > _DEEPEST:
            raise ConstructorError(None, None, "it is nested too deep", node.start_mark)
        if isinstance(node, MappingNode):
            return Given(self._members(node, depth), at, key=key)
        if isinstance(node, SequenceNode):
            return Given([self.given(each, depth=depth + 1) for each in node.value], at, key=key)
        try:
            value = self._loader.construct_object(node)
        except ValueError as error:  # 2026-13-45 looks like a date, and is none
            raise ConstructorError(None, None, str(error), node.start_mark) from error
        return Given(value, at, node.value, key)

    def _members(self, node: Any, depth: int) -> dict[str, Given]:
        members: dict[str, Given] = {}
        for name, value in node.value:
            said, at = str(name.value), self._at(name)
            if said in members:
                first = members[said].key or members[said].origin
                self._reader.problem(at, said, f"is there twice, first in line {first.line}", "keep one of them")
            else:
                members[said] = self.given(value, at, depth + 1)
        return members

    def _at(self, node: Any) -> Origin:
        return Origin("file", self._name, node.start_mark.line + 1, node.start_mark.column + 1)


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
            near = closest(name, known)
            hint = f"did you mean {near}?" if near else ""
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


def _tell(reader: Reader, key: str, wrong: InvalidSetting | UnknownName) -> None:
    """A problem that shows when the parts are made."""
    origin = reader.origins.get(key) or reader.origins.get(f"{key}[0]") or DEFAULT
    if isinstance(wrong, UnknownName):
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
