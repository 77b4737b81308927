from dataclasses import dataclass
from typing import Any

import pytest

from minutebook.errors import InvalidPrompt, InvalidSetting, MissingSetting
from minutebook.prompt.markdown import MarkdownSection
from minutebook.prompt.section import Section
from minutebook.prompt.tools import RenderContext
from minutebook.prompt.visibility import SectionVisibility
from tests.prompt.generated import Colour
from tests.prompt.test_tool import ADD, Report


@dataclass(frozen=True)
class Task:
    objective: str
    budget: Any = None


TASK = MarkdownSection[Task](
    title="Task",
    key="task",
    summary="About ${objective}.",
    template="""
        Complete this: ${objective}

          - budget: ${budget}
    """,
)


def test_renders_a_heading_and_its_template_filled():
    assert TASK.render(Task("Refactor auth", 3), 0, "1") == (
        "## 1. Task\n\nComplete this: Refactor auth\n\n  - budget: 3"
    )


@pytest.mark.parametrize(
    ("depth", "number", "heading"),
    [
        (0, "1", "## 1. Task"),
        (1, "1.2", "### 1.2. Task"),
        (1, "1.2.", "### 1.2. Task"),
        (9, "1.1.1", "###### 1.1.1. Task"),
    ],
)
def test_headings_are_numbered_and_no_deeper_than_markdown_knows(depth, number, heading):
    assert TASK.render(Task("x"), depth, number).splitlines()[0] == heading


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("${objective} $5", "${objective} $5"),
        (None, ""),
        (2.5, "2.5"),
        (True, "true"),
        (Colour.RED, "red"),
        (["a", "é"], '["a", "é"]'),
        (Task("x"), '{"objective": "x", "budget": null}'),
        (Report(), "as it renders itself"),
    ],
)
def test_values_are_put_in_as_a_reader_wants_them(value, text):
    section = MarkdownSection[Task](title="T", key="t", template="<${budget}>")

    assert section.render(Task("x", value), 0, "1") == f"## 1. T\n\n<{text}>"


def test_only_braces_make_a_placeholder_and_two_dollars_escape_one():
    section = MarkdownSection(title="T", key="t", template="costs $5, echo $HOME, $${name}, $$")

    assert section.render(None, 0, "1") == "## 1. T\n\ncosts $5, echo $HOME, ${name}, $$"


@pytest.mark.parametrize("where", ["template", "summary"])
def test_an_unknown_placeholder_is_named_at_construction(where):
    texts = {"template": "x", where: "Do ${objectiv}."}
    with pytest.raises(InvalidPrompt) as caught:
        MarkdownSection[Task](title="T", key="task", **texts)

    assert str(caught.value) == (
        "the template of section 'task' has ${objectiv}, but Task has no such field (it has objective, budget); "
        "write $${objectiv} for plain text"
    )


def test_a_placeholder_without_params_is_an_error_too():
    with pytest.raises(InvalidPrompt, match=r"section 'task' has \$\{x\} but no params; use MarkdownSection\[Params\]"):
        MarkdownSection(title="T", key="task", template="${x}")


def test_params_may_come_from_their_default():
    section = MarkdownSection(title="T", key="t", template="${objective}", default_params=Task("x"))

    assert section.params_type is Task
    with pytest.raises(InvalidSetting, match=r"default_params of section 't'=Task\(.*expected a Params"):
        MarkdownSection[Params](title="T", key="t", template="", default_params=Task("x"))


@dataclass
class Params:
    pass


def test_a_summary_says_how_to_open_it():
    section = TASK.clone(tools=[ADD], children=[Section(title="More", key="more")])

    assert section.render(Task("auth"), 1, "2.1", path=("guide", "task"), visibility=SectionVisibility.SUMMARY) == (
        "### 2.1. Task\n\n"
        "About auth.\n\n"
        '_Summary only. Call `open_sections` with ["guide.task"] to open it and get the tools `add`, '
        'or `read_section` with "guide.task" to read it once._'
    )


def test_visibility_is_what_an_override_says_or_else_its_own():
    section = TASK.clone(
        visibility=lambda task, _: SectionVisibility.SUMMARY if task.budget else SectionVisibility.FULL
    )
    overrides = RenderContext(visibility_overrides={("task",): SectionVisibility.FULL})

    assert section.effective_visibility(Task("x", 1), ("task",)) is SectionVisibility.SUMMARY
    assert section.effective_visibility(Task("x", 0), ("task",)) is SectionVisibility.FULL
    assert section.effective_visibility(Task("x", 1), ("task",), overrides) is SectionVisibility.FULL
    assert section.render(Task("x", 1), 0, "1", context=overrides).startswith("## 1. Task\n\nComplete")


def test_a_clone_is_changed_and_the_original_is_not():
    changed = TASK.clone(title="Job", key="job")

    assert (changed.title, changed.key, changed.params_type) == ("Job", "job", Task)
    assert (TASK.title, TASK.key) == ("Task", "task")
    assert type(changed) is type(TASK)
    with pytest.raises(InvalidPrompt):
        TASK.clone(template="${nope}")
    with pytest.raises(InvalidSetting, match="attribute of section 'task'='colour': expected one of template, title"):
        TASK.clone(colour="red")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "A b"}, "the key of a section='A b': expected 1 to 64 lowercase letters, digits, _ and -"),
        ({"key": "a.b"}, "the key of a section='a.b'"),
        ({"title": "a\nb"}, "the title of section 'k'='a\\nb': expected one line of text"),
        ({"summary": " "}, "the summary of section 'k'=' ': expected a text that is not empty, or None"),
        ({"visibility": SectionVisibility.SUMMARY}, "the summary of section 'k' is missing; set summary="),
        ({"tools": [print]}, "a tool of section 'k'=<built-in function print>: expected a Tool"),
        ({"children": ["x"]}, "a child of section 'k'='x': expected a Section"),
        ({"default_params": 3}, "the params of section 'k'=<class 'int'>: expected a dataclass"),
    ],
)
def test_invalid_settings_are_rejected_at_construction(options, said):
    with pytest.raises((InvalidSetting, MissingSetting)) as caught:
        Section(**{"title": "T", "key": "k"} | options)

    assert str(caught.value).startswith(said)


def test_a_template_is_text():
    with pytest.raises(InvalidSetting, match="the template of section 'k'=None: expected a str"):
        MarkdownSection(title="T", key="k", template=None)


def test_a_summary_that_is_asked_for_and_not_there_is_an_error():
    with pytest.raises(MissingSetting, match="the summary of section 'k' is missing"):
        Section(title="T", key="k").render(None, 0, "1", visibility=SectionVisibility.SUMMARY)


@dataclass(frozen=True)
class Counter:
    session_id: None = None
    count: int = 0


class CountSection(Section[None]):
    """What planning will do: it shows the session as it is, and an outline of its own."""

    reads_session = True

    def __init__(self):
        super().__init__(title="Count", key="count", visibility=SectionVisibility.SUMMARY)

    def body(self, params, depth, number, *, path, context):
        opened = [at[-1] for at in context.visibility_overrides if at[:-1] == path]
        return f"{context.session.count} so far\n\n#{'#' * depth} {number}.1. open: {opened}"

    def outline(self, params, *, path, context):
        return f"about {round(context.session.count, -1)}"


def test_a_section_of_ones_own_shows_the_session_and_an_outline():
    section = CountSection()
    context = RenderContext(Counter(count=42), {("count", "step-3"): SectionVisibility.FULL})
    full = section.render(None, 0, "1", visibility=SectionVisibility.FULL, context=context)

    assert full == "## 1. Count\n\n42 so far\n\n# 1.1. open: ['step-3']"
    assert section.render(None, 0, "1", context=context).startswith("## 1. Count\n\nabout 40\n\n_Summary only.")
    assert section.params_type is None
    assert section.dynamic
    assert not TASK.dynamic
    assert TASK.clone(enabled=lambda *_: True).dynamic
    assert TASK.clone(children=[section]).dynamic
