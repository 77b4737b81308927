"""Tools: contexts, results, the `Tool` class, and tools made from functions.

What sections see when they are rendered, and tools when they are called.

What a tool gives back.

Generic classes that know, while they are being made, what they are generic in.

`typing` tells an instance its type arguments only after `__init__`, which is too late to check a template's
placeholders or a tool's parameters. So `Tool[Params, Result]` is a subclass of `Tool` that carries them.

What a model can call: a name, a dataclass of parameters, and a handler.

Tools from plain functions: the parameters from the signature, the description from the docstring.

    @tool
    def search(query: Annotated[str, "what to look for"], limit: int = 10) -> list[Hit]:
        '''Search the catalogue.'''

A parameter named `context` is given the `ToolContext` and not shown to the model.
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

from minutebook.errors import InvalidSetting, UnsupportedType
from minutebook.history.protocol import EventBus, SessionProtocol
from minutebook.prompt.parse import parse_arguments
from minutebook.prompt.schema import dump_text, json_schema
from minutebook.prompt.visibility import SectionPath, SectionVisibility

if TYPE_CHECKING:
    from minutebook.prompt.template import Prompt, RenderedPrompt


@dataclass(frozen=True)
class RenderContext:
    """What a section may know of the rendering it is part of.

    A section that shows session state reads it from here, so that one prompt serves many sessions. Overrides may name
    paths below a section that only the section itself knows, such as the steps of a plan.
    """

    session: SessionProtocol | None = None
    visibility_overrides: Mapping[SectionPath, SectionVisibility] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolContext:
    """What a tool's handler may know of the call."""

    prompt: "Prompt[Any]"
    rendered_prompt: "RenderedPrompt[Any]"
    session: SessionProtocol | None
    deadline: Any = None
    """When the evaluation must be done; the agent's own type."""
    bus: EventBus | None = None
    call_id: str | None = None
    """The id by which the provider knows this call."""
    next_tokens: Callable[[], int] | None = None
    """Counts what the next call of the model would send, as things stand: its messages, and the tools it is offered."""


Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True)
class ToolResult(Generic[Result_co]):
    """A message for the model, and the value behind it for the session."""

    message: str
    value: Result_co | None = None
    success: bool = True
    show_value: bool = True
    """Whether the model reads the value too; False where it would only hear its own words again."""

    @staticmethod
    def ok(message: str, value: Result | None = None, *, show_value: bool = True) -> "ToolResult[Result]":
        """It worked."""
        return ToolResult(message, value, success=True, show_value=show_value)

    @staticmethod
    def error(message: str, value: Result | None = None, *, show_value: bool = True) -> "ToolResult[Result]":
        """It did not; the message says why, and what the model can do."""
        return ToolResult(message, value, success=False, show_value=show_value)

    def render(self) -> str:
        """The text of the tool message: the message, then the value.

        A value that has a `render()` shows itself by it, text is shown as it is, and anything else as JSON. What has
        no JSON form is for the session only.
        """
        shown = _text(self.value) if self.show_value else ""
        return "\n\n".join(part for part in (self.message, shown) if part)


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    render = getattr(value, "render", None)
    if callable(render):
        return str(render())
    try:
        return dump_text(value)
    except (UnsupportedType, InvalidSetting):
        return ""


class Typed:
    """Comes before `Generic[…]` among the bases; `type_arguments` is empty where none were given."""

    type_arguments: ClassVar[tuple[Any, ...]] = ()

    @classmethod
    def __class_getitem__(cls, item: Any) -> Any:
        alias = super().__class_getitem__(item)  # type: ignore[misc]  # Generic comes next, and checks their number
        made: Any = cls
        return alias if alias.__parameters__ else _with_arguments(made, alias.__args__)


@lru_cache(maxsize=1024)
def _with_arguments(cls: Any, arguments: tuple[Any, ...]) -> Any:
    names = ", ".join(getattr(argument, "__name__", str(argument)) for argument in arguments)
    space = {"type_arguments": arguments, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls)(f"{cls.__name__}[{names}]", (cls,), space)


Params = TypeVar("Params")
Params_contra = TypeVar("Params_contra", contravariant=True)

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
) -> AnyTool: ...
@overload
def tool(
    *, name: str | None = ..., description: str | None = ..., timeout_seconds: float | None = ...
) -> Callable[[Callable[..., Any]], AnyTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float | None = None,
) -> AnyTool | Callable[[Callable[..., Any]], AnyTool]:
    """The tool that calls this function; what it returns becomes the result, unless it is a ToolResult already.

    A decorator too, with or without options.

    Raises:
        InvalidSetting: a parameter has no type, or cannot be given by name; or there is no description.
    """
    if function is None:
        return partial(tool, name=name, description=description, timeout_seconds=timeout_seconds)
    name = name or function.__name__
    description = inspect.getdoc(function) or "" if description is None else description
    hints = get_type_hints(function, include_extras=True)
    params = make_dataclass(_camel(name), _fields(function, hints, name), frozen=True)
    typed: Any = Tool.__class_getitem__((params, hints.get("return", Any)))
    made: AnyTool = typed(
        name=name, description=description, handler=_handler(function), timeout_seconds=timeout_seconds
    )
    return made


def _fields(function: Callable[..., Any], hints: dict[str, Any], tool_name: str) -> list[tuple[str, Any, Any]]:
    made = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == _CONTEXT:
            continue
        where = f"parameter {parameter.name!r} of tool {tool_name!r}"
        if parameter.kind not in _BY_NAME:
            raise InvalidSetting(where, parameter.kind.description, "one that can be given by name")
        if parameter.name not in hints:
            raise InvalidSetting(where, "without a type", "it one, so that the model knows what to give")
        made.append((parameter.name, hints[parameter.name], _field(parameter.default)))
    return made


def _field(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return field(kw_only=True)
    if type(default).__hash__ is None:  # a list or dict, which a dataclass wants made anew each time
        return field(default_factory=partial(deepcopy, default), kw_only=True)
    return field(default=default, kw_only=True)


def _handler(function: Callable[..., Any]) -> Callable[..., Any]:
    wants_context = _CONTEXT in inspect.signature(function).parameters

    def given(params: Any, context: ToolContext) -> dict[str, Any]:
        arguments = {each.name: getattr(params, each.name) for each in fields(params)}
        return arguments | ({_CONTEXT: context} if wants_context else {})

    async def later(params: Any, *, context: ToolContext) -> ToolResult[Any]:
        return _result(await function(**given(params, context)))

    def now(params: Any, *, context: ToolContext) -> ToolResult[Any]:
        return _result(function(**given(params, context)))

    return later if inspect.iscoroutinefunction(function) else now


def _result(value: Any) -> ToolResult[Any]:
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(value, value, show_value=False)
    return ToolResult("Done." if value is None else "", value)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("-", "_").split("_")) + "Params"
