"""Public names of a package that load on first use, so that importing a package stays cheap and needs no extra."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minutebook.errors import MissingExtra

_EXTRAS = {
    "aiohttp": "service",
    "anthropic": "anthropic",
    "cryptography": "encryption",
    "fastapi": "service",
    "jinja2": "service",
    "google": "adk",
    "lark": "dsl",
    "mcp": "mcp",
    "openai": "openai",
    "orjson": "service",
    "opentelemetry": "otel",
    "procrastinate": "postgres",
    "prometheus_client": "service",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
    "redis": "redis",
    "starlette": "service",
    "uvicorn": "service",
    "xllamacpp": "local",
    "yaml": "service",
}
"""Module of an optional library → the extra that installs it."""
_LIBRARIES = {"google": "google-adk", "opentelemetry": "opentelemetry-api", "yaml": "pyyaml"}
"""Module → the name of its library, if that is another one."""


def missing_extra(error: ModuleNotFoundError) -> "MissingExtra | None":
    """The error with the pip command, if the missing module is a part of an optional library."""
    from minutebook.errors import MissingExtra

    library = (error.name or "").partition(".")[0]
    return MissingExtra(_LIBRARIES.get(library, library), _EXTRAS[library]) if library in _EXTRAS else None


def import_with_extra(module: str) -> ModuleType:
    """Import a module of ours that may need an optional library.

    Raises:
        MissingExtra: the library is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        raise missing from error


class _ListedName(str):
    """A name from `__all__` or `dir`: if its extra is missing, `hasattr` is False, so `pydoc` and `import *` skip it.

    Any other string raises `MissingExtra`, because that is a name which the program itself uses.
    """

    __slots__ = ()


class _PublicNames(list[str]):
    """`__all__` of a package. `from package import *` reads it by index and gets only the names that can be loaded."""

    def __init__(self, package: str, names: Iterable[str]) -> None:
        super().__init__(map(_ListedName, names))
        self._package = package

    def __getitem__(self, index: "Any") -> "Any":
        return [name for name in self if hasattr(sys.modules[self._package], name)][index]


def exports(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of `package`, from a table of its modules and their public names.

    A package's `__init__.pyi`, which `make docs` writes from the same table, tells type checkers the names.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_with_extra(f"{package}.{module_of[name]}"), name)
        except ImportError as error:
            from minutebook.errors import MissingExtra

            if type(name) is _ListedName and isinstance(error, MissingExtra):
                raise AttributeError(str(error)) from error
            raise
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        own_names = (name for name in vars(sys.modules[package]) if name.startswith("__"))
        return sorted({*map(_ListedName, module_of), *own_names})

    return _PublicNames(package, sorted(module_of)), load, names
