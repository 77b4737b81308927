"""Syntax trees that a program can have, by construction."""

from hypothesis import strategies as st

from minutebook.dsl import syntax as t

names = st.sampled_from(["a", "main", "agent", "tools", "x1", "_y", "history", "list", "string", "run", "model"]).map(
    t.Name
)
letters = st.characters(exclude_categories=())
strings = st.one_of(
    st.sampled_from(
        ["", " ", "x", "# no comment", '"""', '\\"', "a\nb", " a", "a ", "\n", "語🙂é", "${input}", "\ud800", "\t"]
    ),
    st.text(letters, max_size=12),
)
texts = strings.map(t.Text)
prose = st.one_of(
    strings,
    st.lists(
        st.sampled_from(["", "  ", "line", "  indented", "\ttab", "# heading", "agent x:", "語", "end "]), max_size=6
    ).map("\n".join),
).map(t.Text)
whole = st.integers(0, 10**14)
numbers = st.one_of(
    whole,
    st.sampled_from([0.5, 1.0, 0.8, 0.00001, 12345.678, 0.1]),
    st.floats(0, 10**6, allow_nan=False).map(lambda value: round(value, 4)),
)
signed = st.one_of(numbers, numbers.map(lambda value: -value).filter(lambda value: value)).map(t.Number)
comments = st.sampled_from(["#", "# one", "#two", "# 語 # more", '# "quoted'])


def tidy(rows):
    """Comments and single empty lines between or after them."""
    kept = []
    for row in rows:
        if row or (kept and kept[-1]):
            kept.append(row)
    return tuple(kept)


above = st.one_of(st.just(()), st.lists(st.one_of(comments, st.just("")), max_size=4).map(tidy))
below = above.map(lambda rows: rows[:-1] if rows and not rows[-1] else rows)
trivia = st.one_of(
    st.just(t.NO_TRIVIA), st.builds(t.Trivia, above, st.one_of(st.just(""), comments), blank=st.booleans())
)
line = {"trivia": trivia}
block = {"trivia": trivia, "below": below}


def some(items, least=1, most=3):
    return st.lists(items, min_size=least, max_size=most).map(tuple)


durations = st.builds(t.Duration, signed, st.sampled_from(["seconds", "minutes", "hours"]))


def properties(values):
    return some(
        st.sampled_from(sorted(values)).flatmap(lambda key: st.builds(t.Property, st.just(key), values[key], **line)),
        1,
        4,
    )


model_values = {
    "provider": texts,
    "name": texts,
    "temperature": signed,
    "max_tokens": signed,
    "max_input_tokens": signed,
}
tool_names = st.sampled_from(["a", "mcp.read_file", "x.y-z", "list"]).map(t.Name)
agent_values = {
    "tools": some(tool_names).map(t.Names),
    "delegate": some(names).map(t.Names),
    "use": some(names).map(t.Names),
    "timeout": st.one_of(names, durations),
    "description": texts,
    **dict.fromkeys(["instruction", "prompt", "produces", "retry", "history"], names),
}
policy_values = {
    **dict.fromkeys(["strategy", "model"], names),
    **dict.fromkeys(["trigger", "target", "keep_turns", "keep_files"], signed),
    "share": st.booleans().map(t.Flag),
}
plain_types = st.recursive(
    names.map(t.NamedType),
    lambda inner: st.one_of(
        inner.map(t.ListType),
        inner.filter(lambda kind: not isinstance(kind, t.OptionalType)).map(t.OptionalType),
        some(texts, 2).map(t.ChoiceType).map(t.ListType),
    ),
    max_leaves=3,
)
types = st.one_of(plain_types, some(texts, 2).map(t.ChoiceType))
secrets = st.one_of(
    st.builds(t.SecretText, strings, st.just(False)),
    st.builds(t.SecretText, st.sampled_from(["A", "_B1"]), st.just(True)),
)
clauses = st.one_of(
    st.builds(t.With, st.sampled_from(["bearer", "basic"]), st.none(), secrets),
    st.builds(t.With, st.sampled_from(["header", "env"]), texts, secrets),
)
origins = st.one_of(
    texts.map(t.McpUrl),
    texts.map(t.McpCommand),
    names.map(t.Builtin),
    st.sampled_from(["a:b", "a.b.c:d_e"]).map(t.Name).map(t.Python),
)
retries = st.one_of(
    st.builds(t.RetryDef, names, signed, **line),
    st.builds(
        t.RetryDef, names, signed, st.sampled_from(["exponential", "linear", "fixed"]), st.none() | durations, **line
    ),
)
modifiers = st.one_of(
    st.builds(t.Modifier, st.just("model"), st.one_of(names, strings.map(t.Name))),
    st.builds(t.Modifier, st.just("expecting"), names),
)
variables = st.sampled_from(["a", "input", "run", "x_1"])
literals = st.one_of(strings, numbers, st.booleans(), st.none()).map(t.LiteralValue)
expressions = st.recursive(
    st.one_of(literals, variables.map(t.Variable)),
    lambda inner: st.one_of(
        st.builds(t.Member, inner, names),
        st.builds(t.Index, inner, inner),
        some(inner, 0).map(t.ListOf),
        st.builds(t.Unary, st.sampled_from(["not", "-"]), inner),
        st.builds(
            t.Binary,
            st.sampled_from(["or", "and", "==", "!=", "<", ">", "<=", ">=", "contains", "+", "-", "*", "/"]),
            inner,
            inner,
        ),
    ),
    max_leaves=8,
)
actions = st.builds(t.Action, st.sampled_from(["agent", "flow", "llm"]), names, some(expressions, 0, 2))
rights = st.one_of(expressions, actions)
simple = st.one_of(
    st.builds(t.Assign, variables.map(t.Name), rights, **line),
    st.builds(t.Perform, actions, **line),
    st.builds(t.Return, st.none() | rights, **line),
)


def branches(body):
    first = st.builds(t.Branch, expressions, body, **block)
    last = st.builds(t.Branch, st.none(), body, **block)
    return st.builds(lambda ifs, ends: t.If((*ifs, *ends)), some(first, 1, 2), some(last, 0, 1))


statements = st.recursive(
    simple,
    lambda inner: st.one_of(
        branches(some(inner)),
        st.builds(t.For, variables.map(t.Name), expressions, some(inner), **block),
        st.builds(t.Parallel, some(inner), **block),
    ),
    max_leaves=5,
)
definitions = st.one_of(
    st.builds(t.ModelShort, names, texts, **line),
    st.builds(t.ModelLong, names, properties(model_values), **block),
    st.builds(t.SchemaDef, names, some(st.builds(t.SchemaField, names, types, st.none() | texts, **line)), **block),
    st.builds(t.ToolDef, names, origins, some(clauses, 0, 2), **line),
    retries,
    st.builds(t.TimeoutDef, names, durations, **line),
    st.builds(t.PromptDef, names, prose, some(modifiers, 0, 2), **line),
    st.builds(t.AgentDef, st.none() | names, properties(agent_values), **block),
    st.builds(t.PolicyDef, names, properties(policy_values), **block),
    st.builds(t.FlowDef, names, some(variables.map(t.Name), 0, 2), some(statements, 1, 4), **block),
)
programs = st.builds(
    t.Program, st.none() | st.builds(t.Version, st.integers(0, 99), **line), some(definitions, 0, 4), below
)
