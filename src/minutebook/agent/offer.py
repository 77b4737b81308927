"""What a call offers the model besides messages: the tools it may call, and the form of the answer."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from minutebook.agent.request import OutputSchema
from minutebook.errors import UnsupportedType
from minutebook.prompt.rendered import RenderedPrompt
from minutebook.prompt.schema import json_schema
from minutebook.prompt.tool import AnyTool
from minutebook.tokens import TokenCounter


class Offer:
    """The tools and the answer's schema of a rendered prompt, in the form of chat completions."""

    def __init__(self, rendered: RenderedPrompt[Any], *, strict_tools: bool) -> None:
        self.tools: Sequence[Mapping[str, Any]] = tuple(_spec(tool, strict=strict_tools) for tool in rendered.tools)
        wanted = rendered.output_type if rendered.native_output else None
        self.output = None if wanted is None else _schema(wanted)

    def tokens(self, counter: TokenCounter) -> int:
        """What all this adds to a call, about: providers write it into the prompt in ways of their own."""
        return counter.count(json.dumps(self.tools)) if self.tools else 0


def _spec(tool: AnyTool, *, strict: bool) -> dict[str, Any]:
    try:
        return tool.spec(strict=strict)
    except UnsupportedType:  # it has a schema, but not one that providers can hold a model to
        return tool.spec()


def _schema(wanted: type) -> OutputSchema:
    try:
        return OutputSchema(wanted.__name__, json_schema(wanted, strict=True), strict=True)
    except UnsupportedType:
        return OutputSchema(wanted.__name__, json_schema(wanted), strict=False)
