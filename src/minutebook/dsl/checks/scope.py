"""What a program defines, by kind and name."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from minutebook.agent.toolbox import BUILTINS
from minutebook.compaction.registry import BUILTIN_STRATEGIES
from minutebook.dsl import syntax as t
from minutebook.dsl.diagnostics import Findings
from minutebook.errors import closest

STRATEGIES: Final = tuple(BUILTIN_STRATEGIES)
"""The history strategies that come with minutebook."""
NO_STRATEGY: Final = "none"
"""What an agent writes that keeps its whole history, whatever the policy says."""
DEFAULT: Final = "default"
"""The retry or timeout policy of agents that name none."""

Model: TypeAlias = t.ModelShort | t.ModelLong

_KINDS: Final[dict[type, str]] = {
    t.ModelShort: "model",
    t.ModelLong: "model",
    t.SchemaDef: "schema",
    t.ToolDef: "tool",
    t.RetryDef: "retry",
    t.TimeoutDef: "timeout",
    t.PromptDef: "prompt",
    t.AgentDef: "agent",
    t.PolicyDef: "policy",
    t.FlowDef: "flow",
}


@dataclass(frozen=True, slots=True)
class Known:
    """What a program may name without defining it."""

    strategies: Collection[str] = STRATEGIES
    externals: Collection[str] = ()
    """Heads of dotted tool names that whoever runs the program brings: `mcp` for `mcp.read_file`."""
    builtins: Collection[str] = tuple(BUILTINS)


@dataclass
class Scope:
    """The definitions of a program; remembers which of them something uses."""

    findings: Findings
    known: Known
    tables: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in _KINDS.values()})
    used: set[tuple[str, str]] = field(default_factory=set)
    unnamed: t.AgentDef | None = None

    def define(self, node: t.Definition) -> None:
        kind = _KINDS[type(node)]
        name: t.Name | None = node.name
        if name is None:
            assert isinstance(node, t.AgentDef)
            if self.unnamed is not None:
                message = (
                    f"there is an agent without a name on line {self.unnamed.at.line} already; give this one a name"
                )
                self.findings.add("duplicate", node.at, message)
            self.unnamed = self.unnamed or node
        elif (first := self.tables[kind].get(name.text)) is not None:
            message = f"{kind} {name.text!r} is defined on line {first.at.line} already"
            self.findings.add("duplicate", name.at, message)
        else:
            self.tables[kind][name.text] = node

    def find(self, kind: str, name: t.Name) -> Any:
        """The definition that a name means; None, and an error, where there is none."""
        found = self.tables[kind].get(name.text)
        if found is None:
            self.unknown(kind, name, self.tables[kind])
        else:
            self.used.add((kind, name.text))
        return found

    def unknown(self, kind: str, name: t.Name, known: Collection[str], what: str = "") -> None:
        """Say that there is no such thing, and what there is."""
        near = closest(name.text, known)
        there = f"; choose one of {', '.join(known)}" if known and near is None else ""
        self.findings.add(f"unknown-{kind}", name.at, f"no {what or kind} {name.text!r}{there}", near)

    def model_of(self, prompt: t.PromptDef | None) -> str | None:
        """The model for a prompt: the one it names, else `main`, else the only one there is."""
        named = modifier(prompt, "model")
        if named is not None:
            return named.text
        models = self.tables["model"]
        name = "main" if "main" in models else next(iter(models)) if len(models) == 1 else None
        if name is not None:
            self.used.add(("model", name))
        return name


def modifier(prompt: t.PromptDef | None, kind: str) -> t.Name | None:
    """The model that a prompt uses, or the schema it expects."""
    return next((each.name for each in prompt.modifiers if each.kind == kind), None) if prompt else None


def properties(node: t.ModelLong | t.AgentDef | t.PolicyDef) -> dict[str, Any]:
    """Key → value; the first one where a key is given twice."""
    values: dict[str, Any] = {}
    for each in node.properties:
        values.setdefault(each.key, each.value)
    return values


def names_in(value: t.Names | None) -> tuple[t.Name, ...]:
    return value.items if value else ()
