"""The interpreter of flows: evaluates expressions and runs statements directly from the syntax tree."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Protocol

from minutebook.dsl import syntax as t
from minutebook.dsl.spec import INPUT, FlowSpec
from minutebook.errors import FlowFailed
from minutebook.prompt.markdown import text_in_prompt

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
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
    left_value = value_of(left, variables)
    if operator == "or":
        return left_value or value_of(right, variables)
    if operator == "and":
        return left_value and value_of(right, variables)
    right_value = value_of(right, variables)
    match operator:
        case "==":
            return _comparable(left_value) == _comparable(right_value)
        case "!=":
            return _comparable(left_value) != _comparable(right_value)
        case "contains":
            return _contains(left_value, right_value)
        case "+":
            return _sum(left_value, right_value)
        case "<" | ">" | "<=" | ">=":
            if not (isinstance(left_value, str) and isinstance(right_value, str)):
                left_value, right_value = _number(left_value, operator), _number(right_value, operator)
            return _COMPARISONS[operator](left_value, right_value)
        case _:
            left_value, right_value = _number(left_value, operator), _number(right_value, operator)
            if operator == "/" and not right_value:
                raise UnusableValue("division by 0")
            return _ARITHMETIC[operator](left_value, right_value)


def _sum(left_value: Any, right_value: Any) -> Any:
    if isinstance(left_value, (list, tuple)) and isinstance(right_value, (list, tuple)):
        return [*left_value, *right_value]
    if isinstance(left_value, str) or isinstance(right_value, str):
        return text_in_prompt(left_value) + text_in_prompt(right_value)
    return _number(left_value, "+") + _number(right_value, "+")


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
        result = await self._run_body(self._flow.body, variables)
        return result.value if result else None

    async def _run_body(self, statements: Sequence[t.Statement], variables: dict[str, Any]) -> _ReturnValue | None:
        for statement in statements:
            if (result := await self._run_statement(statement, variables)) is not None:
                return result
        return None

    async def _run_statement(self, node: t.Statement, variables: dict[str, Any]) -> _ReturnValue | None:
        match node:
            case t.Assign():
                variables[node.target.text] = await self._evaluate_right_side(node.value, node.at, variables)
            case t.Perform():
                await self._run_action(node.action, node.at, variables)
            case t.Return():
                return _ReturnValue(
                    None if node.value is None else await self._evaluate_right_side(node.value, node.at, variables)
                )
            case t.If():
                for branch in node.branches:
                    if branch.condition is None or self._evaluate(branch.condition, branch.at, variables):
                        return await self._run_body(branch.body, variables)
            case t.For():
                for item in self._with_position(lambda: items_of(value_of(node.items, variables)), node.at):
                    variables[node.variable.text] = item
                    if (result := await self._run_body(node.body, variables)) is not None:
                        return result
            case t.Parallel():
                await self._run_parallel(node, variables)
        return None

    async def _run_parallel(self, node: t.Parallel, variables: dict[str, Any]) -> None:
        """Run all calls concurrently. The first failure cancels the others and is raised."""
        variables_before = dict(variables)

        async def run(statement: t.Statement) -> None:
            match statement:
                case t.Assign(value=t.Action() as action):
                    variables[statement.target.text] = await self._run_action(action, statement.at, variables_before)
                case t.Perform(action=action):
                    await self._run_action(action, statement.at, variables_before)

        await run_concurrently([run(statement) for statement in node.body])

    async def _evaluate_right_side(
        self, node: t.Expression | t.Action, at: t.Position, variables: dict[str, Any]
    ) -> Any:
        if isinstance(node, t.Action):
            return await self._run_action(node, at, variables)
        return self._evaluate(node, at, variables)

    async def _run_action(self, action: t.Action, at: t.Position, variables: dict[str, Any]) -> Any:
        arguments = [self._evaluate(argument, at, variables) for argument in action.arguments]
        input_value = arguments[0] if arguments and action.kind != "flow" else variables[INPUT]
        match action.kind:
            case "agent":
                return await self._runner.run_agent(action.name.text, input_value)
            case "llm":
                return await self._runner.call_prompt(action.name.text, input_value, variables)
            case "flow":
                return await self._runner.run_flow(action.name.text, arguments, input_value)

    def _evaluate(self, node: t.Expression, at: t.Position, variables: dict[str, Any]) -> Any:
        return self._with_position(lambda: value_of(node, variables), at)

    def _with_position(self, evaluation: Callable[[], Any], at: t.Position) -> Any:
        try:
            return evaluation()
        except UnusableValue as error:
            raise FlowFailed(self._source, self._flow.name, at.line, str(error)) from None


async def run_concurrently(coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines. The first failure cancels the others and is raised when they have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        first_failure = failures.exceptions[0]
        raise first_failure from first_failure.__cause__
