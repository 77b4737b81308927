"""Compiles a syntax tree to a `WorkflowSpec`."""

import shlex
from collections.abc import Collection, Iterable
from typing import Any, Literal, cast

from minutebook.agent.mcp import BuiltinTools, McpProcess, McpServer, PythonFunction, Secret, ToolOrigin, ToolRef
from minutebook.dsl import spec as s
from minutebook.dsl import syntax as t
from minutebook.dsl.checks.definitions import SCALARS, seconds_of
from minutebook.dsl.checks.program import check_program
from minutebook.dsl.checks.scope import (
    DEFAULT,
    NO_STRATEGY,
    STRATEGIES,
    KnownNames,
    Model,
    Scope,
    modifier,
    names_in,
    properties,
)
from minutebook.dsl.diagnostics import errors_in
from minutebook.dsl.parser import parse_agents
from minutebook.errors import ProgramInvalid


def compile_agents(
    program: t.Program | str,
    *,
    source: str = "<text>",
    strategies: Collection[str] = STRATEGIES,
    externals: Collection[str] = (),
) -> s.WorkflowSpec:
    """Compile a program or its text. Warnings are in the result.

    `strategies` are the names that `history` may use, `externals` the prefixes of tool names (`mcp` for `mcp.read_file`)
    that are supplied at run time.

    Raises:
        ProgramInvalid: the program has errors; `diagnostics` has every error and warning.
    """
    tree = parse_agents(program, source=source) if isinstance(program, str) else program
    scope = check_program(tree, KnownNames(strategies, externals))
    diagnostics = scope.collector.in_order()
    if errors_in(diagnostics):
        raise ProgramInvalid(tree.source, diagnostics)
    return _Compiler(tree, scope).spec()


class _Compiler:
    """Compiles a program without errors, so every name is defined."""

    def __init__(self, program: t.Program, scope: Scope) -> None:
        self.program, self.scope = program, scope
        self.retries = {name: _retry(node) for name, node in scope.tables["retry"].items()}
        self.timeouts = {
            name: s.TimeoutSpec(name, seconds_of(node.duration)) for name, node in scope.tables["timeout"].items()
        }
        self.compaction = self._policy(scope.tables["policy"].get("compaction"))

    def spec(self) -> s.WorkflowSpec:
        tables = self.scope.tables
        agents = tuple(self._agent(node) for node in self.program.definitions if isinstance(node, t.AgentDef))
        flows = tuple(
            s.FlowSpec(name, _name_texts(node.parameters), node.body) for name, node in tables["flow"].items()
        )
        return s.WorkflowSpec(
            models=tuple(map(_model, tables["model"].values())),
            schemas=tuple(map(_schema, tables["schema"].values())),
            tools=tuple(map(_tool, tables["tool"].values())),
            retries=tuple(self.retries.values()),
            timeouts=tuple(self.timeouts.values()),
            prompts=tuple(map(self._prompt, tables["prompt"].values())),
            agents=agents,
            flows=flows,
            compaction=self.compaction,
            entry=_entry(agents, flows, self.compaction),
            source=self.program.source,
            warnings=self.scope.collector.in_order(),
        )

    def _prompt(self, node: t.PromptDef) -> s.PromptSpec:
        expecting = modifier(node, "expecting")
        return s.PromptSpec(
            node.name.text, node.text.value, self.scope.model_of(node), expecting.text if expecting else None
        )

    def _history(self, name: t.Name | None) -> s.HistorySpec | None:
        if name is None or name.text == NO_STRATEGY:
            return None
        if name.text in self.scope.known.histories:
            return s.HistorySpec(strategy=name.text)
        return s.HistorySpec(flow=name.text)

    def _policy(self, node: t.PolicyDef | None) -> s.CompactionSpec:
        by_key = properties(node) if node else {}
        values: dict[str, Any] = {
            key: value.value for key, value in by_key.items() if isinstance(value, (t.Number, t.Flag))
        }
        model = by_key.get("model")
        return s.CompactionSpec(
            history=self._history(by_key.get("strategy")), model=model.text if model else None, **values
        )

    def _agent(self, node: t.AgentDef) -> s.AgentSpec:
        by_key = properties(node)
        instruction = self.scope.tables["prompt"][by_key["instruction"].text]
        prompt = self.scope.tables["prompt"][by_key["prompt"].text] if "prompt" in by_key else None
        schemas = (by_key.get("produces"), modifier(instruction, "expecting"), modifier(prompt, "expecting"))
        model = self.scope.model_of(instruction)
        assert model is not None
        retry = by_key.get("retry")
        return s.AgentSpec(
            name=node.name.text if node.name else "",
            model=model,
            instruction=instruction.name.text,
            prompt=prompt.name.text if prompt else None,
            tools=tuple(map(self._tool_ref, names_in(by_key.get("tools")))),
            produces=next((name.text for name in schemas if name is not None), None),
            retry=self.retries.get(retry.text if retry else DEFAULT),
            timeout_seconds=self._timeout(by_key.get("timeout")),
            description=by_key["description"].value if "description" in by_key else "",
            delegate=_name_texts(names_in(by_key.get("delegate"))),
            use=_name_texts(names_in(by_key.get("use"))),
            history=self._history(by_key["history"]) if "history" in by_key else self.compaction.history,
        )

    def _timeout(self, value: t.Name | t.Duration | None) -> float | None:
        if isinstance(value, t.Duration):
            return seconds_of(value)
        policy = self.timeouts.get(value.text if value else DEFAULT)
        return policy.seconds if policy else None

    def _tool_ref(self, name: t.Name) -> ToolRef:
        source, _, member = name.text.partition(".")
        return ToolRef(source, member or None, external=source not in self.scope.tables["tool"])


def _name_texts(names: Iterable[t.Name]) -> tuple[str, ...]:
    return tuple(name.text for name in names)


def _model(node: Model) -> s.ModelSpec:
    if isinstance(node, t.ModelShort):
        provider, _, model = node.target.value.partition("/")
        return s.ModelSpec(node.name.text, provider, model)
    by_key: dict[str, Any] = {key: value.value for key, value in properties(node).items()}
    return s.ModelSpec(node.name.text, by_key.pop("provider"), by_key.pop("name"), **by_key)


def _retry(node: t.RetryDef) -> s.RetrySpec:
    first_wait = {"first_wait_seconds": seconds_of(node.first_wait)} if node.first_wait else {}
    return s.RetrySpec(node.name.text, int(node.times.value), node.backoff or "exponential", **first_wait)


def _schema(node: t.SchemaDef) -> s.SchemaSpec:
    fields = (
        s.FieldSpec(field.name.text, _type(field.type), field.description.value if field.description else "")
        for field in node.fields
    )
    return s.SchemaSpec(node.name.text, tuple(fields))


def _type(node: t.TypeExpression) -> s.FieldType:
    match node:
        case t.NamedType(name):
            if name.text in SCALARS:
                return s.FieldType(cast("Literal['string', 'int', 'float', 'bool']", name.text))
            return s.FieldType("schema", schema=name.text)
        case t.ListType(item):
            return s.FieldType("list", _type(item))
        case t.OptionalType(item):
            return s.FieldType("optional", _type(item))
        case t.ChoiceType(options):
            return s.FieldType("choice", options=tuple(option.value for option in options))


def _tool(node: t.ToolDef) -> s.ToolSpec:
    secrets = [(clause, _secret(clause.secret)) for clause in node.clauses]
    named_secrets = {
        kind: tuple((clause.key.value, secret) for clause, secret in secrets if clause.kind == kind and clause.key)
        for kind in ("header", "env")
    }
    origin: ToolOrigin
    match node.origin:
        case t.McpUrl(url):
            auth_clauses = ((clause.kind, secret) for clause, secret in secrets if clause.key is None)
            kind, auth_secret = next(auth_clauses, (None, None))
            auth = cast("Literal['bearer', 'basic'] | None", kind)
            origin = McpServer(url.value, auth, auth_secret, named_secrets["header"])
        case t.McpCommand(command):
            origin = McpProcess(tuple(shlex.split(command.value)), named_secrets["env"])
        case t.Builtin(name):
            origin = BuiltinTools(name.text)
        case t.Python(target):
            module, _, function = target.text.partition(":")
            origin = PythonFunction(module, function)
    return s.ToolSpec(node.name.text, origin)


def _secret(node: t.SecretText) -> Secret:
    return Secret(env=node.value) if node.from_environment else Secret(value=node.value)


def _entry(
    agents: tuple[s.AgentSpec, ...], flows: tuple[s.FlowSpec, ...], compaction: s.CompactionSpec
) -> s.Entry | None:
    """The entry by the rules of `WorkflowSpec.entry`. Flows that write summaries do not count."""
    agent_names = {agent.name for agent in agents}
    histories = (compaction.history, *(agent.history for agent in agents))
    summary_flows = {history.flow for history in histories if history}
    callable_flows = [flow.name for flow in flows if flow.name not in summary_flows]
    helpers = {name for agent in agents for name in (*agent.delegate, *agent.use)}
    uncalled_agents = [agent.name for agent in agents if agent.name not in helpers]
    if "main" in callable_flows:
        return s.Entry("flow", "main")
    for name in ("main", ""):
        if name in agent_names:
            return s.Entry("agent", name)
    if len(callable_flows) == 1:
        return s.Entry("flow", callable_flows[0])
    if len(uncalled_agents) == 1 and not callable_flows:
        return s.Entry("agent", uncalled_agents[0])
    return None
