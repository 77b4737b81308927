"""Writes the generated pages and the `.pyi` files: `python docs/generate.py`. A test fails if one is stale."""

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import api_reference
import architecture
import cli_reference
import lab_example
import sync_stub

HERE = Path(__file__).parent / "reference"


HTTP_TITLES = {"as OpenAI": "OpenAI's API"}
"""Tags of the OpenAPI document → titles in the reference."""


def cli() -> str:
    return api_reference.HEAD.replace("the docstrings", "the commands") + cli_reference.command_reference()


def http() -> str:
    """A row for every endpoint of the service."""
    from minutebook.service.app import build_service, create_app
    from minutebook.service.config.loader import CommandLineFlag, ConfigHolder

    flags = {
        "database.url": CommandLineFlag("here", "memory:"),
        "upstream.url": CommandLineFlag("here", "http://127.0.0.1:1"),
    }
    app = create_app(build_service(ConfigHolder(None, environment={}, flags=flags)))
    parts = [
        api_reference.HEAD,
        "# HTTP API\n\nA running service has the complete description at `/openapi.json`. All errors have the same shape: ",
    ]
    parts.append('`{"error": {"message", "type", "param", "code"}}`.\n')
    rows: dict[str, list[str]] = {}
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            description = " ".join(operation.get("description", "").partition("\n\n")[0].split())
            rows.setdefault(operation["tags"][0], []).append(f"| `{method.upper()} {path}` | {description} |\n")
    for tag, tag_rows in rows.items():
        parts += [f"\n## {HTTP_TITLES.get(tag, tag.capitalize())}\n\n| | |\n|---|---|\n", *tag_rows]
    return "".join(parts)


def stub(package: str) -> str:
    """The `.pyi` file of a package, for type checkers and editors: its names are imported on first use."""
    module = import_module(package)
    lines = [
        f"from {package}.{home} import (\n{''.join(f'    {name} as {name},' + chr(10) for name in sorted(names))})\n"
        for home, names in sorted(module._EXPORTS.items())
    ]
    names = "".join(f'    "{name}",\n' for name in module.__all__)
    version = "__version__: str\n" if package == "minutebook" else ""
    return f"{''.join(lines)}\n{version}__all__ = [\n{names}]\n"


PAGES = {
    HERE / "api.md": api_reference.overview,
    **{HERE / "api" / f"{name}.md": partial(api_reference.package_page, name) for name in api_reference.PACKAGES},
    HERE / "cli.md": cli,
    HERE / "http.md": http,
    architecture.PAGE: architecture.page,
    lab_example.PAGE: lab_example.picture,
    sync_stub.PAGE: sync_stub.sync_stub,
    **{
        Path(import_module(package).__file__ or "").with_suffix(".pyi"): partial(stub, package)
        for package in ("minutebook", *(f"minutebook.{name}" for name in api_reference.PACKAGES if name != "errors"))
    },
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        page.write_text(make(), encoding="utf-8")
        sys.stdout.write(f"wrote {page.relative_to(HERE.parents[1])}\n")
