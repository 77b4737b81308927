import asyncio
import inspect
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any

import pytest

from minutebook.errors import InvalidSetting, MissingSetting, ToolValidationError, UnsupportedType
from minutebook.prompt.section import Section
from minutebook.prompt.template import PromptTemplate
from minutebook.prompt.tools import Tool, ToolContext, ToolExample, ToolResult, tool
from tests.prompt.generated import Colour


@dataclass(frozen=True)
class AddParams:
    left: int = field(metadata={"description": "One number."})
    right: int = 1


@dataclass(frozen=True)
class Sum:
    value: int


def add(params: AddParams, *, context: ToolContext) -> ToolResult[Sum]:
    if params.left < 0:
        raise ToolValidationError("left must not be negative.")
    return ToolResult.ok("Added.", Sum(params.left + params.right))


ADD = Tool[AddParams, Sum](name="add", description="Add two numbers.", handler=add)
PROMPT = PromptTemplate[str](ns="tests", key="p", sections=[Section(title="T", key="t", tools=[ADD])]).bind()
CONTEXT = ToolContext(prompt=PROMPT, rendered_prompt=PROMPT.render(), session=None, call_id="call_1")


def test_a_tool_knows_its_types_and_tells_the_provider():
    assert (ADD.params_type, ADD.result_type, ADD.is_async) == (AddParams, Sum, False)
    assert ADD.spec() == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {
                    "left": {"type": "integer", "description": "One number."},
                    "right": {"type": "integer", "default": 1},
                },
                "required": ["left"],
                "additionalProperties": False,
            },
        },
    }
    assert ADD.spec(strict=True)["function"]["strict"] is True
    assert ADD.spec(strict=True)["function"]["parameters"]["required"] == ["left", "right"]


def test_a_call_is_parsed_and_handed_to_the_handler():
    result = ADD.call('{"left": 2, "right": 3}', context=CONTEXT)

    assert result == ToolResult("Added.", Sum(5))
    assert result.render() == 'Added.\n\n{"value": 5}'


@pytest.mark.parametrize(
    ("arguments", "said"), [('{"left": "2"}', 'left: is "2"'), ('{"left": -1}', "must not be negative")]
)
def test_a_bad_call_says_what_the_model_can_do(arguments, said):
    with pytest.raises(ToolValidationError, match=said):
        ADD.call(arguments, context=CONTEXT)


def test_examples_are_told_with_the_description():
    example = ToolExample("two and two", AddParams(2, 2), Sum(4))
    told = Tool[AddParams, Sum](name="add", description="Add.", handler=add, examples=[example])

    assert told.full_description() == ('Add.\nExample: two and two: {"left": 2, "right": 2} -> {"value": 4}')


def test_a_tool_without_params_takes_an_empty_object():
    def now(params: None, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(f"{params} for {context.call_id}")

    clock = Tool[None, str](name="now", description="The time.", handler=now)

    assert clock.schema() == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert clock.call("", context=CONTEXT).render() == clock.call("{}", context=CONTEXT).render() == "None for call_1"
    with pytest.raises(ToolValidationError, match="x: is not a field of NoParams; there are no fields"):
        clock.call('{"x": 1}', context=CONTEXT)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "add it"}, "the name of a tool='add it': expected 1 to 64 letters, digits, _ and -"),
        ({"name": "a" * 65}, "the name of a tool"),
        ({"name": "add\n"}, "the name of a tool"),
        ({"description": " "}, "the description of tool 'add'=' ': expected what the tool does and when to use it"),
        ({"timeout_seconds": 0}, "timeout_seconds of tool 'add'=0: expected more than 0, or None"),
        ({"handler": 3}, "the handler of tool 'add'=3"),
        ({"examples": [ToolExample("x", Sum(1))]}, "an example of tool 'add'=Sum(value=1): expected a AddParams"),
    ],
)
def test_invalid_settings_are_rejected_at_construction(changes, said):
    with pytest.raises(InvalidSetting) as caught:
        Tool[AddParams, Sum](**{"name": "add", "description": "Add.", "handler": add} | changes)

    assert str(caught.value).startswith(said)


def test_params_must_be_a_dataclass_of_types_that_have_a_json_form():
    @dataclass
    class Bad:
        it: bytes

    options: dict[str, Any] = {"name": "add", "description": "Add.", "handler": add}
    with pytest.raises(InvalidSetting, match="the params of tool 'add'"):
        Tool[int, Sum](**options)
    with pytest.raises(MissingSetting, match=r"Tool\[Params, Result\]"):
        Tool(**options)
    with pytest.raises(UnsupportedType, match=r"Bad\.it has type bytes"):
        Tool[Bad, Sum](**options)


class Report:
    def render(self):
        return "as it renders itself"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult("Done."), "Done."),
        (ToolResult("Found:", ["a", "é"]), 'Found:\n\n["a", "é"]'),
        (ToolResult("Found:", "plain text"), "Found:\n\nplain text"),
        (ToolResult("", {"a": Colour.RED}), '{"a": "red"}'),
        (ToolResult("Here:", Report()), "Here:\n\nas it renders itself"),
        (ToolResult("Path:", PurePosixPath("/a")), 'Path:\n\n"/a"'),
        (ToolResult("Sum:", {"a": float("inf")}), 'Sum:\n\n{"a": "inf"}'),
        (ToolResult("Summarised.", Sum(1), show_value=False), "Summarised."),
        (ToolResult("Zero:", 0), "Zero:\n\n0"),
        (ToolResult.error("No such file; try ls."), "No such file; try ls."),
    ],
)
def test_a_result_renders_its_message_and_its_value_where_that_helps(result, text):
    assert result.render() == text


def test_a_result_says_whether_it_worked():
    assert ToolResult.ok("a", 1) == ToolResult("a", 1, success=True)
    assert ToolResult.error("a").success is False


@tool
def search(query: Annotated[str, "What to look for."], limit: int = 10, tags: list[str] = []) -> list[str]:  # noqa: B006 - a default people write
    """Search the catalogue.

    Newest first.
    """
    tags.append("seen")
    return [f"{query} {len(tags)}"] * limit


def test_a_function_becomes_a_tool():
    assert search.spec()["function"] == {
        "name": "search",
        "description": "Search the catalogue.\n\nNewest first.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "limit": {"type": "integer", "default": 10},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    }
    assert search.params_type.__name__ == "SearchParams"
    assert search.result_type == list[str]


def test_calls_of_a_function_do_not_share_its_default_list():
    first, second = (search.call({"query": "a", "limit": 1}, context=CONTEXT) for _ in range(2))

    assert first.render() == second.render() == '["a 1"]'


def test_a_function_may_ask_for_the_context_and_return_what_it_likes():
    @tool(name="who", timeout_seconds=2)
    def whoever(context: ToolContext) -> str:
        """Who calls."""
        return f"it is {context.call_id}"

    assert whoever.schema()["properties"] == {}
    assert (whoever.name, whoever.timeout_seconds) == ("who", 2)
    assert whoever.call({}, context=CONTEXT).render() == "it is call_1"
    assert tool(lambda: None, name="x", description="X.").call({}, context=CONTEXT).render() == "Done."
    refused = tool(lambda: ToolResult.error("no"), name="x", description="X.")
    assert refused.call({}, context=CONTEXT) == ToolResult.error("no")


def test_an_async_function_is_awaited_by_whoever_calls_it():
    @tool
    async def fetch(url: str) -> str:
        """Fetch a page."""
        await asyncio.sleep(0)
        return f"page of {url}"

    pending = fetch.call({"url": "x"}, context=CONTEXT)

    assert fetch.is_async
    assert inspect.isawaitable(pending)
    assert asyncio.run(_awaited(pending)).render() == "page of x"


async def _awaited(pending):
    return await pending


def test_a_function_that_a_model_cannot_call_is_refused():
    def untyped(query):
        """Search."""

    def many(*queries: str):
        """Search."""

    def undocumented(query: str):
        pass

    with pytest.raises(MissingSetting, match="the type of parameter 'query' of tool 'untyped' is missing"):
        tool(untyped)
    with pytest.raises(InvalidSetting, match="parameter 'queries' of tool 'many'"):
        tool(many)
    with pytest.raises(InvalidSetting, match="the description of tool 'undocumented'=''"):
        tool(undocumented)
