"""What a model can call: a name, a dataclass of parameters, and a handler."""

import inspect
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from types import NoneType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from minutebook.errors import InvalidSetting
from minutebook.prompt.context import ToolContext
from minutebook.prompt.dump import dump_text
from minutebook.prompt.parse import parse_arguments
from minutebook.prompt.result import ToolResult
from minutebook.prompt.schema import json_schema
from minutebook.prompt.typed import Typed

Params = TypeVar("Params")
Result = TypeVar("Result")
Params_contra = TypeVar("Params_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Handler(Protocol[Params_contra, Result_co]):
    """What a tool does when it is called; an async function of the same form will do too."""

    def __call__(
        self, params: Params_contra, /, *, context: ToolContext
    ) -> ToolResult[Result_co] | Awaitable[ToolResult[Result_co]]: ...


@dataclass(frozen=True)
class NoParams:  # what a Tool[None, …] takes; a docstring would be told to the model
    pass


@dataclass(frozen=True)
class ToolExample(Generic[Params, Result]):
    """A call that shows the model how the tool is meant, and what it would answer."""

    description: str
    input: Params
    output: Result | None = None

    def render(self) -> str:
        answer = "" if self.output is None else f" -> {ToolResult('', self.output).render()}"
        return f"Example: {self.description}: {dump_text(self.input)}{answer}"


@dataclass(frozen=True, kw_only=True)
class Tool(Typed, Generic[Params, Result]):
    """`Tool[Params, Result](name=…, description=…, handler=…)`; Params is a dataclass, or None for a tool without any."""

    name: str
    description: str
    handler: Handler[Params, Result]
    examples: Sequence[ToolExample[Params, Result]] = ()
    accepts_overrides: bool = True
    """Whether `PromptTemplate.override` may change the description."""
    timeout_seconds: float | None = None
    """How long a call may take; None for as long as the evaluation has."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSetting("a tool's name", self.name, "1 to 64 letters, digits, _ and -")
        where = f"tool {self.name!r}"
        if not self.type_arguments:
            raise InvalidSetting(where, "without types", "them: Tool[Params, Result](…)")
        if not is_dataclass(self.params_type):
            raise InvalidSetting(f"the params of {where}", self.params_type, "a dataclass, or None")
        if not self.description.strip():
            raise InvalidSetting(f"the description of {where}", self.description, "what it does and when to use it")
        if not callable(self.handler):
            raise InvalidSetting(f"the handler of {where}", self.handler, "a function (params, *, context)")
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise InvalidSetting(f"timeout_seconds of {where}", self.timeout_seconds, "more than 0, or None")
        object.__setattr__(self, "examples", tuple(self.examples))
        for example in self.examples:
            if self.takes_params and not isinstance(example.input, self.params_type):
                raise InvalidSetting(f"an example of {where}", example.input, f"a {self.params_type.__name__}")
        json_schema(self.params_type)  # now, not when the model is called

    @property
    def params_type(self) -> type:
        """The dataclass of its parameters."""
        return cast("type", self.type_arguments[0]) if self.takes_params else NoParams

    @property
    def result_type(self) -> Any:
        """The type of the value of its results."""
        return self.type_arguments[1]

    @property
    def takes_params(self) -> bool:
        return self.type_arguments[0] is not NoneType

    @property
    def is_async(self) -> bool:
        """Whether the handler is an async function."""
        called = self.handler if inspect.isroutine(self.handler) else type(self.handler).__call__
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(called)

    def parse(self, arguments: str | Mapping[str, Any], *, coerce: bool = False) -> Params:
        """The parameters that a call's arguments stand for.

        Raises:
            ToolValidationError: they do not fit; its message can be the tool's result.
        """
        params: Any = parse_arguments(self.params_type, arguments, self.name, coerce=coerce)
        return cast("Params", params if self.takes_params else None)

    def call(
        self, arguments: str | Mapping[str, Any], *, context: ToolContext
    ) -> ToolResult[Result] | Awaitable[ToolResult[Result]]:
        """Parse the arguments and hand them to the handler; what an async one gives must be awaited."""
        return self.handler(self.parse(arguments), context=context)

    def schema(self, *, strict: bool = False) -> dict[str, Any]:
        """The JSON Schema of its parameters."""
        return json_schema(self.params_type, strict=strict)

    def full_description(self) -> str:
        """The description with its examples."""
        return "\n".join([self.description.strip(), *(example.render() for example in self.examples)])

    def spec(self, *, strict: bool = False) -> dict[str, Any]:
        """The tool as the chat-completions API wants it."""
        function = {"name": self.name, "description": self.full_description(), "parameters": self.schema(strict=strict)}
        return {"type": "function", "function": function | ({"strict": True} if strict else {})}


AnyTool: TypeAlias = Tool[Any, Any]
