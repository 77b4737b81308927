"""Checks of flows: the calls, and that every variable is set before it is read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from minutebook.dsl import syntax as t
from minutebook.dsl.checks.scope import Scope
from minutebook.dsl.spec import INPUT, placeholders
from minutebook.errors import closest


def check_flow(flow: t.FlowDef, scope: Scope) -> None:
    _FlowChecker(flow, scope).check()


def actions_in(body: Iterable[t.Statement]) -> Iterator[t.Action]:
    """The calls of agents, flows and prompts in statements, in order."""
    for statement in body:
        match statement:
            case t.Assign(value=t.Action() as action) | t.Perform(action=action) | t.Return(value=t.Action() as action):
                yield action
            case t.If():
                for branch in statement.branches:
                    yield from actions_in(branch.body)
            case t.For() | t.Parallel():
                yield from actions_in(statement.body)


@dataclass
class _Assignments:
    """The variables that are set at a point of the flow: on every path to it, and on some path."""

    certain: set[str] = field(default_factory=set)
    possible: set[str] = field(default_factory=set)
    has_returned: bool = False
    """Whether every path has returned before this point."""

    def copy(self) -> "_Assignments":
        return _Assignments(set(self.certain), set(self.possible), self.has_returned)

    def add(self, name: str) -> None:
        self.certain.add(name)
        self.possible.add(name)


class _FlowChecker:
    """Checks one flow, statement by statement. `state` is the `_Assignments` before the statement, which is updated."""

    def __init__(self, flow: t.FlowDef, scope: Scope) -> None:
        self.flow, self.scope, self.collector = flow, scope, scope.collector
        self.read_names: set[str] = set()
        self.written_names: dict[str, t.Position] = {}

    def check(self) -> None:
        state = _Assignments(certain={INPUT}, possible={INPUT})
        for name in self.flow.parameters:
            if name.text in state.certain and name.text != INPUT:
                self.collector.add("duplicate", name.at, f"parameter ${name.text} is already defined")
            self.write(name, state)
        self.check_body(self.flow.body, state)
        for unread in self.written_names.keys() - self.read_names - {INPUT}:
            self.collector.add("unused", self.written_names[unread], f"nothing reads ${unread}")

    def write(self, name: t.Name, state: _Assignments) -> None:
        if name.text == INPUT:
            message = f"${INPUT} is the input of the program and cannot be set; use another name"
            self.collector.add("reserved", name.at, message)
        self.written_names.setdefault(name.text, name.at)
        state.add(name.text)

    def check_body(self, statements: Iterable[t.Statement], state: _Assignments) -> None:
        is_reported = False
        for statement in statements:
            if state.has_returned and not is_reported:
                at = statement.branches[0].at if isinstance(statement, t.If) else statement.at
                self.collector.add("unreachable", at, "this statement is never run: every path returns before it")
                is_reported = True
            self.check_statement(statement, state)

    def check_statement(self, node: t.Statement, state: _Assignments) -> None:
        match node:
            case t.Assign():
                self.check_value(node.value, state)
                self.write(node.target, state)
            case t.Perform():
                self.check_action(node.action, state)
            case t.Return():
                if node.value is not None:
                    self.check_value(node.value, state)
                state.has_returned = True
            case t.If():
                self.check_branches(node, state)
            case t.For():
                self.check_expression(node.items, state)
                loop_state = state.copy()
                self.write(node.variable, loop_state)
                self.check_body(node.body, loop_state)
                state.possible |= loop_state.possible
            case t.Parallel():
                self.check_parallel(node, state)

    def check_branches(self, node: t.If, state: _Assignments) -> None:
        paths: list[_Assignments] = []
        for branch in node.branches:
            if branch.condition is not None:
                self.check_expression(branch.condition, state)
            path = state.copy()
            self.check_body(branch.body, path)
            paths.append(path)
        has_else = node.branches[-1].condition is None
        if not has_else:
            paths.append(state.copy())
        state.possible.update(*(path.possible for path in paths))
        continuing_paths = [path for path in paths if not path.has_returned]
        if continuing_paths:
            state.certain = set.intersection(*(path.certain for path in continuing_paths))
        else:
            state.has_returned = True
            state.certain = set(state.possible)

    def check_parallel(self, node: t.Parallel, state: _Assignments) -> None:
        """Check calls that run in parallel: none can read what another sets, and no two can set the same variable."""
        state_after = state.copy()
        targets = {statement.target.text for statement in node.body if isinstance(statement, t.Assign)} - state.certain
        written_names: set[str] = set()
        for statement in node.body:
            match statement:
                case t.Assign(value=t.Action() as action):
                    self.check_parallel_reads(action, targets)
                    self.check_action(action, _with_names(state, targets))
                    if statement.target.text in written_names:
                        message = (
                            f"${statement.target.text} is set by two calls of this block, whose order is not defined"
                        )
                        self.collector.add("parallel", statement.target.at, message)
                    written_names.add(statement.target.text)
                    self.write(statement.target, state_after)
                case t.Perform():
                    self.check_parallel_reads(statement.action, targets)
                    self.check_action(statement.action, _with_names(state, targets))
                case _:
                    at = statement.branches[0].at if isinstance(statement, t.If) else statement.at
                    message = "only `run agent`, `run flow` and `call llm` can run in parallel"
                    self.collector.add("parallel", at, message)
                    self.check_statement(statement, state_after)
        state.certain, state.possible = state_after.certain, state_after.possible
        state.has_returned = state_after.has_returned

    def check_parallel_reads(self, action: t.Action, targets: set[str]) -> None:
        for variable in (variable for argument in action.arguments for variable in variables_in(argument)):
            if variable.name in targets:
                message = f"${variable.name} is set by another call of this block; set it before the block"
                self.collector.add("parallel", variable.at, message)

    def check_value(self, value: t.Expression | t.Action, state: _Assignments) -> None:
        if isinstance(value, t.Action):
            self.check_action(value, state)
        else:
            self.check_expression(value, state)

    def check_expression(self, node: t.Expression, state: _Assignments) -> None:
        for variable in variables_in(node):
            self.check_variable(variable.name, variable.at, state)

    def check_variable(self, name: str, at: t.Position, state: _Assignments, detail: str = "") -> None:
        self.read_names.add(name)
        if name in state.certain or state.has_returned:
            return
        if name in state.possible:
            self.collector.add("maybe-unset", at, f"${name} is not set on every path to this point{detail}")
        else:
            similar = closest(name, state.possible)
            self.collector.add(
                "unknown-variable", at, f"${name} is not set before this point{detail}", similar and f"${similar}"
            )

    def check_action(self, action: t.Action, state: _Assignments) -> None:
        for argument in action.arguments:
            self.check_expression(argument, state)
        kind = "prompt" if action.kind == "llm" else action.kind
        definition = self.scope.find(kind, action.name)
        if definition is None:
            return
        count, callee = len(action.arguments), f"{kind} {action.name.text!r}"
        if isinstance(definition, t.FlowDef):
            if count != len(definition.parameters):
                message = f"{callee} takes {_argument_count(len(definition.parameters))}, but is called with {count}"
                self.collector.add("arguments", action.name.at, message)
        elif count > 1:
            message = f"{callee} takes at most one argument, but is called with {count}"
            self.collector.add("arguments", action.name.at, message)
        if isinstance(definition, t.PromptDef):
            self.check_prompt(definition, action, state)

    def check_prompt(self, prompt: t.PromptDef, action: t.Action, state: _Assignments) -> None:
        if self.scope.model_of(prompt) is None:
            message = f"no model for prompt {prompt.name.text!r}; add `using model NAME` to it, or name a model 'main'"
            self.collector.add("no-model", action.name.at, message)
        for name in placeholders(prompt.text.value):
            if name.isidentifier() and name != INPUT:
                self.check_variable(name, action.name.at, state, f", and prompt {prompt.name.text!r} has ${{{name}}}")


def variables_in(node: t.Expression) -> Iterator[t.Variable]:
    match node:
        case t.Variable():
            yield node
        case t.Member():
            yield from variables_in(node.of)
        case t.Index():
            yield from variables_in(node.of)
            yield from variables_in(node.index)
        case t.ListOf():
            for item in node.items:
                yield from variables_in(item)
        case t.Unary():
            yield from variables_in(node.operand)
        case t.Binary():
            yield from variables_in(node.left)
            yield from variables_in(node.right)


def _with_names(state: _Assignments, names: set[str]) -> _Assignments:
    return _Assignments(state.certain | names, state.possible | names, state.has_returned)


def _argument_count(count: int) -> str:
    return f"{count or 'no'} argument{'' if count == 1 else 's'}"
