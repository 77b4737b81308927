"""Runs the statements of a flow, one after the other, from the syntax tree itself.

The values of a flow: what expressions come to.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Protocol

from minutebook.dsl import syntax as t
from minutebook.dsl.spec import INPUT, FlowSpec
from minutebook.errors import FlowFailed
from minutebook.prompt.markdown import prompt_text

_ORDER: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
}
_SUMS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
}


class Unusable(Exception):
    """An expression cannot be worked out with the values it has; whoever knows where it stands says so."""


def value_of(node: t.Expression, variables: Mapping[str, Any]) -> Any:
    """What an expression comes to.

    Raises:
        Unusable: with these values it comes to nothing.
    """
    match node:
        case t.Literally(value):
            return value
        case t.Variable(name):
            if name not in variables:
                raise Unusable(f"${name} has no value")
            return variables[name]
        case t.Member(of, name):
            return _member(value_of(of, variables), name.text)
        case t.Index(of, index):
            return _item(value_of(of, variables), value_of(index, variables))
        case t.ListOf(items):
            return [value_of(item, variables) for item in items]
        case t.Unary("not", operand):
            return not value_of(operand, variables)
        case t.Unary(_, operand):
            return -_number(value_of(operand, variables), "-")
        case t.Binary(operator, left, right):
            return _binary(operator, left, right, variables)


def items_of(value: Any) -> list[Any]:
    """What `for` goes through.

    Raises:
        Unusable: it is no list.
    """
    if isinstance(value, (list, tuple)):
        return list(value)
    raise Unusable(f"`for` goes through a list, and this is {kind(value)}")


def kind(value: Any) -> str:
    """What a value is, for messages."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", tuple: "a list"}
    return names.get(type(value), f"a {type(value).__name__}")


def _member(value: Any, name: str) -> Any:
    if is_dataclass(value):
        known = [each.name for each in fields(value)]
    elif isinstance(value, Mapping):
        known = list(map(str, value))
    else:
        raise Unusable(f"{kind(value)} has no field {name!r}")
    if name not in known:
        raise Unusable(f"{kind(value)} has no field {name!r}; it has {', '.join(known) or 'none'}")
    return value[name] if isinstance(value, Mapping) else getattr(value, name)


def _item(value: Any, index: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(index, str):
        return _member(value, index)
    if not isinstance(value, (list, tuple, str)):
        raise Unusable(f"{kind(value)} has no items")
    if type(index) is not int:
        raise Unusable(f"an index is a whole number, and this is {kind(index)}")
    if not -len(value) <= index < len(value):
        raise Unusable(f"there is no item {index}: there are {len(value)}")
    return value[index]


def _binary(operator: t.BinaryOperator, left: t.Expression, right: t.Expression, variables: Mapping[str, Any]) -> Any:
    one = value_of(left, variables)
    if operator == "or":
        return one or value_of(right, variables)
    if operator == "and":
        return one and value_of(right, variables)
    other = value_of(right, variables)
    match operator:
        case "==":
            return _plain(one) == _plain(other)
        case "!=":
            return _plain(one) != _plain(other)
        case "contains":
            return _contains(one, other)
        case "+":
            return _added(one, other)
        case "<" | ">" | "<=" | ">=":
            if not (isinstance(one, str) and isinstance(other, str)):
                one, other = _number(one, operator), _number(other, operator)
            return _ORDER[operator](one, other)
        case _:
            one, other = _number(one, operator), _number(other, operator)
            if operator == "/" and not other:
                raise Unusable("this divides by 0")
            return _SUMS[operator](one, other)


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return [*one, *other]
    if isinstance(one, str) or isinstance(other, str):
        return prompt_text(one) + prompt_text(other)
    return _number(one, "+") + _number(other, "+")


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return prompt_text(part) in whole
    if isinstance(whole, (list, tuple)):
        return any(_plain(item) == _plain(part) for item in whole)
    raise Unusable(f"`contains` looks into a text or a list, and this is {kind(whole)}")


def _number(value: Any, operator: str) -> int | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise Unusable(f"`{operator}` takes numbers, and this is {kind(value)}")


def _plain(value: Any) -> Any:
    """So that a list is equal to what holds the same, and true is not 1."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return (bool, value) if isinstance(value, bool) else value


class Stage(Protocol):
    """Who runs what a flow calls."""

    async def run_agent(self, name: str, given: Any) -> Any: ...

    async def call_prompt(self, name: str, given: Any, variables: dict[str, Any]) -> Any: ...

    async def run_flow(self, name: str, arguments: Sequence[Any], given: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Returned:
    value: Any


class Interpreter:
    """One run of one flow."""

    def __init__(self, flow: FlowSpec, stage: Stage, source: str) -> None:
        self._flow, self._stage, self._source = flow, stage, source

    async def run(self, arguments: Sequence[Any], given: Any) -> Any:
        """What the flow returns; None where it returns nothing.

        Raises:
            FlowFailed: a value is not what a statement needs.
        """
        variables = {INPUT: given, **dict(zip(self._flow.parameters, arguments, strict=True))}
        returned = await self._body(self._flow.body, variables)
        return returned.value if returned else None

    async def _body(self, statements: Sequence[t.Statement], variables: dict[str, Any]) -> _Returned | None:
        for statement in statements:
            if (returned := await self._statement(statement, variables)) is not None:
                return returned
        return None

    async def _statement(self, node: t.Statement, variables: dict[str, Any]) -> _Returned | None:
        match node:
            case t.Assign():
                variables[node.target.text] = await self._right(node.value, node.at, variables)
            case t.Perform():
                await self._action(node.action, node.at, variables)
            case t.Return():
                return _Returned(None if node.value is None else await self._right(node.value, node.at, variables))
            case t.If():
                for branch in node.branches:
                    if branch.condition is None or self._value(branch.condition, branch.at, variables):
                        return await self._body(branch.body, variables)
            case t.For():
                for item in self._checked(lambda: items_of(value_of(node.items, variables)), node.at):
                    variables[node.variable.text] = item
                    if (returned := await self._body(node.body, variables)) is not None:
                        return returned
            case t.Parallel():
                await self._parallel(node, variables)
        return None

    async def _parallel(self, node: t.Parallel, variables: dict[str, Any]) -> None:
        """All calls at once; the first that fails ends the others, and is what failed."""
        before = dict(variables)

        async def one(statement: t.Statement) -> None:
            match statement:
                case t.Assign(value=t.Action() as action):
                    variables[statement.target.text] = await self._action(action, statement.at, before)
                case t.Perform(action=action):
                    await self._action(action, statement.at, before)

        await together([lambda each=each: one(each) for each in node.body])  # type: ignore[misc]  # one lambda for each

    async def _right(self, node: t.Expression | t.Action, at: t.Position, variables: dict[str, Any]) -> Any:
        if isinstance(node, t.Action):
            return await self._action(node, at, variables)
        return self._value(node, at, variables)

    async def _action(self, action: t.Action, at: t.Position, variables: dict[str, Any]) -> Any:
        arguments = [self._value(each, at, variables) for each in action.arguments]
        given = arguments[0] if arguments and action.kind != "flow" else variables[INPUT]
        match action.kind:
            case "agent":
                return await self._stage.run_agent(action.name.text, given)
            case "llm":
                return await self._stage.call_prompt(action.name.text, given, variables)
            case "flow":
                return await self._stage.run_flow(action.name.text, arguments, given)

    def _value(self, node: t.Expression, at: t.Position, variables: dict[str, Any]) -> Any:
        return self._checked(lambda: value_of(node, variables), at)

    def _checked(self, work: Callable[[], Any], at: t.Position) -> Any:
        try:
            return work()
        except Unusable as error:
            raise FlowFailed(self._source, self._flow.name, at.line, str(error)) from None


async def together(work: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    """Do all of it at the same time; raise what the first failure raised, when the others have ended."""

    async def done(each: Callable[[], Awaitable[Any]]) -> None:
        await each()

    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(done(each))
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__
