"""Loads the configuration: defaults, overridden by the file, then the environment, then command-line flags.

Every value has an origin. A file with problems is rejected completely, and all of its problems are reported together.
"""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from minutebook.conversation.config import RETENTION
from minutebook.errors import InvalidConfig
from minutebook.service.config.schema import ServiceConfig
from minutebook.service.config.sources import DEFAULT, Sources, ValueSource, dotted_key, leaf_values

_LOG: Final = logging.getLogger("minutebook.service")
FILE_NAME: Final = "llm_config.yaml"
CONFIG_VARIABLE: Final = "MINUTEBOOK_CONFIG"
_PASSWORD: Final = re.compile(r"(://[^/?#@:]*:)[^/?#]*@")
_PERSISTENCE_KEYS: Final = tuple(
    f"conversation.retention.{name}" for name in ("persist_tool_invocations", "tool_persistence")
)


@dataclass(frozen=True, slots=True)
class CommandLineFlag:
    """A flag of the command line and its value."""

    name: str
    """With its dashes: --port."""
    value: Any
    """None if the flag is absent."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration and the origins of its values."""

    config: ServiceConfig
    origins: Mapping[str, ValueSource]
    """Dotted key → the origin of its value. Keys with default values are not listed."""
    path: Path | None = None
    """The configuration file, if there is one."""
    warnings: tuple[str, ...] = ()
    """A message for each key that has no effect because a newer key overrides it."""

    def origin(self, key: str) -> ValueSource:
        return self.origins.get(key, DEFAULT)


def config_path(environment: Mapping[str, str] | None = None) -> Path | None:
    """The default file: $MINUTEBOOK_CONFIG, else the first of `config_paths` that exists; None if there is none."""
    environment = os.environ if environment is None else environment
    path = environment.get(CONFIG_VARIABLE)
    return Path(path) if path else next(filter(Path.is_file, config_paths(environment)), None)


def config_paths(environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The current folder's file and the user's file."""
    config_home = Path((os.environ if environment is None else environment).get("XDG_CONFIG_HOME", ""))
    home = config_home if config_home.is_absolute() else Path.home() / ".config"
    return Path(FILE_NAME), home / "minutebook" / FILE_NAME


def load_config(
    path: Path | str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, CommandLineFlag] | None = None,
) -> LoadedConfig:
    """Load the configuration from a file, the environment and flags (dotted key → flag). None for `path` is no file.

    `environment` is by default the environment of the process.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidConfig: a key is unknown or a value is invalid; `others` are further problems.
    """
    path = None if path is None else Path(path)
    sources = Sources()
    if path is not None:
        sources.add_yaml(path.read_bytes(), str(path))
    sources.add_environment(os.environ if environment is None else environment)
    for key, flag in (flags or {}).items():
        if flag.value is not None:
            sources.set(key, flag.value, ValueSource("flag", flag.name))
    warnings = sources.prefer_retention()
    config = sources.config()
    if sources.problems:
        problems = sorted(sources.problems, key=lambda problem: (problem.line or 0, problem.column or 0))
        first = problems[0]
        raise InvalidConfig(first.file, first.line, first.column, first.key, first.problem, first.hint, problems[1:])
    origins = {
        dotted_key(location): origin
        for location, _ in leaf_values(config.model_dump())
        if (origin := sources.origin_of(location)) is not None
    }
    for key, other_key in (_PERSISTENCE_KEYS, _PERSISTENCE_KEYS[::-1]):
        if key in origins:  # each of the two determines the other
            origins.setdefault(other_key, origins[key])
    if config.conversation.policy == RETENTION and (origin := sources.origin_of(("conversation", "retention"))):
        origins.setdefault("conversation.policy", origin)  # the block determines the policy
    return LoadedConfig(config, origins, path, warnings)


class ConfigHolder:
    """Holds the current configuration. It stays if a changed file is invalid."""

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        flags: Mapping[str, CommandLineFlag] | None = None,
    ) -> None:
        self._path, self._environment, self._flags = path, environment, flags
        self.current = self._load()
        """The last valid configuration."""

    def reload(self) -> InvalidConfig | OSError | None:
        """Load the configuration again. If that fails, keep the current one and return the error."""
        try:
            self.current = self._load()
        except (InvalidConfig, OSError) as error:
            _LOG.error("the configuration was not reloaded and is unchanged: %s", error)
            return error
        _LOG.info("the configuration was reloaded from %s", self.current.path)
        return None

    def _load(self) -> LoadedConfig:
        loaded = load_config(self._path, environment=self._environment, flags=self._flags)
        for warning in loaded.warnings:
            _LOG.warning("%s", warning)
        return loaded


def flat_settings(config: ServiceConfig) -> dict[str, Any]:
    """Dotted key → value, as JSON values. Passwords in URLs are replaced by ***."""
    return {
        dotted_key(location): _PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value
        for location, value in leaf_values(config.model_dump())
    }
