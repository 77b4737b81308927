from dataclasses import dataclass, replace
from typing import Any

import pytest

from minutebook.errors import (
    InvalidPrompt,
    InvalidSetting,
    OutputParseError,
    ToolValidationError,
    UnsupportedType,
    VisibilityExpansionRequired,
)
from minutebook.prompt.markdown import MarkdownSection
from minutebook.prompt.section import Section
from minutebook.prompt.template import Prompt, PromptTemplate
from minutebook.prompt.tools import ToolContext, tool
from minutebook.prompt.visibility import SectionVisibility
from tests.prompt.test_section import TASK, Counter, CountSection, Task
from tests.prompt.test_tool import ADD

SUMMARY, FULL = SectionVisibility.SUMMARY, SectionVisibility.FULL


@dataclass(frozen=True)
class Review:
    """What was found."""

    verdict: str
    findings: list[str]


@dataclass(frozen=True)
class Reader:
    name: str


def named(name):
    return tool(lambda: name, name=name, description=name)


STYLE = MarkdownSection(
    title="Style", key="style", template="Long words for ${name}.", summary="Be brief.", visibility=SUMMARY,
    default_params=Reader("all"), tools=[named("lint")],
    children=[MarkdownSection(title="Names", key="names", template="Nouns.", tools=[named("rename")])],
)  # fmt: skip
TEMPLATE = PromptTemplate[Review](
    ns="agents/reviewer",
    key="review",
    sections=[
        TASK,
        Section(
            title="Guide",
            key="guide",
            tools=[ADD],
            children=[STYLE, STYLE.clone(key="form", title="Form", visibility=FULL, tools=[], children=[])],
        ),
    ],
)
PROMPT = TEMPLATE.bind(Task("auth", 3))


def test_a_prompt_is_its_sections_numbered_and_how_to_answer():
    rendered = PROMPT.render()

    assert rendered.text == (
        """\
## 1. Task

Complete this: auth

  - budget: 3

## 2. Guide

### 2.1. Style

Be brief.

_Summary only. Call `open_sections` with ["guide.style"] to open it and get the tools `lint`, `rename`, or `read_section` with "guide.style" to read it once._

### 2.2. Form

Long words for all.

## 3. Response format

Answer with one JSON object that fits this JSON Schema, and nothing else:

```json
{"type": "object", "description": "What was found.", "properties": {"verdict": {"type": "string"}, "findings": {"type": "array", "items": {"type": "string"}}}, "required": ["verdict", "findings"], "additionalProperties": false}
```"""
    )
    assert [tool.name for tool in rendered.tools] == ["add", "open_sections", "read_section"]
    assert (rendered.name, rendered.output_type) == ("review", Review)


def test_rendering_twice_is_equal_and_both_ways_of_binding_are():
    assert PROMPT.render() == PROMPT.render()
    assert Prompt(TEMPLATE).bind(Task("auth", 3)) == PROMPT
    assert Prompt(TEMPLATE).bind(Task("other")).bind(Reader("Ann"), Task("auth", 3)).params == (
        Reader("Ann"),
        Task("auth", 3),
    )


def test_an_answer_is_read_as_the_output_type():
    rendered = PROMPT.render()

    assert rendered.parse('{"verdict": "fine", "findings": []}') == Review("fine", [])
    with pytest.raises(OutputParseError, match="findings: is missing"):
        rendered.parse('{"verdict": "fine"}')


@pytest.mark.parametrize("template", [PromptTemplate[str], PromptTemplate[None], PromptTemplate])
def test_a_text_answer_is_the_text_and_is_not_asked_for_as_json(template):
    rendered = template(ns="a", key="b", sections=[Section(title="Hi", key="hi")], name="greeting").bind().render()

    assert (rendered.text, rendered.output_type, rendered.name) == ("## 1. Hi", None, "greeting")
    assert rendered.parse("hello {}") == "hello {}"


def test_a_provider_with_structured_output_is_not_asked_in_words():
    rendered = PROMPT.render(native_output=True)

    assert "Response format" not in rendered.text
    assert rendered.output_type is Review
    assert rendered.parse('{"verdict": "fine", "findings": []}') == Review("fine", [])


def test_what_is_disabled_is_skipped_with_its_children_and_tools_and_takes_no_number():
    off = TASK.clone(
        enabled=lambda task, _: task.budget is not None, tools=[ADD], children=[Section(title="In", key="in")]
    )
    template = PromptTemplate[str](ns="a", key="b", sections=[off, Section(title="End", key="end")])

    without, full = template.bind(Task("x")).render(), template.bind(Task("x", 1)).render()

    assert (without.text, without.tools) == ("## 1. End", ())
    assert [line for line in full.text.splitlines() if line.startswith("#")] == [
        "## 1. Task",
        "### 1.1. In",
        "## 2. End",
    ]
    assert full.tools == (ADD,)


def test_the_session_is_read_at_each_rendering():
    prompt = PromptTemplate[str](ns="a", key="b", sections=[CountSection().clone(visibility=FULL)]).bind()

    assert "1 so far" in prompt.render(session=Counter(count=1)).text
    assert "2 so far" in prompt.render(session=Counter(count=2)).text
    assert prompt.template.dynamic
    assert not TEMPLATE.dynamic


def test_missing_params_name_the_section_and_the_type():
    with pytest.raises(InvalidPrompt) as caught:
        Prompt(TEMPLATE).render()

    assert str(caught.value) == (
        "section 'task' needs a Task; bind one with prompt.bind(Task(…)), or set default_params of the section"
    )


def test_params_of_a_section_that_is_hidden_now_are_missed_too():
    inner = TASK.clone(key="inner")
    hidden = STYLE.clone(children=[inner])
    with pytest.raises(InvalidPrompt, match=r"section 'style\.inner' needs a Task"):
        PromptTemplate[str](ns="a", key="b", sections=[hidden]).bind().render()


def test_there_is_one_value_for_each_type():
    with pytest.raises(InvalidSetting, match=r"bound to prompt 'review'=Task\(.*expected one value for each type"):
        TEMPLATE.bind(Task("a"), Task("b"))
    with pytest.raises(InvalidSetting, match=r"='auth': expected one of Task, Reader"):
        TEMPLATE.bind("auth")
    with pytest.raises(InvalidSetting, match="expected nothing: no section has params"):
        PromptTemplate[str](ns="a", key="b", sections=[Section(title="T", key="t")]).bind(3)
    other = STYLE.clone(key="other", default_params=Reader("none"), tools=[], children=[])
    with pytest.raises(
        InvalidSetting, match=r"default_params of section 'other'=Reader\(name='none'\): expected Reader\(name='all'\)"
    ):
        PromptTemplate[str](ns="a", key="b", sections=[STYLE, other])


def section(key, *tools, children=()):
    return Section(title=key.title(), key=key, tools=tools, children=children)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ([section("a"), section("a")], "the section 'a' is defined more than once (A, A); use unique names"),
        ([section("a", children=[section("b"), section("b")])], "the section 'a.b' is defined more than once"),
        (
            [section("a", ADD), section("b", children=[section("c", ADD)])],
            "the tool 'add' is defined more than once (a, b.c)",
        ),
        ([section("a", named("open_sections"))], "the tool 'open_sections' is defined more than once (built in, a)"),
    ],
)
def test_names_in_one_prompt_must_differ(sections, said):
    with pytest.raises(InvalidPrompt) as caught:
        PromptTemplate[str](ns="a", key="b", sections=sections)

    assert str(caught.value).startswith(said)


def test_one_key_at_two_levels_is_two_paths():
    template = PromptTemplate[str](ns="a", key="b", sections=[section("a", children=[section("a")])])

    assert template.bind().render().text == "## 1. A\n\n### 1.1. A"


def test_an_output_must_be_a_dataclass_with_a_json_form():
    @dataclass
    class Bad:
        it: bytes

    with pytest.raises(InvalidSetting, match="the output of prompt 'b'=<class 'int'>: expected a dataclass"):
        PromptTemplate[int](ns="a", key="b", sections=[section("a")])
    with pytest.raises(UnsupportedType, match=r"Bad\.it has type bytes"):
        PromptTemplate[Bad](ns="a", key="b", sections=[section("a")])
    with pytest.raises(InvalidSetting, match="the sections of prompt 'b'"):
        PromptTemplate[str](ns="a", key="b", sections=[])
    with pytest.raises(InvalidSetting, match="ns and key"):
        PromptTemplate[str](ns="", key="b", sections=[section("a")])


def called(prompt, name, arguments, **options):
    rendered = prompt.render(**options)
    context = ToolContext(prompt=prompt, rendered_prompt=rendered, session=options.get("session"))
    return rendered.tool(name).call(arguments, context=context)


def test_the_model_opens_a_section_and_the_caller_renders_again():
    overrides: dict[Any, Any] = {}
    with pytest.raises(VisibilityExpansionRequired) as asked:
        called(PROMPT, "open_sections", {"section_keys": ["guide.style"], "reason": "to know the names"})
    overrides.update(asked.value.requested_overrides)
    rendered = PROMPT.render(visibility_overrides=overrides)

    assert overrides == {("guide", "style"): FULL}
    assert (asked.value.reason, asked.value.section_keys) == ("to know the names", ("guide.style",))
    assert "### 2.1. Style\n\nLong words for all.\n\n#### 2.1.1. Names\n\nNouns." in rendered.text
    assert [tool.name for tool in rendered.tools] == ["add", "lint", "rename"]


def test_the_model_reads_a_section_and_nothing_changes():
    before = PROMPT.render()
    result = called(PROMPT, "read_section", {"section_key": "guide.style"})

    assert result.render() == "### 2.1. Style\n\nLong words for all.\n\n#### 2.1.1. Names\n\nNouns."
    assert PROMPT.render() == before


def test_a_section_is_read_as_the_session_is_now():
    prompt = PromptTemplate[str](ns="a", key="b", sections=[CountSection()]).bind()

    assert "7 so far" in called(prompt, "read_section", {"section_key": "count"}, session=Counter(count=7)).render()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["guide"], "Section 'guide' is already shown in full. Sections that can be opened: guide.style."),
        (["nope"], "There is no section 'nope'. Sections that can be opened: guide.style."),
        (["guide.style", "style"], "There is no section 'style'. Sections that can be opened: guide.style."),
        (["guide.style.names"], "There is no section 'guide.style.names'."),
        ([], "Invalid arguments for open_sections; fix these and call it again:\n- section_keys: has 0 items"),
    ],
)
def test_a_section_that_cannot_be_opened_is_told_to_the_model(keys, said):
    with pytest.raises(ToolValidationError) as caught:
        called(PROMPT, "open_sections", {"section_keys": keys, "reason": "r"})

    assert str(caught.value).startswith(said)


def test_there_is_nothing_to_open_where_all_is_open():
    rendered = PROMPT.render(visibility_overrides={("guide", "style"): FULL})

    assert rendered.tool("open_sections") is None
    assert rendered.tool("read_section") is None
    assert rendered.summarized_sections() == ()


def test_an_override_may_close_a_section_too_and_must_begin_at_one():
    rendered = PROMPT.render(visibility_overrides={("task",): SUMMARY, ("guide", "step-3"): FULL})

    assert rendered.summarized_sections() == (("task",), ("guide", "style"))
    with pytest.raises(
        InvalidSetting, match=r"=\('style',\): expected a tuple of keys that starts with one of task, guide"
    ):
        PROMPT.render(visibility_overrides={("style",): FULL})


def test_a_template_can_be_worded_differently():
    other = TEMPLATE.override(sections={"task": "Do ${objective}!", "guide.style": "Short."}, tools={"add": "Sum up."})
    rendered = other.bind(Task("auth")).render(visibility_overrides={("guide", "style"): FULL})

    assert rendered.text.startswith(
        "## 1. Task\n\nDo auth!\n\n## 2. Guide\n\n### 2.1. Style\n\nShort.\n\n#### 2.1.1. Names"
    )
    assert rendered.tool("add") == replace(ADD, description="Sum up.")
    assert other.output_type is Review
    assert PROMPT.render().tool("add") is ADD


def test_what_accepts_no_override_is_not_overridden():
    fixed = PromptTemplate[str](
        ns="a", key="b", sections=[TASK.clone(accepts_overrides=False, tools=[replace(ADD, accepts_overrides=False)])]
    )
    for change in ({"sections": {"task": "x"}}, {"tools": {"add": "x"}}):
        with pytest.raises(InvalidSetting, match="that accepts overrides"):
            fixed.override(**change)
    with pytest.raises(InvalidSetting, match="override='nope': expected the key of a section or the name"):
        fixed.override(sections={"nope": "x"})
    with pytest.raises(InvalidSetting, match="the key of a Markdown section"):
        TEMPLATE.override(sections={"guide": "x"})
    with pytest.raises(InvalidPrompt):
        TEMPLATE.override(sections={"task": "${nope}"})
