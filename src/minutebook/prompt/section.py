"""The sections of a prompt.

A section has a heading, content, tools and child sections. Sections are never changed: `clone` returns a changed copy.
Subclasses override `body`, or the whole `render`, and read session state from the context that is passed to them.
"""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from minutebook.errors import InvalidSetting, MissingSetting
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.prompt.tools import AnyTool, ReifiedGeneric, RenderContext, Tool
from minutebook.prompt.visibility import SectionPath, SectionVisibility, dotted

Params = TypeVar("Params")
AnySection: TypeAlias = "Section[Any]"

NO_CONTEXT: Final = RenderContext()
_SECTION_KEY: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SET_SUMMARY: Final = 'set summary=… or visibility="full"'


class Section(ReifiedGeneric, Generic[Params]):
    """A section with a heading only; subclasses add content.

    Create it as `Section[Params](title=…, key=…)`, or without `[Params]` if it needs no parameters.
    """

    reads_session: ClassVar[bool] = False
    """Whether the text depends on the session, so that the section is rendered again when the session changes."""

    def __init__(
        self,
        *,
        title: str,
        key: str,
        summary: str | None = None,
        default_params: Params | None = None,
        tools: Sequence[AnyTool] = (),
        children: Sequence[AnySection] = (),
        enabled: Callable[[Params, RenderContext], bool] | None = None,
        visibility: SectionVisibility | Callable[[Params, RenderContext], SectionVisibility] = SectionVisibility.FULL,
        accepts_overrides: bool = True,
    ) -> None:
        self.title, self.key, self.summary = title, key, summary
        self.default_params = default_params
        self.tools, self.children = tuple(tools), tuple(children)
        self.enabled, self.visibility = enabled, visibility
        self.accepts_overrides = accepts_overrides
        """Whether `PromptTemplate.override` may change the text."""
        self.check()

    @property
    def params_type(self) -> type | None:
        """The dataclass of the parameters, or None if the section has no parameters."""
        if self.type_arguments:
            return None if self.type_arguments[0] is NoneType else self.type_arguments[0]
        return None if self.default_params is None else type(self.default_params)

    @property
    def dynamic(self) -> bool:
        """Whether the text may differ between two renderings."""
        is_dynamic = self.reads_session or self.enabled is not None
        return (
            is_dynamic
            or not isinstance(self.visibility, SectionVisibility)
            or any(child.dynamic for child in self.children)
        )

    def check_run(self, session: SessionProtocol, manager: HistoryManager) -> None:
        """Check the session and the history manager of a run before it starts. A section that needs others warns here."""
        for child in self.children:
            child.check_run(session, manager)

    def check(self) -> None:
        """Check the attributes of the section. Subclasses extend this method.

        Raises:
            InvalidSetting: an attribute is invalid.
            MissingSetting: the section is shown as a summary and has none.
        """
        where = f"section {self.key!r}"
        if not _SECTION_KEY.fullmatch(self.key):
            raise InvalidSetting("the key of a section", self.key, "1 to 64 lowercase letters, digits, _ and -")
        if not self.title.strip() or "\n" in self.title:
            raise InvalidSetting(f"the title of {where}", self.title, "one line of text")
        if self.params_type is not None and not is_dataclass(self.params_type):
            raise InvalidSetting(f"the params of {where}", self.params_type, "a dataclass")
        if self.default_params is not None and type(self.default_params) is not self.params_type:
            expected = (
                "None for a Section without [Params]" if self.params_type is None else f"a {self.params_type.__name__}"
            )
            raise InvalidSetting(f"default_params of {where}", self.default_params, expected)
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise InvalidSetting(f"a tool of {where}", tool, "a Tool, such as tool(function)")
        for child in self.children:
            if not isinstance(child, Section):
                raise InvalidSetting(f"a child of {where}", child, "a Section")
        if self.summary is not None and not self.summary.strip():
            raise InvalidSetting(f"the summary of {where}", self.summary, "a text that is not empty, or None")
        has_outline = self.summary is not None or type(self).outline is not Section.outline
        if self.visibility is SectionVisibility.SUMMARY and not has_outline:
            raise MissingSetting(f"the summary of {where}", _SET_SUMMARY)

    def clone(self, **changes: Any) -> Self:
        """A copy with some attributes changed."""
        section = copy.copy(self)
        for name, value in changes.items():
            if name not in vars(self):
                raise InvalidSetting(f"attribute of section {self.key!r}", name, f"one of {', '.join(vars(self))}")
            setattr(section, name, tuple(value) if name in {"tools", "children"} else value)
        section.check()
        return section

    def is_enabled(self, params: Params, context: RenderContext = NO_CONTEXT) -> bool:
        return self.enabled is None or self.enabled(params, context)

    def effective_visibility(
        self, params: Params, path: SectionPath, context: RenderContext = NO_CONTEXT
    ) -> SectionVisibility:
        """The override for the path, else the section's own visibility."""
        override = context.visibility_overrides.get(path)
        if override is not None:
            return SectionVisibility(override)
        if isinstance(self.visibility, SectionVisibility):
            return self.visibility
        return SectionVisibility(self.visibility(params, context))

    def render(
        self,
        params: Params,
        depth: int,
        number: str,
        *,
        path: SectionPath = (),
        visibility: SectionVisibility | None = None,
        context: RenderContext = NO_CONTEXT,
    ) -> str:
        """The heading and the content. The prompt renders the children separately."""
        path = path or (self.key,)
        visibility = visibility or self.effective_visibility(params, path, context)
        if visibility is SectionVisibility.FULL:
            content = self.body(params, depth, number, path=path, context=context)
        else:
            content = self.outline(params, path=path, context=context) + "\n\n" + self.hint(path)
        return f"{self.heading(depth, number)}\n\n{content}".strip()

    def body(self, params: Params, depth: int, number: str, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002 - for subclasses
        """The content below the heading if the section is shown in full."""
        return ""

    def outline(self, params: Params, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        """The content below the heading if only a summary is shown."""
        if self.summary is None:
            raise MissingSetting(f"the summary of section {dotted(path)!r}", _SET_SUMMARY)
        return self.summary.strip()

    def heading(self, depth: int, number: str) -> str:
        """`### 1.2. Title`. Markdown has six levels; deeper headings use the sixth."""
        return f"{'#' * min(depth + 2, 6)} {number.rstrip('.')}. {self.title}"

    def hint(self, path: SectionPath) -> str:
        """The line that tells the model how to see the full section."""
        names = ", ".join(f"`{tool.name}`" for tool in self.all_tools())
        tools_text = f" and get the tools {names}" if names else ""
        key = dotted(path)
        return f'_Summary only. Call `open_sections` with ["{key}"] to open it{tools_text}, or `read_section` with "{key}" to read it once._'

    def all_tools(self) -> Iterator[AnyTool]:
        """The tools of the section and of its children."""
        yield from self.tools
        for child in self.children:
            yield from child.all_tools()
