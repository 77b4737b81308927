"""Prompts: the template, its tree of sections, overrides, and what rendering gives.

Other words for a prompt that is otherwise the same, for experiments and for owners who do not edit code.

What one rendering of a prompt gives: the text, and the tools that go with it.

The sections of a prompt as a tree: where each stands, and what may be there only once.

A prompt: sections, the values they are filled with, and the type of the answer.

template = PromptTemplate[Review](ns="agents/reviewer", key="review", sections=[…])
rendered = template.bind(Task("src/app.py")).render()
review = rendered.parse(answer)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from types import NoneType
from typing import Any, Generic, TypeVar, cast

from minutebook.errors import InvalidPrompt, InvalidSetting
from minutebook.history.protocol import SessionProtocol
from minutebook.prompt.disclosure import DISCLOSURE_TOOLS
from minutebook.prompt.markdown import MarkdownSection
from minutebook.prompt.parse import parse, response_format
from minutebook.prompt.schema import json_schema
from minutebook.prompt.section import AnySection
from minutebook.prompt.tools import AnyTool, RenderContext, Typed
from minutebook.prompt.visibility import SectionPath, SectionVisibility, dotted


def overridden(
    sections: Sequence[AnySection], templates: Mapping[str, str], descriptions: Mapping[str, str]
) -> tuple[AnySection, ...]:
    """The sections with these templates, by dotted key, and these tool descriptions, by name.

    Raises:
        InvalidSetting: there is no such section or tool, or it does not accept overrides.
    """
    changes = _Changes(dict(templates), dict(descriptions))
    changed = tuple(changes.section(section, ()) for section in sections)
    for name in (*changes.templates, *changes.descriptions):
        raise InvalidSetting("what is overridden", name, "the key of a section or the name of a tool of this prompt")
    return changed


class _Changes:
    """What is still to be changed."""

    def __init__(self, templates: dict[str, str], descriptions: dict[str, str]) -> None:
        self.templates, self.descriptions = templates, descriptions

    def section(self, section: AnySection, above: SectionPath) -> AnySection:
        path = (*above, section.key)
        template = self.templates.pop(dotted(path), None)
        tools = tuple(map(self.tool, section.tools))
        children = tuple(self.section(child, path) for child in section.children)
        if template is not None:
            if not isinstance(section, MarkdownSection) or not section.accepts_overrides:
                expected = "the key of a Markdown section that accepts overrides"
                raise InvalidSetting("what is overridden", dotted(path), expected)
            section = section.clone(template=template)
        if tools != section.tools or children != section.children:
            section = section.clone(tools=tools, children=children)
        return section

    def tool(self, tool: AnyTool) -> AnyTool:
        description = self.descriptions.pop(tool.name, None)
        if description is None:
            return tool
        if not tool.accepts_overrides:
            raise InvalidSetting("what is overridden", tool.name, "the name of a tool that accepts overrides")
        return replace(tool, description=description)


Out = TypeVar("Out")


@dataclass(frozen=True)
class RenderedSection:
    """One section as it was rendered, without its children."""

    path: SectionPath
    visibility: SectionVisibility
    text: str


@dataclass(frozen=True)
class RenderedPrompt(Generic[Out]):
    """What a model is sent, and how to read what it answers."""

    name: str
    text: str
    tools: tuple[AnyTool, ...]
    output_type: type | None
    """The dataclass that the answer must hold; None where it is text."""
    sections: tuple[RenderedSection, ...]
    visibility_overrides: Mapping[SectionPath, SectionVisibility] = field(default_factory=dict)
    native_output: bool = False
    """Whether the provider itself holds the answer to the schema, so that the text does not ask for it."""

    def tool(self, name: str) -> AnyTool | None:
        """The tool of that name, if it is offered."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def summarized(self) -> tuple[SectionPath, ...]:
        """The sections of which only a summary is shown."""
        return tuple(each.path for each in self.sections if each.visibility is SectionVisibility.SUMMARY)

    def text_of(self, path: SectionPath) -> str:
        """What was rendered of a section and of those in it."""
        return "\n\n".join(each.text for each in self.sections if each.path[: len(path)] == path)

    def parse(self, answer: str, *, coerce: bool = False) -> Out:
        """The answer as the output type: the dataclass it holds, or the text itself.

        Raises:
            OutputParseError: it does not hold one; the message can be sent back to the model.
        """
        result: Any = answer if self.output_type is None else parse(self.output_type, answer, coerce=coerce)
        return cast("Out", result)


def placed(sections: Sequence[AnySection], above: SectionPath = ()) -> Iterator[tuple[SectionPath, AnySection]]:
    """Every section with its path, each before those in it."""
    for section in sections:
        path = (*above, section.key)
        yield path, section
        yield from placed(section.children, path)


def duplicate_name_error(kind: str, name: str, places: Sequence[str]) -> InvalidPrompt:
    """The error for two sections or tools of one name."""
    return InvalidPrompt(f"the {kind} {name!r}", f"is there more than once ({', '.join(places)}); give each its own")


def require_distinct(sections: Sequence[AnySection]) -> None:
    """Raise InvalidPrompt if two sections have one path, or two tools one name."""
    paths: set[SectionPath] = set()
    owners = {tool.name: "built in" for tool in DISCLOSURE_TOOLS}
    for path, section in placed(sections):
        if path in paths:
            raise duplicate_name_error(
                "section", dotted(path), [each.title for at, each in placed(sections) if at == path]
            )
        paths.add(path)
        for tool in section.tools:
            if tool.name in owners:
                raise duplicate_name_error("tool", tool.name, [owners[tool.name], dotted(path)])
            owners[tool.name] = dotted(path)


def defaults(sections: Sequence[AnySection]) -> dict[type, Any]:
    """The default for each type of params; sections that share a type share its value.

    Raises:
        InvalidSetting: two sections have different defaults of one type.
    """
    values: dict[type, Any] = {}
    for path, section in placed(sections):
        own = section.default_params
        if own is not None and values.setdefault(type(own), own) != own:
            other = values[type(own)]
            raise InvalidSetting(
                f"default_params of section {dotted(path)!r}", own, f"{other!r} as another section does"
            )
    return values


def require_params(sections: Sequence[AnySection], values: Mapping[type, Any]) -> None:
    """Raise InvalidPrompt if any section, shown now or perhaps later, has none."""
    for path, section in placed(sections):
        if section.params_type is not None and section.params_type not in values:
            params = section.params_type.__name__
            advice = f"bind one with prompt.bind({params}(…)), or give the section default_params"
            raise InvalidPrompt(f"section {dotted(path)!r}", f"needs a {params}; {advice}")


def rendered(
    sections: Sequence[AnySection],
    values: Mapping[type, Any],
    context: RenderContext,
    above: SectionPath = (),
    prefix: str = "",
) -> Iterator[tuple[RenderedSection, tuple[AnyTool, ...]]]:
    """Every section that is shown, rendered, with the tools it brings; what is disabled or summarised hides its children."""
    number = 0
    for section in sections:
        path = (*above, section.key)
        params = values.get(section.params_type) if section.params_type else None
        if not section.is_enabled(params, context):
            continue
        number += 1
        visibility = section.shown(params, path, context)
        text = section.render(
            params, len(above), f"{prefix}{number}", path=path, visibility=visibility, context=context
        )
        is_full = visibility is SectionVisibility.FULL
        yield RenderedSection(path, visibility, text), section.tools if is_full else ()
        if is_full:
            yield from rendered(section.children, values, context, path, f"{prefix}{number}.")


@dataclass(frozen=True, kw_only=True)
class PromptTemplate(Typed, Generic[Out]):
    """`PromptTemplate[Out](ns=…, key=…, sections=[…])`; Out is a dataclass, or str (or nothing) for a text answer."""

    ns: str
    """Whose prompt it is, such as `agents/worker`."""
    key: str
    sections: Sequence[AnySection]
    name: str | None = None
    """What events and reports call it; its key where none is given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sections", tuple(self.sections))
        object.__setattr__(self, "name", self.name or self.key)
        if not self.ns.strip() or not self.key.strip():
            raise InvalidSetting("the ns and key of a prompt", (self.ns, self.key), "both, as text")
        if not self.sections:
            raise InvalidSetting(f"the sections of prompt {self.key!r}", self.sections, "at least one")
        require_distinct(self.sections)
        defaults(self.sections)
        if self.output_type is not None:
            if not is_dataclass(self.output_type):
                expected = "a dataclass, or str for a text answer"
                raise InvalidSetting(f"the output of prompt {self.key!r}", self.output_type, expected)
            json_schema(self.output_type)  # now, not when the model is called

    @property
    def output_type(self) -> type | None:
        """The dataclass that the answer must hold; None where it is text."""
        wanted = self.type_arguments[0] if self.type_arguments else str
        return None if wanted in {str, NoneType} else wanted

    @property
    def dynamic(self) -> bool:
        """Whether it may render differently from one moment to the next."""
        return any(section.dynamic for section in self.sections)

    def bind(self, *params: object) -> "Prompt[Out]":
        """The prompt with these values."""
        return Prompt(self).bind(*params)

    def override(
        self,
        *,
        sections: Mapping[str, str] | None = None,
        tools: Mapping[str, str] | None = None,
    ) -> "PromptTemplate[Out]":
        """The template with other words: templates of Markdown sections by dotted key, descriptions of tools by name.

        Raises:
            InvalidSetting: there is no such section or tool, or it does not accept overrides.
        """
        return replace(self, sections=overridden(self.sections, sections or {}, tools or {}))


@dataclass(frozen=True)
class Prompt(Generic[Out]):
    """A template and what was bound to it, one value for each type."""

    template: PromptTemplate[Out]
    params: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        return self.template.name or self.template.key

    @property
    def output_type(self) -> type | None:
        return self.template.output_type

    def bind(self, *params: object) -> "Prompt[Out]":
        """A prompt with these values too; one takes the place of an earlier one of its type.

        Raises:
            InvalidSetting: two are of one type, or no section takes one.
        """
        wanted = _params_types(self.template.sections)
        seen: set[type] = set()
        for value in params:
            if type(value) not in wanted:
                names = ", ".join(cls.__name__ for cls in wanted)
                expected = f"one of {names}" if names else "nothing: no section takes params"
                raise InvalidSetting(f"what is bound to prompt {self.name!r}", value, expected)
            if type(value) in seen:
                raise InvalidSetting(f"what is bound to prompt {self.name!r}", value, "one value for each type")
            seen.add(type(value))
        return replace(self, params=(*(old for old in self.params if type(old) not in seen), *params))

    def render(
        self,
        *,
        session: SessionProtocol | None = None,
        visibility_overrides: Mapping[SectionPath, SectionVisibility] | None = None,
        native_output: bool = False,
    ) -> RenderedPrompt[Out]:
        """The text and the tools as they are now; the same state gives the same text.

        With `native_output` the provider itself is given the schema of the answer, and the text does not ask for it.

        Raises:
            InvalidPrompt: a section has nothing to be rendered with.
        """
        sections = self.template.sections
        values = {**defaults(sections), **{type(value): value for value in self.params}}
        require_params(sections, values)
        overrides = dict(visibility_overrides or {})
        _require_known(sections, overrides)
        shown = list(rendered(sections, values, RenderContext(session, overrides)))
        parts = [section for section, _ in shown]
        tools = [tool for _, brought in shown for tool in brought]
        if any(part.visibility is SectionVisibility.SUMMARY for part in parts):
            tools += DISCLOSURE_TOOLS
        texts = [part.text for part in parts]
        if self.output_type is not None and not native_output:
            texts.append(response_format(self.output_type, sum(len(part.path) == 1 for part in parts) + 1))
        return RenderedPrompt(
            name=self.name,
            text="\n\n".join(texts),
            tools=tuple(tools),
            output_type=self.output_type,
            sections=tuple(parts),
            visibility_overrides=overrides,
            native_output=native_output,
        )


def _params_types(sections: Sequence[AnySection]) -> list[type]:
    types = (section.params_type for _, section in placed(sections))
    return list(dict.fromkeys(cls for cls in types if cls is not None))


def _require_known(sections: Sequence[AnySection], overrides: Mapping[SectionPath, Any]) -> None:
    """A section may know paths below it that we do not, but an override must begin at a section there is."""
    roots = [section.key for section in sections]
    for path in overrides:
        if path[:1] not in [(root,) for root in roots]:
            expected = f"a tuple of keys that begins with one of {', '.join(roots)}"
            raise InvalidSetting("a path in visibility_overrides", path, expected)
