"""The OpenAPI document of the service, true to what it answers."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from minutebook.service.shapes import errors

_VALIDATION: Final = "HTTPValidationError"
"""What FastAPI says that it answers to bad requests; ours have the shape of all errors, and status 400."""
_OPEN: Final = frozenset({"/healthz", "/readyz"})


def describe(app: FastAPI) -> None:
    """Have an app describe itself as it is, with the errors that any request may be answered with."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            for path, operations in made["paths"].items():
                for operation in operations.values():
                    _correct(operation, everybody=path in _OPEN)
            for name in (_VALIDATION, "ValidationError"):
                made.get("components", {}).get("schemas", {}).pop(name, None)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _correct(operation: dict[str, Any], *, everybody: bool) -> None:
    responses = operation["responses"]
    if _VALIDATION in str(responses.get("422")):
        del responses["422"]
    if not everybody:
        for status, told in errors().items():
            responses.setdefault(
                str(status),
                {
                    "description": told.get("description", "An error."),
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
                },
            )
