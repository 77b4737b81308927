"""The definitions of a program, by kind and name."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from minutebook.agent.toolbox import BUILTINS
from minutebook.compaction.registry import BUILTIN_STRATEGIES
from minutebook.dsl import syntax as t
from minutebook.dsl.diagnostics import DiagnosticCollector
from minutebook.errors import closest
from minutebook.history.budget import PRESETS

STRATEGIES: Final = tuple(BUILTIN_STRATEGIES)
"""The history strategies of minutebook."""
NO_STRATEGY: Final = "none"
"""The history of an agent that keeps all its messages, even if the policy has a strategy."""
DEFAULT: Final = "default"
"""The name of the retry or timeout policy for agents without one."""

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
"""Class of a definition → its kind."""


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that a program may use without defining them."""

    strategies: Collection[str] = STRATEGIES
    """The strategies that `history` may name, besides the presets of the token budget."""
    externals: Collection[str] = ()
    """Prefixes of the names of tools that are supplied at run time: `mcp` for `mcp.read_file`."""
    builtins: Collection[str] = tuple(BUILTINS)

    @property
    def histories(self) -> Collection[str]:
        """The names that `history` may use without a definition."""
        return (*self.strategies, *PRESETS)


@dataclass
class Scope:
    """The definitions of a program, and which of them are used."""

    collector: DiagnosticCollector
    known: KnownNames
    tables: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in _KINDS.values()})
    """Kind → name → definition."""
    used_definitions: set[tuple[str, str]] = field(default_factory=set)
    """Kind and name of each definition that another one refers to."""
    unnamed_agent: t.AgentDef | None = None
    """The agent without a name."""

    def define(self, node: t.Definition) -> None:
        kind = _KINDS[type(node)]
        name: t.Name | None = node.name
        if name is None:
            assert isinstance(node, t.AgentDef)
            if self.unnamed_agent is not None:
                message = f"line {self.unnamed_agent.at.line} already has an agent without a name; add a name"
                self.collector.add("duplicate", node.at, message)
            self.unnamed_agent = self.unnamed_agent or node
        elif (existing := self.tables[kind].get(name.text)) is not None:
            message = f"{kind} {name.text!r} is already defined on line {existing.at.line}"
            self.collector.add("duplicate", name.at, message)
        else:
            self.tables[kind][name.text] = node

    def find(self, kind: str, name: t.Name) -> Any:
        """Find a definition and mark it as used; if there is none, add an error and return None."""
        definition = self.tables[kind].get(name.text)
        if definition is None:
            self.add_unknown(kind, name, self.tables[kind])
        else:
            self.used_definitions.add((kind, name.text))
        return definition

    def add_unknown(self, kind: str, name: t.Name, valid_names: Collection[str], label: str = "") -> None:
        """Add an error for an unknown name, with a suggestion or the valid names."""
        suggestion = closest(name.text, valid_names)
        choices = f"; choose one of {', '.join(valid_names)}" if valid_names and suggestion is None else ""
        self.collector.add(f"unknown-{kind}", name.at, f"no {label or kind} {name.text!r}{choices}", suggestion)

    def model_of(self, prompt: t.PromptDef | None) -> str | None:
        """The model of a prompt: its own, else `main`, else the only one in the program. Marks the latter two as used."""
        model = modifier(prompt, "model")
        if model is not None:
            return model.text
        models = self.tables["model"]
        if "main" not in models and len(models) != 1:
            return None
        name = "main" if "main" in models else next(iter(models))
        self.used_definitions.add(("model", name))
        return name


def modifier(prompt: t.PromptDef | None, kind: str) -> t.Name | None:
    """The model that a prompt uses, or the schema that it expects."""
    return next((item.name for item in prompt.modifiers if item.kind == kind), None) if prompt else None


def properties(node: t.ModelLong | t.AgentDef | t.PolicyDef) -> dict[str, Any]:
    """Key → value. If a key is set twice, the first value counts."""
    values: dict[str, Any] = {}
    for line in node.properties:
        values.setdefault(line.key, line.value)
    return values


def names_in(value: t.Names | None) -> tuple[t.Name, ...]:
    return value.items if value else ()
