"""Tools that a model can call: the `Tool` class, contexts, results, and the `tool` decorator.

A tool has a name, a dataclass of parameters and a handler. `tool` creates one from a function: the parameters from the
signature, the description from the docstring.

    @tool
    def search(query: Annotated[str, "what to look for"], limit: int = 10) -> list[Hit]:
        '''Search the catalogue.'''

A parameter named `context` receives the `ToolContext` and is not shown to the model.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from functools import lru_cache, partial
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_type_hints,
    overload,
)

from minutebook.errors import InvalidSetting, MissingSetting
from minutebook.history.protocol import EventBus, SessionProtocol
from minutebook.prompt.parse import parse_arguments
from minutebook.prompt.schema import json_schema, json_text, tool_value_text
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.record.message import Message

if TYPE_CHECKING:
    from minutebook.prompt.template import Prompt, RenderedPrompt


@dataclass(frozen=True)
class RenderContext:
    """The session and the visibility overrides of one rendering, passed to every section.

    A section that shows session state reads it from here, so that one prompt serves many sessions. Overrides may name
    paths below a section that only the section itself can resolve, such as the steps of a plan.
    """

    session: SessionProtocol | None = None
    visibility_overrides: Mapping[SectionPath, SectionVisibility] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolContext:
    """The prompt, the session and the limits of a tool call, passed to the handler."""

    prompt: "Prompt[Any]"
    rendered_prompt: "RenderedPrompt[Any]"
    session: SessionProtocol | None
    deadline: Any = None
    """The evaluation's `Deadline`."""
    bus: EventBus | None = None
    call_id: str | None = None
    """The provider's id of the call."""
    next_tokens: Callable[[], int] | None = None
    """Counts the tokens that the next model call would send: the messages and the tools."""
    record: Sequence[Message] = ()
    """All messages of the conversation, also those that the view of the model call leaves out."""


Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True)
class ToolResult(Generic[Result_co]):
    """The result of a tool call: a message for the model, and a value for the model and the caller, or for the caller only."""

    message: str
    value: Result_co | None = None
    success: bool = True
    show_value: bool = True
    """Whether the value is sent to the model too; False if it only repeats the message or the call."""

    @staticmethod
    def ok(message: str, value: Result | None = None, *, show_value: bool = True) -> "ToolResult[Result]":
        """A successful result."""
        return ToolResult(message, value, success=True, show_value=show_value)

    @staticmethod
    def error(message: str, value: Result | None = None, *, show_value: bool = True) -> "ToolResult[Result]":
        """A failed result; the message is the reason and what the model can do."""
        return ToolResult(message, value, success=False, show_value=show_value)

    def render(self) -> str:
        """The text of the tool message: the message, then the value.

        A value with a `render()` method is rendered by it, a str is unchanged, and other values are written as JSON.
        Parts that JSON does not have, such as decimals and bytes, are written as text.

        Raises:
            UnsupportedType: the value cannot be written as JSON, because it contains itself.
        """
        value_text = _value_text(self.value) if self.show_value else ""
        return "\n\n".join(part for part in (self.message, value_text) if part)


def _value_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    render = getattr(value, "render", None)
    if callable(render) and not isinstance(value, type):
        return str(render())
    return tool_value_text(value)


class ReifiedGeneric:
    """A base for generic classes that know their type arguments in `__init__`. It comes before `Generic[…]`.

    `typing` sets the type arguments of an instance after `__init__`, too late to check a template's placeholders or a
    tool's parameters. So `Tool[Params, Result]` is a subclass of `Tool` with the attribute `type_arguments`.
    """

    type_arguments: ClassVar[tuple[Any, ...]] = ()
    """Empty if the class is used without arguments."""

    @classmethod
    def __class_getitem__(cls, item: Any) -> Any:
        alias = super().__class_getitem__(item)  # type: ignore[misc]  # Generic's method, which checks their number
        generic: Any = cls
        return alias if alias.__parameters__ else _with_arguments(generic, alias.__args__)


@lru_cache(maxsize=1024)
def _with_arguments(cls: Any, arguments: tuple[Any, ...]) -> Any:
    names = ", ".join(getattr(argument, "__name__", str(argument)) for argument in arguments)
    namespace = {"type_arguments": arguments, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls)(f"{cls.__name__}[{names}]", (cls,), namespace)


Params = TypeVar("Params")
Params_contra = TypeVar("Params_contra", contravariant=True)

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Handler(Protocol[Params_contra, Result_co]):
    """The function that a tool calls; it may be async."""

    def __call__(
        self, params: Params_contra, /, *, context: ToolContext
    ) -> ToolResult[Result_co] | Awaitable[ToolResult[Result_co]]: ...


@dataclass(frozen=True)
class NoParams:  # the parameters of a Tool[None, …]; a docstring would become part of the schema
    pass


@dataclass(frozen=True)
class ToolExample(Generic[Params, Result]):
    """An example call in the tool's description, with its result."""

    description: str
    input: Params
    output: Result | None = None

    def render(self) -> str:
        answer = "" if self.output is None else f" -> {ToolResult('', self.output).render()}"
        return f"Example: {self.description}: {json_text(self.input)}{answer}"


@dataclass(frozen=True, kw_only=True)
class Tool(ReifiedGeneric, Generic[Params, Result]):
    """`Tool[Params, Result](name=…, description=…, handler=…)`; Params is a dataclass, or None for no parameters."""

    name: str
    description: str
    handler: Handler[Params, Result]
    examples: Sequence[ToolExample[Params, Result]] = ()
    accepts_overrides: bool = True
    """Whether `PromptTemplate.override` may change the description."""
    timeout_seconds: float | None = None
    """The maximum duration of a call; None for the rest of the evaluation's time."""
    idempotent: bool = False
    """Whether a call may be repeated. It matters if the process of a stored run is killed during a call: if true, the next run
    calls the model again; if false, it records a result that says that the call was interrupted."""

    def __post_init__(self) -> None:
        if not _TOOL_NAME.fullmatch(self.name):
            raise InvalidSetting("the name of a tool", self.name, "1 to 64 letters, digits, _ and -")
        where = f"tool {self.name!r}"
        if not self.type_arguments:
            raise MissingSetting(f"the type of {where}", "write Tool[Params, Result](…)")
        if not is_dataclass(self.params_type):
            raise InvalidSetting(f"the params of {where}", self.params_type, "a dataclass, or None")
        if not self.description.strip():
            raise InvalidSetting(
                f"the description of {where}", self.description, "what the tool does and when to use it"
            )
        if not callable(self.handler):
            raise InvalidSetting(f"the handler of {where}", self.handler, "a function (params, *, context)")
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise InvalidSetting(f"timeout_seconds of {where}", self.timeout_seconds, "more than 0, or None")
        object.__setattr__(self, "examples", tuple(self.examples))
        for example in self.examples:
            if self.takes_params and not isinstance(example.input, self.params_type):
                raise InvalidSetting(f"an example of {where}", example.input, f"a {self.params_type.__name__}")
        json_schema(self.params_type)  # raises here, before any model call

    @property
    def params_type(self) -> type:
        """The dataclass of the parameters."""
        return cast("type", self.type_arguments[0]) if self.takes_params else NoParams

    @property
    def result_type(self) -> Any:
        """The type of `ToolResult.value`."""
        return self.type_arguments[1]

    @property
    def takes_params(self) -> bool:
        return self.type_arguments[0] is not NoneType

    @property
    def is_async(self) -> bool:
        """Whether the handler is an async function."""
        function = self.handler if inspect.isroutine(self.handler) else type(self.handler).__call__
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(function)

    def parse(self, arguments: str | Mapping[str, Any], *, coerce: bool = False) -> Params:
        """Parse the arguments of a call.

        Raises:
            ToolValidationError: the arguments do not fit. The message can be the tool's result.
        """
        params: Any = parse_arguments(self.params_type, arguments, self.name, coerce=coerce)
        return cast("Params", params if self.takes_params else None)

    def call(
        self, arguments: str | Mapping[str, Any], *, context: ToolContext
    ) -> ToolResult[Result] | Awaitable[ToolResult[Result]]:
        """Parse the arguments and call the handler; await the result if the handler is async."""
        return self.handler(self.parse(arguments), context=context)

    def schema(self, *, strict: bool = False) -> dict[str, Any]:
        """The JSON Schema of the parameters."""
        return json_schema(self.params_type, strict=strict)

    def full_description(self) -> str:
        """The description and the examples."""
        return "\n".join([self.description.strip(), *(example.render() for example in self.examples)])

    def spec(self, *, strict: bool = False) -> dict[str, Any]:
        """The tool in the format of the chat-completions API."""
        function = {"name": self.name, "description": self.full_description(), "parameters": self.schema(strict=strict)}
        return {"type": "function", "function": function | ({"strict": True} if strict else {})}


AnyTool: TypeAlias = Tool[Any, Any]


_CONTEXT: Final = "context"
_BY_NAME: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout_seconds: float | None = ...,
    idempotent: bool = ...,
) -> AnyTool: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout_seconds: float | None = ...,
    idempotent: bool = ...,
) -> Callable[[Callable[..., Any]], AnyTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float | None = None,
    idempotent: bool = False,
) -> AnyTool | Callable[[Callable[..., Any]], AnyTool]:
    """Create a tool that calls a function. A return value other than a ToolResult becomes the value of one.

    `tool` is also a decorator, with or without options.

    Raises:
        InvalidSetting: a parameter is positional-only or variadic, or there is no description.
        MissingSetting: a parameter has no type.
    """
    if function is None:
        return partial(tool, name=name, description=description, timeout_seconds=timeout_seconds, idempotent=idempotent)
    if not callable(function):
        raise InvalidSetting("function", function, "a function with type hints and a docstring")
    name = name or function.__name__
    description = inspect.getdoc(function) or "" if description is None else description
    hints = get_type_hints(function, include_extras=True)
    params = make_dataclass(_params_class_name(name), _param_fields(function, hints, name), frozen=True)
    tool_class: Any = Tool.__class_getitem__((params, hints.get("return", Any)))
    created: AnyTool = tool_class(
        name=name,
        description=description,
        handler=_handler(function),
        timeout_seconds=timeout_seconds,
        idempotent=idempotent,
    )
    return created


def _param_fields(function: Callable[..., Any], hints: dict[str, Any], tool_name: str) -> list[tuple[str, Any, Any]]:
    """The fields of the parameters' dataclass: name, type and default."""
    params = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == _CONTEXT:
            continue
        where = f"parameter {parameter.name!r} of tool {tool_name!r}"
        if parameter.kind not in _BY_NAME:
            raise InvalidSetting(where, parameter.kind.description, "a parameter that can be passed by name")
        if parameter.name not in hints:
            raise MissingSetting(f"the type of {where}", "annotate it: the type is part of the tool's schema")
        params.append((parameter.name, hints[parameter.name], _field(parameter.default)))
    return params


def _field(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return field(kw_only=True)
    if type(default).__hash__ is None:  # a list or dict, for which a dataclass requires a factory
        return field(default_factory=partial(deepcopy, default), kw_only=True)
    return field(default=default, kw_only=True)


def _handler(function: Callable[..., Any]) -> Callable[..., Any]:
    takes_context = _CONTEXT in inspect.signature(function).parameters

    def arguments(params: Any, context: ToolContext) -> dict[str, Any]:
        values = {param.name: getattr(params, param.name) for param in fields(params)}
        return values | ({_CONTEXT: context} if takes_context else {})

    async def call_async(params: Any, *, context: ToolContext) -> ToolResult[Any]:
        return _as_tool_result(await function(**arguments(params, context)))

    def call(params: Any, *, context: ToolContext) -> ToolResult[Any]:
        return _as_tool_result(function(**arguments(params, context)))

    return call_async if inspect.iscoroutinefunction(function) else call


def _as_tool_result(value: Any) -> ToolResult[Any]:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(value, value, show_value=False)
    return ToolResult("Done." if value is None else "", value)


def _params_class_name(tool_name: str) -> str:
    return "".join(part.capitalize() for part in tool_name.replace("-", "_").split("_")) + "Params"
