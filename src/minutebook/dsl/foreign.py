"""Tools whose parameters are a JSON Schema that somebody else wrote, instead of a dataclass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from minutebook.errors import ToolValidationError, UnsupportedType
from minutebook.prompt.answer import decoded
from minutebook.prompt.tool import Tool


@dataclass(frozen=True)
class JsonArguments:
    """What a model gives to a tool that we know only by its schema."""

    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JsonTool(Tool[JsonArguments, Any]):
    """A tool that shows the model a schema as it is, and leaves it to the tool's owner to hold calls to it."""

    parameters: Mapping[str, Any]
    """The JSON Schema of an object."""

    def parse(self, arguments: str | Mapping[str, Any], *, coerce: bool = False) -> JsonArguments:  # noqa: ARG002 - there is nothing to coerce to
        data: Any = arguments
        if isinstance(arguments, str):
            try:
                data = decoded(arguments) if arguments.strip() else {}
            except ValueError as error:
                raise ToolValidationError(f"The arguments of {self.name} are not JSON: {error}") from error
        if not isinstance(data, Mapping):
            raise ToolValidationError(f"The arguments of {self.name} must be one JSON object.")
        return JsonArguments(dict(data))

    def schema(self, *, strict: bool = False) -> dict[str, Any]:
        if strict:
            raise UnsupportedType(f"tool {self.name!r}", "somebody else's schema", "use strict=False")
        return {"type": "object", "properties": {}, **cast("dict[str, Any]", self.parameters)}
