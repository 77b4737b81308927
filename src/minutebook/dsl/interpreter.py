"""The interpreter of flows: evaluates expressions and runs statements directly from the syntax tree."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Protocol

from minutebook.dsl import syntax as t
from minutebook.dsl.spec import INPUT, FlowSpec
from minutebook.errors import FlowFailed
from minutebook.prompt.markdown import text_in_prompt

_ORDER: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
}
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
}


class UnusableValue(Exception):
    """An expression cannot be evaluated with these values. The interpreter adds the position."""


def value_of(node: t.Expression, variables: Mapping[str, Any]) -> Any:
    """Evaluate an expression.

    Raises:
        UnusableValue: a value has the wrong type, or does not exist.
    """
    match node:
        case t.LiteralValue(value):
            return value
        case t.Variable(name):
            if name not in variables:
                raise UnusableValue(f"${name} has no value")
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
    """The items that `for` iterates over.

    Raises:
        UnusableValue: the value is not a list.
    """
    if isinstance(value, (list, tuple)):
        return list(value)
    raise UnusableValue(f"`for` needs a list, not {type_name(value)}")


def type_name(value: Any) -> str:
    """The type of a value, for messages."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", tuple: "a list"}
    return names.get(type(value), f"a {type(value).__name__}")


def _member(value: Any, name: str) -> Any:
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
    elif isinstance(value, Mapping):
        names = list(map(str, value))
    else:
        raise UnusableValue(f"{type_name(value)} has no field {name!r}")
    if name not in names:
        raise UnusableValue(f"{type_name(value)} has no field {name!r}; it has {', '.join(names) or 'none'}")
    return value[name] if isinstance(value, Mapping) else getattr(value, name)


def _item(value: Any, index: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(index, str):
        return _member(value, index)
    if not isinstance(value, (list, tuple, str)):
        raise UnusableValue(f"{type_name(value)} has no items")
    if type(index) is not int:
        raise UnusableValue(f"an index must be a whole number, not {type_name(index)}")
    if not -len(value) <= index < len(value):
        raise UnusableValue(f"there is no item {index}: there are {len(value)}")
    return value[index]


def _binary(operator: t.BinaryOperator, left: t.Expression, right: t.Expression, variables: Mapping[str, Any]) -> Any:
    first = value_of(left, variables)
    if operator == "or":
        return first or value_of(right, variables)
    if operator == "and":
        return first and value_of(right, variables)
    second = value_of(right, variables)
    match operator:
        case "==":
            return _comparable(first) == _comparable(second)
        case "!=":
            return _comparable(first) != _comparable(second)
        case "contains":
            return _contains(first, second)
        case "+":
            return _sum(first, second)
        case "<" | ">" | "<=" | ">=":
            if not (isinstance(first, str) and isinstance(second, str)):
                first, second = _number(first, operator), _number(second, operator)
            return _ORDER[operator](first, second)
        case _:
            first, second = _number(first, operator), _number(second, operator)
            if operator == "/" and not second:
                raise UnusableValue("division by 0")
            return _ARITHMETIC[operator](first, second)


def _sum(first: Any, second: Any) -> Any:
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return [*first, *second]
    if isinstance(first, str) or isinstance(second, str):
        return text_in_prompt(first) + text_in_prompt(second)
    return _number(first, "+") + _number(second, "+")


def _contains(container: Any, value: Any) -> bool:
    if isinstance(container, str):
        return text_in_prompt(value) in container
    if isinstance(container, (list, tuple)):
        return any(_comparable(item) == _comparable(value) for item in container)
    raise UnusableValue(f"`contains` needs a text or a list, not {type_name(container)}")


def _number(value: Any, operator: str) -> int | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise UnusableValue(f"`{operator}` needs numbers, not {type_name(value)}")


def _comparable(value: Any) -> Any:
    """A value for comparison: a tuple equals a list with the same items, and true is not 1."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_comparable(item) for item in value]
    return (bool, value) if isinstance(value, bool) else value


class ActionRunner(Protocol):
    """Runs the agents, prompts and flows that a flow calls."""

    async def run_agent(self, name: str, input_value: Any) -> Any: ...

    async def call_prompt(self, name: str, input_value: Any, variables: dict[str, Any]) -> Any: ...

    async def run_flow(self, name: str, arguments: Sequence[Any], input_value: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class _ReturnValue:
    value: Any


class Interpreter:
    """One run of one flow."""

    def __init__(self, flow: FlowSpec, runner: ActionRunner, source: str) -> None:
        self._flow, self._runner, self._source = flow, runner, source

    async def run(self, arguments: Sequence[Any], input_value: Any) -> Any:
        """Run the flow, and return its value or None.

        Raises:
            FlowFailed: a statement got a value that it cannot use.
        """
        variables = {INPUT: input_value, **dict(zip(self._flow.parameters, arguments, strict=True))}
        result = await self._body(self._flow.body, variables)
        return result.value if result else None

    async def _body(self, statements: Sequence[t.Statement], variables: dict[str, Any]) -> _ReturnValue | None:
        for statement in statements:
            if (result := await self._statement(statement, variables)) is not None:
                return result
        return None

    async def _statement(self, node: t.Statement, variables: dict[str, Any]) -> _ReturnValue | None:
        match node:
            case t.Assign():
                variables[node.target.text] = await self._right_side(node.value, node.at, variables)
            case t.Perform():
                await self._action(node.action, node.at, variables)
            case t.Return():
                return _ReturnValue(
                    None if node.value is None else await self._right_side(node.value, node.at, variables)
                )
            case t.If():
                for branch in node.branches:
                    if branch.condition is None or self._value(branch.condition, branch.at, variables):
                        return await self._body(branch.body, variables)
            case t.For():
                for item in self._evaluate(lambda: items_of(value_of(node.items, variables)), node.at):
                    variables[node.variable.text] = item
                    if (result := await self._body(node.body, variables)) is not None:
                        return result
            case t.Parallel():
                await self._parallel(node, variables)
        return None

    async def _parallel(self, node: t.Parallel, variables: dict[str, Any]) -> None:
        """Run all calls concurrently. The first failure cancels the others and is raised."""
        variables_before = dict(variables)

        async def run(statement: t.Statement) -> None:
            match statement:
                case t.Assign(value=t.Action() as action):
                    variables[statement.target.text] = await self._action(action, statement.at, variables_before)
                case t.Perform(action=action):
                    await self._action(action, statement.at, variables_before)

        await run_concurrently([run(statement) for statement in node.body])

    async def _right_side(self, node: t.Expression | t.Action, at: t.Position, variables: dict[str, Any]) -> Any:
        if isinstance(node, t.Action):
            return await self._action(node, at, variables)
        return self._value(node, at, variables)

    async def _action(self, action: t.Action, at: t.Position, variables: dict[str, Any]) -> Any:
        arguments = [self._value(argument, at, variables) for argument in action.arguments]
        input_value = arguments[0] if arguments and action.kind != "flow" else variables[INPUT]
        match action.kind:
            case "agent":
                return await self._runner.run_agent(action.name.text, input_value)
            case "llm":
                return await self._runner.call_prompt(action.name.text, input_value, variables)
            case "flow":
                return await self._runner.run_flow(action.name.text, arguments, input_value)

    def _value(self, node: t.Expression, at: t.Position, variables: dict[str, Any]) -> Any:
        return self._evaluate(lambda: value_of(node, variables), at)

    def _evaluate(self, evaluation: Callable[[], Any], at: t.Position) -> Any:
        try:
            return evaluation()
        except UnusableValue as error:
            raise FlowFailed(self._source, self._flow.name, at.line, str(error)) from None


async def run_concurrently(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines; raise the first failure when the others have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        raise first from first.__cause__
