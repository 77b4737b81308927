"""Tools from plain functions: the parameters from the signature, the description from the docstring.

    @tool
    def search(query: Annotated[str, "what to look for"], limit: int = 10) -> list[Hit]:
        '''Search the catalogue.'''

A parameter named `context` is given the `ToolContext` and not shown to the model.
"""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import field, fields, make_dataclass
from functools import partial
from typing import Any, Final, get_type_hints, overload

from minutebook.errors import InvalidSetting
from minutebook.prompt.context import ToolContext
from minutebook.prompt.result import ToolResult
from minutebook.prompt.tool import AnyTool, Tool

_CONTEXT: Final = "context"
_BY_NAME: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


def tool_from(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float | None = None,
) -> AnyTool:
    """The tool that calls this function; what it returns becomes the result, unless it is a ToolResult already.

    Raises:
        InvalidSetting: a parameter has no type, or cannot be given by name; or there is no description.
    """
    name = name or function.__name__
    description = inspect.getdoc(function) or "" if description is None else description
    hints = get_type_hints(function, include_extras=True)
    params = make_dataclass(_camel(name), _fields(function, hints, name), frozen=True)
    typed: Any = Tool.__class_getitem__((params, hints.get("return", Any)))
    made: AnyTool = typed(
        name=name, description=description, handler=_handler(function), timeout_seconds=timeout_seconds
    )
    return made


@overload
def tool(function: Callable[..., Any], /) -> AnyTool: ...
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
    """`tool_from` as a decorator, with or without options."""
    make = partial(tool_from, name=name, description=description, timeout_seconds=timeout_seconds)
    return make if function is None else make(function)


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
