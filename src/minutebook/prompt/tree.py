"""The sections of a prompt as a tree: where each stands, and what may be there only once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minutebook.errors import DuplicateName, InvalidSetting, MissingParams
from minutebook.prompt.context import RenderContext
from minutebook.prompt.disclosure import DISCLOSURE_TOOLS
from minutebook.prompt.rendered import RenderedSection
from minutebook.prompt.section import AnySection
from minutebook.prompt.tool import AnyTool
from minutebook.prompt.visibility import SectionPath, SectionVisibility, dotted


def placed(sections: Sequence[AnySection], above: SectionPath = ()) -> Iterator[tuple[SectionPath, AnySection]]:
    """Every section with its path, each before those in it."""
    for section in sections:
        path = (*above, section.key)
        yield path, section
        yield from placed(section.children, path)


def require_distinct(sections: Sequence[AnySection]) -> None:
    """Raise DuplicateName if two sections have one path, or two tools one name."""
    paths: set[SectionPath] = set()
    owners = {tool.name: "built in" for tool in DISCLOSURE_TOOLS}
    for path, section in placed(sections):
        if path in paths:
            raise DuplicateName("section", dotted(path), [each.title for at, each in placed(sections) if at == path])
        paths.add(path)
        for tool in section.tools:
            if tool.name in owners:
                raise DuplicateName("tool", tool.name, [owners[tool.name], dotted(path)])
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
    """Raise MissingParams if any section, shown now or perhaps later, has none."""
    for path, section in placed(sections):
        if section.params_type is not None and section.params_type not in values:
            raise MissingParams(dotted(path), section.params_type.__name__)


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
