"""Checks of flows: what is called, and that every variable has a value where it is read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from minutebook.dsl import syntax as t
from minutebook.dsl.checks.scope import Scope
from minutebook.dsl.spec import INPUT, placeholders
from minutebook.errors import closest


def check_flow(flow: t.FlowDef, scope: Scope) -> None:
    _Flow(flow, scope).check()


def actions_in(body: Iterable[t.Statement]) -> Iterator[t.Action]:
    """Every agent, flow and prompt that statements call, in their order."""
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
class _Set:
    """The variables that have a value: certainly, and on some ways to this place."""

    certain: set[str] = field(default_factory=set)
    possible: set[str] = field(default_factory=set)
    ended: bool = False
    """A return stands before this place."""

    def copy(self) -> "_Set":
        return _Set(set(self.certain), set(self.possible), self.ended)

    def add(self, name: str) -> None:
        self.certain.add(name)
        self.possible.add(name)


class _Flow:
    def __init__(self, flow: t.FlowDef, scope: Scope) -> None:
        self.flow, self.scope, self.findings = flow, scope, scope.findings
        self.read: set[str] = set()
        self.written: dict[str, t.Position] = {}

    def check(self) -> None:
        state = _Set({INPUT}, {INPUT})
        for name in self.flow.parameters:
            if name.text in state.certain and name.text != INPUT:
                self.findings.add("duplicate", name.at, f"parameter ${name.text} is there already")
            self.write(name, state)
        self.body(self.flow.body, state)
        for unread in self.written.keys() - self.read - {INPUT}:
            self.findings.add("unused", self.written[unread], f"nothing reads ${unread}")

    def write(self, name: t.Name, state: _Set) -> None:
        if name.text == INPUT:
            message = f"${INPUT} is what the program was asked; use another name"
            self.findings.add("reserved", name.at, message)
        self.written.setdefault(name.text, name.at)
        state.add(name.text)

    def body(self, statements: Iterable[t.Statement], state: _Set) -> None:
        told = False
        for statement in statements:
            if state.ended and not told:
                at = statement.branches[0].at if isinstance(statement, t.If) else statement.at
                self.findings.add("unreachable", at, "nothing comes here: there is a return on every way before it")
                told = True
            self.statement(statement, state)

    def statement(self, node: t.Statement, state: _Set) -> None:
        match node:
            case t.Assign():
                self.right(node.value, state)
                self.write(node.target, state)
            case t.Perform():
                self.action(node.action, state)
            case t.Return():
                if node.value is not None:
                    self.right(node.value, state)
                state.ended = True
            case t.If():
                self.branches(node, state)
            case t.For():
                self.expression(node.items, state)
                inner = state.copy()
                self.write(node.variable, inner)
                self.body(node.body, inner)
                state.possible |= inner.possible
            case t.Parallel():
                self.parallel(node, state)

    def branches(self, node: t.If, state: _Set) -> None:
        ways: list[_Set] = []
        for branch in node.branches:
            if branch.condition is not None:
                self.expression(branch.condition, state)
            way = state.copy()
            self.body(branch.body, way)
            ways.append(way)
        if node.branches[-1].condition is not None:
            ways.append(state.copy())
        state.possible.update(*(way.possible for way in ways))
        going_on = [way.certain for way in ways if not way.ended]
        state.ended = state.ended or not going_on
        state.certain = set.intersection(*going_on) if going_on else set(state.possible)

    def parallel(self, node: t.Parallel, state: _Set) -> None:
        """Calls beside each other: none can wait for another, and no two can set one variable."""
        after = state.copy()
        targets = {each.target.text for each in node.body if isinstance(each, t.Assign)} - state.certain
        seen: set[str] = set()
        for each in node.body:
            match each:
                case t.Assign(value=t.Action() as action):
                    self.reads_beside(action, targets)
                    self.action(action, state.copy() if not targets else _with(state, targets))
                    if each.target.text in seen:
                        message = f"${each.target.text} is set twice in this block, in no order"
                        self.findings.add("parallel", each.target.at, message)
                    seen.add(each.target.text)
                    self.write(each.target, after)
                case t.Perform():
                    self.reads_beside(each.action, targets)
                    self.action(each.action, _with(state, targets))
                case _:
                    at = each.branches[0].at if isinstance(each, t.If) else each.at
                    message = "only `run agent`, `run flow` and `call llm` can run beside each other"
                    self.findings.add("parallel", at, message)
                    self.statement(each, after)
        state.certain, state.possible, state.ended = after.certain, after.possible, after.ended

    def reads_beside(self, action: t.Action, targets: set[str]) -> None:
        for variable in (each for argument in action.arguments for each in variables_in(argument)):
            if variable.name in targets:
                message = f"${variable.name} is set in this block too, at the same time; set it before"
                self.findings.add("parallel", variable.at, message)

    def right(self, value: t.Expression | t.Action, state: _Set) -> None:
        if isinstance(value, t.Action):
            self.action(value, state)
        else:
            self.expression(value, state)

    def expression(self, node: t.Expression, state: _Set) -> None:
        for variable in variables_in(node):
            self.variable(variable.name, variable.at, state)

    def variable(self, name: str, at: t.Position, state: _Set, why: str = "") -> None:
        self.read.add(name)
        if name in state.certain or state.ended:
            return
        if name in state.possible:
            self.findings.add("maybe-unset", at, f"${name} has no value on some ways to this place{why}")
        else:
            near = closest(name, state.possible)
            self.findings.add("unknown-variable", at, f"nothing sets ${name} before this{why}", near and f"${near}")

    def action(self, action: t.Action, state: _Set) -> None:
        for argument in action.arguments:
            self.expression(argument, state)
        kind = "prompt" if action.kind == "llm" else action.kind
        found = self.scope.find(kind, action.name)
        if found is None:
            return
        given, who = len(action.arguments), f"{kind} {action.name.text!r}"
        if isinstance(found, t.FlowDef):
            if given != len(found.parameters):
                message = f"{who} takes {_many(len(found.parameters))}, and is given {given}"
                self.findings.add("arguments", action.name.at, message)
        elif given > 1:
            self.findings.add("arguments", action.name.at, f"{who} takes one value at most, and is given {given}")
        if isinstance(found, t.PromptDef):
            self.prompt(found, action, state)

    def prompt(self, prompt: t.PromptDef, action: t.Action, state: _Set) -> None:
        if self.scope.model_of(prompt) is None:
            message = f"no model for prompt {prompt.name.text!r}: write `using model NAME` there, or call one 'main'"
            self.findings.add("no-model", action.name.at, message)
        for name in placeholders(prompt.text.value):
            if name.isidentifier() and name != INPUT:
                self.variable(name, action.name.at, state, f", and prompt {prompt.name.text!r} has ${{{name}}}")


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


def _with(state: _Set, names: set[str]) -> _Set:
    return _Set(state.certain | names, state.possible | names, state.ended)


def _many(count: int) -> str:
    return f"{count or 'no'} value{'' if count == 1 else 's'}"
