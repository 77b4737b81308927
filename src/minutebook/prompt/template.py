"""Prompts: the template with its tree of sections, overrides, bound parameters and rendering.

    template = PromptTemplate[Review](ns="agents/reviewer", key="review", sections=[…])
    rendered = template.bind(Task("src/app.py")).render()
    review = rendered.parse(answer)

Overrides change the texts of a prompt without changing code, for experiments.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from types import NoneType
from typing import Any, Generic, TypeVar, cast

from minutebook.errors import InvalidPrompt, InvalidSetting, require_type
from minutebook.history.protocol import SessionProtocol
from minutebook.prompt.disclosure import DISCLOSURE_TOOLS
from minutebook.prompt.markdown import MarkdownSection
from minutebook.prompt.parse import parse, response_format
from minutebook.prompt.schema import json_schema
from minutebook.prompt.section import AnySection, Section
from minutebook.prompt.tools import AnyTool, ReifiedGeneric, RenderContext
from minutebook.prompt.visibility import SectionPath, SectionVisibility, dotted


def _with_overrides(
    sections: Sequence[AnySection], templates: Mapping[str, str], descriptions: Mapping[str, str]
) -> tuple[AnySection, ...]:
    """The sections with these templates (by dotted key) and these tool descriptions (by name)."""
    overrides = _Overrides(dict(templates), dict(descriptions))
    new_sections = tuple(overrides.apply_to_section(section, ()) for section in sections)
    unknown_names = [*overrides.templates, *overrides.descriptions]
    if unknown_names:
        expected = "the key of a section or the name of a tool of this prompt"
        raise InvalidSetting("override", unknown_names[0], expected)
    return new_sections


class _Overrides:
    """The overrides that were not applied yet. Those that remain at the end are unknown."""

    def __init__(self, templates: dict[str, str], descriptions: dict[str, str]) -> None:
        self.templates, self.descriptions = templates, descriptions

    def apply_to_section(self, section: AnySection, parent_path: SectionPath) -> AnySection:
        path = (*parent_path, section.key)
        template = self.templates.pop(dotted(path), None)
        tools = tuple(map(self.apply_to_tool, section.tools))
        children = tuple(self.apply_to_section(child, path) for child in section.children)
        if template is not None:
            if not isinstance(section, MarkdownSection) or not section.accepts_overrides:
                expected = "the key of a Markdown section that accepts overrides"
                raise InvalidSetting("override", dotted(path), expected)
            section = section.clone(template=template)
        if tools != section.tools or children != section.children:
            section = section.clone(tools=tools, children=children)
        return section

    def apply_to_tool(self, tool: AnyTool) -> AnyTool:
        description = self.descriptions.pop(tool.name, None)
        if description is None:
            return tool
        if not tool.accepts_overrides:
            raise InvalidSetting("override", tool.name, "the name of a tool that accepts overrides")
        return replace(tool, description=description)


Out = TypeVar("Out")


@dataclass(frozen=True)
class RenderedSection:
    """The text of one section, without its children."""

    path: SectionPath
    visibility: SectionVisibility
    text: str


@dataclass(frozen=True)
class RenderedPrompt(Generic[Out]):
    """The text and the tools for a model call, and the parser of the answer."""

    name: str
    text: str
    tools: tuple[AnyTool, ...]
    output_type: type | None
    """The dataclass of the answer, or None for a text answer."""
    sections: tuple[RenderedSection, ...]
    visibility_overrides: Mapping[SectionPath, SectionVisibility] = field(default_factory=dict)
    native_output: bool = False
    """Whether the provider enforces the schema of the answer, so that the text does not describe it."""

    def tool(self, name: str) -> AnyTool | None:
        """The tool with that name, or None."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def summarized_sections(self) -> tuple[SectionPath, ...]:
        """The paths of the sections that are shown as a summary."""
        return tuple(section.path for section in self.sections if section.visibility is SectionVisibility.SUMMARY)

    def text_of(self, path: SectionPath) -> str:
        """The text of a section and of its children."""
        return "\n\n".join(section.text for section in self.sections if section.path[: len(path)] == path)

    def parse(self, answer: str, *, coerce: bool = False) -> Out:
        """Parse the answer into the output type, or return the answer unchanged if it is text.

        Raises:
            OutputParseError: the answer does not fit. The message can be sent to the model unchanged.
        """
        result: Any = answer if self.output_type is None else parse(self.output_type, answer, coerce=coerce)
        return cast("Out", result)


def _section_tree(
    sections: Sequence[AnySection], parent_path: SectionPath = ()
) -> Iterator[tuple[SectionPath, AnySection]]:
    """Every section with its path; a section comes before its children."""
    for section in sections:
        path = (*parent_path, section.key)
        yield path, section
        yield from _section_tree(section.children, path)


def duplicate_name_error(kind: str, name: str, owners: Sequence[str]) -> InvalidPrompt:
    """The error for two sections or tools with the same name."""
    return InvalidPrompt(f"the {kind} {name!r}", f"is defined more than once ({', '.join(owners)}); use unique names")


def _require_unique_names(sections: Sequence[AnySection]) -> None:
    paths: set[SectionPath] = set()
    owners = {tool.name: "built in" for tool in DISCLOSURE_TOOLS}
    for path, section in _section_tree(sections):
        if path in paths:
            titles = [same.title for same_path, same in _section_tree(sections) if same_path == path]
            raise duplicate_name_error("section", dotted(path), titles)
        paths.add(path)
        for tool in section.tools:
            if tool.name in owners:
                raise duplicate_name_error("tool", tool.name, [owners[tool.name], dotted(path)])
            owners[tool.name] = dotted(path)


def _default_params(sections: Sequence[AnySection]) -> dict[type, Any]:
    """The default for each type of parameters; sections with the same type share its value.

    Raises:
        InvalidSetting: two sections have different defaults of the same type.
    """
    values: dict[type, Any] = {}
    for path, section in _section_tree(sections):
        default = section.default_params
        if default is not None and values.setdefault(type(default), default) != default:
            expected = f"{values[type(default)]!r}, as in another section"
            raise InvalidSetting(f"default_params of section {dotted(path)!r}", default, expected)
    return values


def _require_params(sections: Sequence[AnySection], values: Mapping[type, Any]) -> None:
    """Check that there are parameters for every section, also for one that is not shown.

    Raises:
        InvalidPrompt: a section has no parameters.
    """
    for path, section in _section_tree(sections):
        if section.params_type is not None and section.params_type not in values:
            params = section.params_type.__name__
            advice = f"bind one with prompt.bind({params}(…)), or set default_params of the section"
            raise InvalidPrompt(f"section {dotted(path)!r}", f"needs a {params}; {advice}")


def _render_sections(
    sections: Sequence[AnySection],
    values: Mapping[type, Any],
    context: RenderContext,
    parent_path: SectionPath = (),
    prefix: str = "",
) -> Iterator[tuple[RenderedSection, tuple[AnyTool, ...]]]:
    """Render every enabled section, with its tools. The children of a summarized section are not rendered."""
    number = 0
    for section in sections:
        path = (*parent_path, section.key)
        params = values.get(section.params_type) if section.params_type else None
        if not section.is_enabled(params, context):
            continue
        number += 1
        visibility = section.effective_visibility(params, path, context)
        text = section.render(
            params, len(parent_path), f"{prefix}{number}", path=path, visibility=visibility, context=context
        )
        is_full = visibility is SectionVisibility.FULL
        yield RenderedSection(path, visibility, text), section.tools if is_full else ()
        if is_full:
            yield from _render_sections(section.children, values, context, path, f"{prefix}{number}.")


@dataclass(frozen=True, kw_only=True)
class PromptTemplate(ReifiedGeneric, Generic[Out]):
    """`PromptTemplate[Out](ns=…, key=…, sections=[…])`; Out is a dataclass, or str (or nothing) for a text answer."""

    ns: str
    """The namespace, such as `agents/worker`."""
    key: str
    sections: Sequence[AnySection]
    name: str | None = None
    """The name in events and reports. Default: the key."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sections", tuple(self.sections))
        for section in self.sections:
            require_type("sections", section, Section, "a list of sections, such as MarkdownSection(...)")
        object.__setattr__(self, "name", self.name or self.key)
        if not self.ns.strip() or not self.key.strip():
            raise InvalidSetting("ns and key of a prompt", (self.ns, self.key), "two texts that are not empty")
        if not self.sections:
            raise InvalidSetting(f"the sections of prompt {self.key!r}", self.sections, "at least one section")
        _require_unique_names(self.sections)
        _default_params(self.sections)  # raises if they conflict
        if self.output_type is not None:
            if not is_dataclass(self.output_type):
                expected = "a dataclass, or str for a text answer"
                raise InvalidSetting(f"the output of prompt {self.key!r}", self.output_type, expected)
            json_schema(self.output_type)  # raises here, before any model call

    @property
    def output_type(self) -> type | None:
        """The dataclass of the answer, or None for a text answer."""
        output_type = self.type_arguments[0] if self.type_arguments else str
        return None if output_type in {str, NoneType} else output_type

    @property
    def dynamic(self) -> bool:
        """Whether the text may differ between two renderings."""
        return any(section.dynamic for section in self.sections)

    def bind(self, *params: object) -> "Prompt[Out]":
        """The prompt with these parameters."""
        return Prompt(self).bind(*params)

    def override(
        self,
        *,
        sections: Mapping[str, str] | None = None,
        tools: Mapping[str, str] | None = None,
    ) -> "PromptTemplate[Out]":
        """The template with other texts: templates of Markdown sections by dotted key, descriptions of tools by name.

        Raises:
            InvalidSetting: there is no such section or tool, or it does not accept overrides.
        """
        return replace(self, sections=_with_overrides(self.sections, sections or {}, tools or {}))


@dataclass(frozen=True)
class Prompt(Generic[Out]):
    """A template and its bound parameters, one value for each type."""

    template: PromptTemplate[Out]
    params: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        require_type("template", self.template, PromptTemplate, "a PromptTemplate")

    @property
    def name(self) -> str:
        return self.template.name or self.template.key

    @property
    def output_type(self) -> type | None:
        return self.template.output_type

    def bind(self, *params: object) -> "Prompt[Out]":
        """A prompt with these parameters added. A value replaces an earlier one of the same type.

        Raises:
            InvalidSetting: two values have the same type, or no section has parameters of that type.
        """
        types = _params_types(self.template.sections)
        bound_types: set[type] = set()
        for value in params:
            if type(value) not in types:
                names = ", ".join(cls.__name__ for cls in types)
                expected = f"one of {names}" if names else "nothing: no section has params"
                raise InvalidSetting(f"a value bound to prompt {self.name!r}", value, expected)
            if type(value) in bound_types:
                raise InvalidSetting(f"a value bound to prompt {self.name!r}", value, "one value for each type")
            bound_types.add(type(value))
        other_params = (value for value in self.params if type(value) not in bound_types)
        return replace(self, params=(*other_params, *params))

    def render(
        self,
        *,
        session: SessionProtocol | None = None,
        visibility_overrides: Mapping[SectionPath, SectionVisibility] | None = None,
        native_output: bool = False,
    ) -> RenderedPrompt[Out]:
        """Render the text and collect the tools. With the same session state the text is the same.

        With `native_output` the provider gets the schema of the answer, and the text does not describe it.

        Raises:
            InvalidPrompt: a section has no parameters.
            InvalidSetting: a path in `visibility_overrides` starts with an unknown key.
        """
        sections = self.template.sections
        values = {**_default_params(sections), **{type(value): value for value in self.params}}
        _require_params(sections, values)
        overrides = dict(visibility_overrides or {})
        _require_known_paths(sections, overrides)
        sections_and_tools = list(_render_sections(sections, values, RenderContext(session, overrides)))
        rendered_sections = [section for section, _ in sections_and_tools]
        tools = [tool for _, section_tools in sections_and_tools for tool in section_tools]
        if any(section.visibility is SectionVisibility.SUMMARY for section in rendered_sections):
            tools += DISCLOSURE_TOOLS
        texts = [section.text for section in rendered_sections]
        if self.output_type is not None and not native_output:
            top_level_count = sum(len(section.path) == 1 for section in rendered_sections)
            texts.append(response_format(self.output_type, top_level_count + 1))
        return RenderedPrompt(
            name=self.name,
            text="\n\n".join(texts),
            tools=tuple(tools),
            output_type=self.output_type,
            sections=tuple(rendered_sections),
            visibility_overrides=overrides,
            native_output=native_output,
        )


def _params_types(sections: Sequence[AnySection]) -> list[type]:
    types = (section.params_type for _, section in _section_tree(sections))
    return list(dict.fromkeys(cls for cls in types if cls is not None))


def _require_known_paths(sections: Sequence[AnySection], overrides: Mapping[SectionPath, Any]) -> None:
    """Check the first key of every path. A section may resolve the rest itself, such as the steps of a plan."""
    roots = [section.key for section in sections]
    for path in overrides:
        if path[:1] not in [(root,) for root in roots]:
            expected = f"a tuple of keys that starts with one of {', '.join(roots)}"
            raise InvalidSetting("a path in visibility_overrides", path, expected)
