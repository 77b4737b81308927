"""Runs the statements of a flow, one after the other, from the syntax tree itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from minutebook.dsl import tree as t
from minutebook.dsl.placeholder import INPUT
from minutebook.dsl.spec import FlowSpec
from minutebook.dsl.values import Unusable, items_of, value_of
from minutebook.errors import FlowFailed


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
