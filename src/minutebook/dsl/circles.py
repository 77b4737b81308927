"""Agents, flows and schemas that lead back to themselves, and so would never end."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from minutebook.dsl import tree as t
from minutebook.dsl.flows import actions_in
from minutebook.dsl.scope import Scope, names_in, properties

Place: TypeAlias = tuple[str, str]
"""A kind and a name."""
Ways: TypeAlias = Mapping[Place, Sequence[tuple[Place, t.Position]]]


def check_circles(program: t.Program, scope: Scope) -> None:
    ways: dict[Place, list[tuple[Place, t.Position]]] = {}
    for node in program.definitions:
        match node:
            case t.AgentDef():
                ways.setdefault(("agent", node.name.text if node.name else ""), list(_from_agent(node, scope)))
            case t.FlowDef():
                calls = ((action.kind, action.name) for action in actions_in(node.body) if action.kind != "llm")
                ways.setdefault(("flow", node.name.text), [((kind, name.text), name.at) for kind, name in calls])
            case t.SchemaDef():
                names = (name for field in node.fields for name in _names_in(field.type))
                ways.setdefault(("schema", node.name.text), [(("schema", name.text), name.at) for name in names])
    done: set[Place] = set()
    for start in ways:
        _follow(start, ways, done, scope)


def _from_agent(node: t.AgentDef, scope: Scope) -> Iterator[tuple[Place, t.Position]]:
    given = properties(node)
    for name in (*names_in(given.get("delegate")), *names_in(given.get("use"))):
        yield ("agent", name.text), name.at
    history = given.get("history")
    if history is not None and history.text in scope.tables["flow"] and history.text not in scope.known.strategies:
        yield ("flow", history.text), history.at


def _follow(start: Place, ways: Ways, done: set[Place], scope: Scope) -> None:
    """Depth first, without recursion: a chain may be as long as the program."""
    path: list[Place] = []
    todo: list[tuple[Place, t.Position] | None] = [(start, t.NOWHERE)]
    while todo:
        step = todo.pop()
        if step is None:
            done.add(path.pop())
            continue
        place, at = step
        if place in path:
            circle = [*path[path.index(place) :], place]
            shown = " → ".join(name or "the agent without a name" for _, name in circle)
            scope.findings.add("circle", at, f"this leads back to where it came from: {shown}")
        elif place not in done and place in ways:
            path.append(place)
            todo.append(None)
            todo.extend(reversed(ways[place]))


def _names_in(node: t.TypeExpression) -> Iterator[t.Name]:
    match node:
        case t.NamedType():
            yield node.name
        case t.ListType() | t.OptionalType():
            yield from _names_in(node.item)
