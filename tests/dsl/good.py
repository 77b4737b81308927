"""Small programs that are right, each showing one thing."""

MODEL = "model main = openai/gpt-4.1\n"
PROMPT = "prompt p:\n    Be brief.\n"
AGENT = f"{MODEL}{PROMPT}agent a:\n    instruction p\n"


def agent(*lines: str, more: str = "") -> str:
    """An agent with further properties, and what they need."""
    return f"{MODEL}{PROMPT}{more}agent a:\n    instruction p\n" + "".join(f"    {line}\n" for line in lines)


def flow(*lines: str, head: str = "flow main $a $b:", more: str = "") -> str:
    """A flow with these statements, which may run agent `a`, call prompt `p` and run flow `f`."""
    reads = "    $read = [$a, $b]\n    run agent a $read\n" if "$a $b" in head else ""
    return f"{AGENT}{more}flow f $x:\n    return $x\n{head}\n{reads}" + "".join(f"    {line}\n" for line in lines)


def model(*lines: str) -> str:
    return f"{PROMPT}agent a:\n    instruction p\nmodel main:\n" + "".join(f"    {line}\n" for line in lines)


def schema(*lines: str, more: str = "") -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"{MODEL}{PROMPT}{more}schema S:\n{body}agent a:\n    instruction p\n    produces S\n"


def tool(text: str) -> str:
    return agent("tools t", more=f"tool t = {text}\n")


BASE = ("provider: anthropic", "name: claude-sonnet")

GOOD: dict[str, str] = {
    "nothing": "",
    "empty lines": "\n\n  \n\t\n",
    "a comment": "# nothing here",
    "a comment and no line break": "   # nothing here",
    "a version": "streetrace v1\n",
    "a version under comments": "# one\n\n# two\nstreetrace v1  # three\n" + AGENT,
    "no line break at the end": AGENT.rstrip("\n"),
    "windows line ends": AGENT.replace("\n", "\r\n"),
    "old mac line ends": AGENT.replace("\n", "\r"),
    "a byte order mark": "\N{BYTE ORDER MARK}" + AGENT,
    "tabs": AGENT.replace("    ", "\t"),
    "a tab beside eight spaces": agent("history none").replace("    history", "\thistory").replace("    ", "        "),
    "two spaces": AGENT.replace("    ", "  "),
    "trailing spaces": AGENT.replace("\n", "   \n"),
    "any order": f"agent a:\n    instruction p\n{PROMPT}{MODEL}",
    "an agent": AGENT,
    "an agent without a name": AGENT.replace("agent a:", "agent:"),
    "two agents": AGENT + "agent b:\n    instruction p\n",
    "keywords as names": "model model = openai/o3\nprompt prompt:\n    x\nagent agent:\n    instruction prompt\n",
    "more keywords as names": "model history = openai/o3\nprompt tools:\n    x\nagent run:\n    instruction tools\n",
    "one name of several kinds": "model x = openai/o3\nprompt x:\n    t\nagent x:\n    instruction x\n",
    "model with dots": AGENT.replace("openai/gpt-4.1", "anthropic/claude-3.5-sonnet"),
    "model with slashes": AGENT.replace("openai/gpt-4.1", "openrouter/meta/llama-4:free"),
    "model with an at": AGENT.replace("openai/gpt-4.1", "vertex/claude@20250514"),
    "model in quotes": AGENT.replace("openai/gpt-4.1", '"local/my model"'),
    "model with digits first": AGENT.replace("openai/gpt-4.1", "01ai/yi-34b"),
    "long model": model(*BASE),
    "long model, all properties": model(*BASE, "temperature: 0.7", "max_tokens: 4096", "max_input_tokens: 200000"),
    "temperature as a whole number": model(*BASE, "temperature: 1"),
    "temperature zero": model(*BASE, "temperature: 0"),
    "temperature two": model(*BASE, "temperature: 2.0"),
    "names in quotes": model('provider: "anthropic"', 'name: "claude 3.5"'),
    "names with dots": model("provider: openai", "name: gpt-4.1-mini"),
    "name before provider": model(*reversed(BASE)),
    "spaces around colons": model("provider : anthropic", "name:claude-sonnet"),
    "comments in a model": model("# one", BASE[0] + "  # two", BASE[1], "# three"),
    "two models and main": AGENT + "model fast = openai/o3\nprompt q using model fast:\n    x\nagent b:\n    instruction q\n",
    "two models, both named": (
        "model x = openai/o3\nmodel y = openai/o4\nprompt p using model x:\n    t\nprompt q using model y:\n    t\n"
        "agent a:\n    instruction p\nagent b:\n    instruction q\n"
    ),
    "a model in quotes": AGENT.replace("prompt p:", 'prompt p using model "main":'),
    "schema": schema("ok: bool"),
    "schema, all scalars": schema("a: string", "b: int", "c: float", "d: bool"),
    "schema, lists": schema("a: list[string]", "b: list[list[int]]"),
    "schema, optional": schema("a: string?", "b: list[int]?"),
    "schema, list of optional": schema("a: list[string?]"),
    "schema, choice": schema('a: "low" | "high"'),
    "schema, list of choices": schema('a: list["low" | "high"]'),
    "schema, described": schema('a: string "what it is"', 'b: list[int]? "numbers"', 'c: "x" | "y" "which"'),
    "schema in a schema": schema("a: T", "b: list[T]", more="schema T:\n    x: int\n"),
    "schema, keywords as fields": schema("name: string", "tools: int", "list: bool", "provider: float"),
    "schema, comments": schema("# above", "a: int  # beside", "# below"),
    "prompt expecting": f"{MODEL}schema S:\n    a: int\nprompt p expecting S:\n    x\nagent a:\n    instruction p\n",
    "prompt with both": f"{MODEL}schema S:\n    a: int\nprompt p expecting S using model main:\n    x\nagent a:\n    instruction p\n",
    "agent and instruction expect the same": (
        f"{MODEL}schema S:\n    a: int\nprompt p expecting S:\n    x\nagent a:\n    instruction p\n    produces S\n"
    ),
    "prompt in quotes": AGENT.replace(":\n    Be brief.", ': "Be brief."'),
    "prompt in long quotes": AGENT.replace(":\n    Be brief.", ': """Be "brief"."""'),
    "prompt in long quotes, many lines": AGENT.replace(":\n    Be brief.", ': """\nBe\n  brief.\n"""'),
    "prompt with an empty line": AGENT.replace("Be brief.", "One.\n\n    Two."),
    "prompt with indented lines": AGENT.replace("Be brief.", "One:\n        - two\n      - three"),
    "prompt with headings": AGENT.replace("Be brief.", "# One\n    ## Two"),
    "prompt after empty lines": AGENT.replace("Be brief.", "\n\n    Be brief."),
    "prompt before empty lines": AGENT.replace("Be brief.", "Be brief.\n\n   \n\n"),
    "prompt with a comment beside": AGENT.replace("prompt p:", "prompt p:  # short"),
    "prompt in other scripts": AGENT.replace("Be brief.", "簡潔に。 Кратко. 🙂"),
    "prompt with what looks like code": AGENT.replace("Be brief.", "agent x:\n        tools y\n    $a = 1"),
    "prompt with input": AGENT.replace("Be brief.", "Answer ${input}."),
    "prompt with an escaped place": AGENT.replace("Be brief.", "Write $${name}, $5 and $PATH."),
    "mcp at a url": tool('mcp "https://example.com/mcp/"'),
    "mcp at a local url": tool('mcp "http://127.0.0.1:8000/mcp"'),
    "mcp with bearer": tool('mcp "https://example.com/mcp" with auth bearer ${env:TOKEN}'),
    "mcp with basic": tool('mcp "https://example.com/mcp" with auth basic ${env:LOGIN}'),
    "mcp with headers": tool(
        'mcp "https://x.org" with auth bearer ${env:T} with header "X-A" ${env:A} with header "X-B" ${env:B}'
    ),
    "mcp command": tool('mcp command "npx -y server \'a folder\'"'),
    "mcp command with env": tool('mcp command "server" with env "TOKEN" ${env:TOKEN}'),
    "builtin": tool("builtin files"),
    "another builtin": tool("builtin clock"),
    "python": tool("python package.module:function"),
    "one tool of a server": agent("tools t.search", more='tool t = mcp "https://x.org"\n'),
    "a tool with dashes": agent("tools t.search-web", more='tool t = mcp "https://x.org"\n'),
    "one tool of a builtin": agent("tools t.read_file", more="tool t = builtin files\n"),
    "several tools": agent("tools t, u.x", more='tool t = builtin clock\ntool u = mcp "https://x.org"\n'),
    "retry": agent("retry r", more="retry r = 3 times, exponential backoff\n"),
    "retry, linear": agent("retry r", more="retry r = 5 times, linear backoff\n"),
    "retry, fixed, from": agent("retry r", more="retry r = 2 times, fixed backoff from 1.5 seconds\n"),
    "retry without backoff": agent("retry r", more="retry r = 1 time\n"),
    "default retry": agent(more="retry default = 3 times\n"),
    "timeout": agent("timeout t", more="timeout t = 2 minutes\n"),
    "timeout, one hour": agent("timeout t", more="timeout t = 1 hour\n"),
    "timeout, half a second": agent("timeout 0.5 seconds"),
    "timeout in place": agent("timeout 90 seconds"),
    "default timeout": agent(more="timeout default = 30 seconds\n"),
    "all ten properties": (
        f"{MODEL}{PROMPT}prompt ask:\n    Do ${{input}}.\nschema S:\n    a: int\ntool t = builtin files\nretry r = 2 times\n"
        'timeout o = 1 minute\nagent b:\n    instruction p\n    description "b"\nagent c:\n    instruction p\n'
        '    description "c"\nagent a:\n    tools t\n    instruction p\n    prompt ask\n    produces S\n    retry r\n    timeout o\n'
        '    description "All of it."\n    delegate b\n    use c\n    history summarize\n'
    ),
    "colons in agents": agent('description: "x"', "history: truncate", "timeout: 3 seconds"),
    "history summarize": agent("history summarize"),
    "history truncate": agent("history truncate"),
    "a preset as history": agent("history quality"),
    "history turns": agent("history turns"),
    "history hybrid": agent("history hybrid"),
    "history none": agent("history none"),
    "history by a flow": agent("history shorten", more="flow shorten $old:\n    return call llm p $old\n"),
    "policy": agent(more="policy compaction:\n    strategy: summarize\n"),
    "policy, all properties": agent(
        "use b",
        more='agent b:\n    instruction p\n    description "b"\n'
        "policy compaction:\n    strategy: hybrid\n    trigger: 0.9\n    target: 0.5\n    keep_turns: 3\n"
        "    keep_files: 5\n    model: main\n    share: true\n"
    ),
    "policy, not shared": agent(more="policy compaction:\n    share: false\n"),
    "delegate to two": agent("delegate b, c", more="".join(
        f'agent {name}:\n    instruction p\n    description "{name}"\n' for name in "bc")),
    "helpers of helpers": agent("use b", more=(
        'agent b:\n    instruction p\n    description "b"\n    use c\nagent c:\n    instruction p\n    description "c"\n')),
    "flow": flow("return $input", head="flow main:"),
    "flow with parameters": flow("return $a"),
    "return nothing": flow("return"),
    "assign": flow("$x = 1", "return $x"),
    "assign an agent's answer": flow("$x = run agent a $a", "return $x"),
    "run an agent without a value": flow("run agent a"),
    "call": flow("$x = call llm p $a", "return $x"),
    "call without a value": flow("return call llm p"),
    "run a flow": flow("return run flow f $a"),
    "if": flow("if $a:", "    return $b"),
    "if else": flow("if $a:", "    $x = 1", "else:", "    $x = 2", "return $x"),
    "if elif else": flow("if $a:", "    $x = 1", "elif $b:", "    $x = 2", "else:", "    return", "return $x"),
    "for": flow("for $x in $a:", "    run agent a $x"),
    "for over a list": flow("for $x in [1, 2]:", "    run agent a $x"),
    "parallel": flow("parallel:", "    $x = run agent a $a", "    $y = call llm p $b", "return [$x, $y]"),
    "parallel without names": flow("parallel:", "    run agent a $a", "    run flow f $b"),
    "deep blocks": flow("if $a:", "    for $x in $b:", "        if $x:", "            parallel:", "                run agent a $x"),
    "prompt filled from variables": flow(
        '$file = "a.py"', "return call llm q", more="prompt q:\n    Read ${file} for ${input}.\n"
    ),
    "literals": flow('return [1, 2.5, "x", true, false, null, []]'),
    "escapes": flow(r'return "\"\\\/\n\t\r\u00e9\ud83d\ude42"'),
    "arithmetic": flow("return 1 + 2 * 3 - 4 / 5 - -6"),
    "brackets": flow("return (1 + 2) * (3 - (4 - 5))"),
    "comparisons": flow("return [$a == $b, $a != $b, $a < $b, $a > $b, $a <= $b, $a >= $b, $a contains $b]"),
    "logic": flow("return not $a and $b or not ($a or $b)"),
    "members": flow("return $a.b.c[0].d[$b]"),
    "a word as a member": flow("return $a.name"),
    "comments everywhere": flow(
        "# one", "$x = 1  # two", "", "# three", "if $x:  # four", "    # five", "    return  # six", "    # seven",
        "# eight", "else:", "    return $x", "# nine",
    ),
    "variables in one branch, read there": flow("if $a:", "    $x = 1", "    return $x"),
}  # fmt: skip
