"""The values of the configuration's sources in one tree, with their origins and problems."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from minutebook.conversation.config import Settings, invalid_setting, value_from_text
from minutebook.conversation.policy import policy_problems
from minutebook.errors import InvalidConfig, InvalidSetting, MissingExtra, UnknownName, closest
from minutebook.service.config.schema import ServiceConfig

_PREFIX: Final = "MINUTEBOOK_"
_SHORT_VARIABLES: Final = {
    "MINUTEBOOK_DB": "database.url",
    "MINUTEBOOK_TENANT": "database.tenant",
    "MINUTEBOOK_ENCRYPTION_KEY_FILE": "database.encryption_key_file",
}
"""Environment variables with short names, which all commands of the CLI read → key."""
_EXPECTED: Final = "expected sections with keys: server, conversation, …"
_MAX_DEPTH: Final = 32
"""Maximum nesting. A YAML alias that contains itself exceeds any depth."""
_VALID_ITEM: Final = {"tools": {"builtin": "clock"}, "manager": "passthrough", "cors_origins": "https://example.com"}
"""Replaces an invalid item of a list, so that the other items keep their indexes."""

Location: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value, as in pydantic's errors."""


@dataclass(frozen=True, slots=True)
class ValueSource:
    """The origin of a value."""

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


def environment_variables() -> dict[str, str]:
    """Environment variable → the key that it sets, for every key with a single value."""
    return {
        **{_PREFIX + key.replace(".", "_").upper(): key for key in dict(_leaves(ServiceConfig))},
        **_SHORT_VARIABLES,
    }


@dataclass(slots=True)
class Sources:
    """The values of all sources in one tree, their origins and their problems."""

    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[Location, ValueSource] = field(default_factory=dict)
    keys: dict[Location, ValueSource] = field(default_factory=dict)
    """The positions of the keys in the file."""
    texts: dict[Location, str] = field(default_factory=dict)
    """The text of each scalar. YAML parses `off` as false."""
    problems: list[InvalidConfig] = field(default_factory=list)
    _incomplete: set[Location] = field(default_factory=set)
    """Sections from which an invalid value was removed."""

    def add_yaml(self, data: bytes, file: str) -> None:
        """Read the content of a file. A YAML error becomes a problem.

        Raises:
            MissingExtra: pyyaml is not installed.
        """
        try:
            import yaml
        except ImportError as error:
            raise MissingExtra("pyyaml", "service") from error

        def position(node: Any) -> ValueSource:
            return ValueSource("file", file, node.start_mark.line + 1, node.start_mark.column + 1)

        def compose(node: Any, location: Location) -> Any:
            self.origins[location] = position(node)
            if len(location) > _MAX_DEPTH:
                raise yaml.constructor.ConstructorError(
                    None, None, f"more than {_MAX_DEPTH} levels of nesting", node.start_mark
                )
            if isinstance(node, yaml.SequenceNode):
                return [compose(item, (*location, index)) for index, item in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode):
                members: dict[str, Any] = {}
                for key, value in node.value:
                    member_location = (*location, str(key.value))
                    if member_location[-1] in members:
                        problem = f"is set twice, first in line {self.keys[member_location].line}"
                        self.report(member_location, problem, "remove one of them", position(key))
                    else:
                        self.keys[member_location] = position(key)
                        members[str(key.value)] = compose(value, member_location)
                return members
            self.texts[location] = node.value
            try:
                return loader.construct_object(node)
            except ValueError as error:  # such as 2026-13-45, which has the form of a date
                raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error

        file_source = ValueSource("file", file)
        try:
            loader = yaml.SafeLoader(data.decode("utf-8-sig"))
            root = loader.get_single_node()
            tree = {} if root is None else compose(root, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            origin = file_source if mark is None else ValueSource("file", file, mark.line + 1, mark.column + 1)
            self.report((), f"is not YAML: {error.problem or error.context}", _EXPECTED, origin)
        except UnicodeDecodeError as error:
            self.report((), f"is not UTF-8: {error.reason}", "save it as UTF-8", file_source)
        except (yaml.YAMLError, RecursionError) as error:
            self.report((), f"is not YAML: {' '.join(str(error).split())}", _EXPECTED, file_source)
        else:
            if isinstance(tree, dict):
                self.tree = tree
            else:
                self.report((), "is not a mapping", _EXPECTED)

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Set the values of environment variables. An unknown variable with the prefix of a section is a problem."""
        variables, kinds = environment_variables(), dict(_leaves(ServiceConfig))
        sections = tuple(f"{_PREFIX}{name.upper()}_" for name in ServiceConfig.model_fields)
        first_variable: dict[str, str] = {}
        for name in sorted(environment):
            origin, text = ValueSource("env", name), environment[name]
            if key := variables.get(name):
                if environment[first_variable.setdefault(key, name)] != text:
                    self.report(
                        tuple(key.split(".")), f"differs from {first_variable[key]}", "remove one of them", origin
                    )
                self.set(key, value_from_text(text, kinds[key]), origin, text)
            elif name.startswith(sections):  # other programs may use the prefix MINUTEBOOK_
                suggestion = closest(name, variables)
                self.report((), "unknown variable", f"did you mean {suggestion}?" if suggestion else "", origin)

    def set(self, key: str, value: Any, origin: ValueSource, text: str | None = None) -> None:
        """Set a value, overriding earlier sources."""
        *sections, name = location = key.split(".")
        container = self.tree
        for section in sections:
            if container.get(section) is None:
                container[section] = {}
            if not isinstance(container[section], dict):
                return  # validation reports that the section is not a mapping
            container = container[section]
        container[name] = value
        self.origins[tuple(location)], self.texts[tuple(location)] = origin, str(value) if text is None else text

    def prefer_retention(self) -> tuple[str, ...]:
        """Disable the default retention if only `history_limit` is set; return a warning if both are set."""
        conversation = self.tree.get("conversation")
        if not isinstance(conversation, dict):
            return ()
        location = ("conversation", "retention")
        if conversation.get("retention", {}) is None and not self.texts[location]:  # all lines are commented out
            if "history_limit" in conversation:
                conversation["retention"] = {}
            else:
                del conversation["retention"]
        if "history_limit" in conversation:
            if conversation.setdefault("retention") is not None:
                origin = self.origins["conversation", "history_limit"]
                return (f"{origin}: conversation.history_limit has no effect, because conversation.retention is set",)
            self.origins.setdefault(location, self.origins["conversation", "history_limit"])
        return ()

    def config(self) -> ServiceConfig:
        """The configuration. Every invalid value is replaced by its default and reported as a problem."""
        policies = self.tree.get("policies")
        policy_names = {*policies} if isinstance(policies, dict) else set()
        while True:
            try:
                config = ServiceConfig.model_validate(self.tree)
                break
            except ValidationError as error:
                for details in error.errors(include_url=False):
                    self._reject(details)
        for problem_location, setting_error in policy_problems(config):
            # A manager may be written as its name alone.
            is_manager = isinstance(problem_location[-1], int)
            location = self._existing_part(problem_location) if is_manager else problem_location
            if is_manager and setting_error.name != "manager":
                self.report(location, f"is invalid: {setting_error}")
            elif problem_location != ("conversation", "policy") or config.conversation.policy not in policy_names:
                self._report_setting(
                    location, setting_error
                )  # an invalid policy was already reported under its own key
        return config

    def origin_of(self, location: Location) -> ValueSource | None:
        """The origin of a value; None for a default. A manager may be written as its name alone."""
        location = tuple(part for part in location if part != "settings")
        min_length = 3 if location[2:3] == ("manager",) else len(location)
        lengths = range(len(location), min_length - 1, -1)
        return next((self.origins[location[:length]] for length in lengths if location[:length] in self.origins), None)

    def report(self, location: Location, problem: str, hint: str = "", origin: ValueSource | None = None) -> None:
        origin = origin or self.origins.get(location) or DEFAULT
        source = origin.name if origin.kind == "file" else str(origin)
        self.problems.append(InvalidConfig(source, origin.line, origin.column, dotted_key(location), problem, hint))

    def _reject(self, error: ErrorDetails) -> None:
        """Report a pydantic error and remove the value, so that the next validation finds the other problems."""
        location, kind, value = self._existing_part(error["loc"]), error["type"], error["input"]
        cause = error.get("ctx", {}).get("error")
        if kind == "extra_forbidden":
            keys = _section_at(location[:-1]).model_fields
            suggestion = closest(str(location[-1]), keys)
            hint = (
                f"did you mean {dotted_key((*location[:-1], suggestion))}?"
                if suggestion
                else f"known keys: {', '.join(keys)}"
            )
            self.report(location, "unknown key", hint, self.keys.get(location))
        elif kind == "literal_error":
            options, text = re.findall("'(.*?)'", error["ctx"]["expected"]), self.texts.get(location)
            if text in options and text != value:
                self._container(location)[location[-1]] = text
                return
            suggestion = closest(str(text), options)
            hint = f"did you mean {suggestion!r}?" if suggestion else f"expected {invalid_setting(error, '').expected}"
            self.report(location, f"is {self._value_text(location, value)}", hint)
        elif isinstance(cause, InvalidSetting):
            setting = self._existing_part((*location, cause.name))
            if setting != location or location not in self._incomplete:  # else the removed value may be the cause
                self._report_setting(setting, cause)
            location = setting
        else:
            text = self._value_text(location, value) if kind.endswith("_type") else repr(value)
            quotes = ", in quotes" if kind == "string_type" and self.texts.get(location) else ""
            self.report(location, f"is {text}", f"expected {invalid_setting(error, '').expected}{quotes}")
        container = self._container(location)
        if isinstance(container, list):
            container[int(location[-1])] = _VALID_ITEM[str(location[-2])]
        else:
            del container[location[-1]]
        self._incomplete.add(location[:-1])

    def _report_setting(self, location: Location, error: InvalidSetting | UnknownName) -> None:
        origin = self.origins.get(self._existing_part(location))
        if isinstance(error, UnknownName):
            self.report(location, f"is {error.name!r}", str(error).partition("; ")[2], origin)
        else:
            self.report(location, f"is {error.value!r}", f"expected {error.expected}", origin)

    def _existing_part(self, location: Location) -> Location:
        """The start of a location that exists in the tree."""
        value: Any = self.tree
        for depth, part in enumerate(location):
            if part not in (value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()):
                return location[:depth]
            value = value[part]
        return location

    def _container(self, location: Location) -> Any:
        container: Any = self.tree
        for part in location[:-1]:
            container = container[part]
        return container

    def _value_text(self, location: Location, value: Any) -> str:
        if isinstance(value, (dict, list)):
            return "a mapping" if isinstance(value, dict) else "a list"
        return "empty" if value is None else repr(self.texts.get(location, value))


def _leaves(model: type[Settings], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys with single values, and their types. Lists and mappings with user-defined keys are skipped."""
    for name, info in model.model_fields.items():
        section = _section_in(info.annotation)
        if get_origin(info.annotation) in {tuple, Mapping}:
            continue
        if section is None:
            yield prefix + name, info.annotation
        else:
            yield from _leaves(section, f"{prefix}{name}.")


def _section_in(annotation: Any) -> type[Settings] | None:
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)), None)


def _section_at(location: Location) -> type[Settings]:
    """The class of the section at a location. The location of a policy or tool also has its name or index."""
    model: type[Settings] = ServiceConfig
    for part in location[:1] if location[0:1] in {("policies",), ("tools",)} else location:
        model = _section_in(model.model_fields[str(part)].annotation) or model
    return model


def leaf_values(value: Any, location: Location = ()) -> Iterator[tuple[Location, Any]]:
    """The locations and values of everything that is not a section."""
    if isinstance(value, Mapping) and value:
        for name, member in value.items():
            yield from leaf_values(member, (*location, name))
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from leaf_values(item, (*location, index))
    else:
        yield location, [] if value == () else value


def dotted_key(location: Location) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
