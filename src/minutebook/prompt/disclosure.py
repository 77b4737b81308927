"""The tools with which a model opens or reads a section that is shown as a summary.

`open_sections` changes the prompt: it raises `VisibilityExpansionRequired`, and the caller renders the prompt again.
`read_section` returns the text and does not change the prompt, so the provider's cache stays valid.
"""

from dataclasses import dataclass, field
from typing import Final

from minutebook.errors import ToolValidationError, VisibilityExpansionRequired
from minutebook.prompt.tools import AnyTool, Tool, ToolContext, ToolResult
from minutebook.prompt.visibility import SectionPath, SectionVisibility, dotted, path_of


@dataclass(frozen=True)
class OpenSectionsParams:
    section_keys: tuple[str, ...] = field(
        metadata={
            "description": 'Keys of the sections to open, as their hints give them, e.g. "guide.style".',
            "min_length": 1,
        }
    )
    reason: str = field(metadata={"description": "Why they are needed, in a sentence."})


@dataclass(frozen=True)
class ReadSectionParams:
    section_key: str = field(metadata={"description": 'Key of the section, as its hint gives it, e.g. "guide.style".'})


def _open_sections(params: OpenSectionsParams, *, context: ToolContext) -> ToolResult[None]:
    paths = [_require_summarized(key, context) for key in params.section_keys]
    overrides = dict.fromkeys(paths, SectionVisibility.FULL)
    raise VisibilityExpansionRequired(overrides, params.reason, params.section_keys)


def _read_section(params: ReadSectionParams, *, context: ToolContext) -> ToolResult[str]:
    path = _require_summarized(params.section_key, context)
    overrides = {**context.rendered_prompt.visibility_overrides, path: SectionVisibility.FULL}
    rendered = context.prompt.render(session=context.session, visibility_overrides=overrides)
    return ToolResult(rendered.text_of(path), show_value=False)


def _require_summarized(key: str, context: ToolContext) -> SectionPath:
    path, prompt = path_of(key), context.rendered_prompt
    summarized_paths = prompt.summarized_sections()
    if path in summarized_paths:
        return path
    is_open = any(section.path == path for section in prompt.sections)
    problem = f"Section {key!r} is already shown in full" if is_open else f"There is no section {key!r}"
    keys = ", ".join(map(dotted, summarized_paths)) or "none"
    raise ToolValidationError(f"{problem}. Sections that can be opened: {keys}.")


OPEN_SECTIONS: Final[AnyTool] = Tool[OpenSectionsParams, None](
    idempotent=True,
    name="open_sections",
    description="Show in full, with their tools, sections of the instructions that are now shown as a summary.",
    handler=_open_sections,
    accepts_overrides=False,
)
READ_SECTION: Final[AnyTool] = Tool[ReadSectionParams, str](
    idempotent=True,
    name="read_section",
    description="Read the full text of a section that is shown as a summary, once, without opening it.",
    handler=_read_section,
    accepts_overrides=False,
)
DISCLOSURE_TOOLS: Final = (OPEN_SECTIONS, READ_SECTION)
