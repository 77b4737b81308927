"""Other words for a prompt that is otherwise the same, for experiments and for owners who do not edit code."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from minutebook.errors import InvalidSetting
from minutebook.prompt.markdown import MarkdownSection
from minutebook.prompt.section import AnySection
from minutebook.prompt.tool import AnyTool
from minutebook.prompt.visibility import SectionPath, dotted


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
