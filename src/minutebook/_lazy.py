"""Public names of a package that load on first use, so that importing a package stays cheap and needs no extra."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

_EXTRAS = {
    "aiohttp": "service",
    "anthropic": "anthropic",
    "cryptography": "encryption",
    "fastapi": "service",
    "google": "adk",
    "lark": "dsl",
    "mcp": "mcp",
    "openai": "openai",
    "procrastinate": "postgres",
    "prometheus_client": "service",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
    "redis": "redis",
    "starlette": "service",
    "uvicorn": "service",
    "yaml": "service",
}
"""Module of an optional library → the extra that installs it."""


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
            value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        except ModuleNotFoundError as error:
            from minutebook.errors import MissingExtra

            missing = (error.name or "").partition(".")[0]
            if missing not in _EXTRAS:
                raise
            raise MissingExtra(missing, _EXTRAS[missing]) from error
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return sorted(module_of), load, names
