"""The parts of a prompt.

A section has a heading and content, may bring tools, and may hold other sections. It is never changed: `clone` gives
a changed copy. Subclasses give `body`, or the whole `render`, and read session state from the context they are given.
"""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from minutebook.errors import InvalidSetting
from minutebook.prompt.tools import AnyTool, RenderContext, Tool, Typed
from minutebook.prompt.visibility import SectionPath, SectionVisibility, dotted

Params = TypeVar("Params")
AnySection: TypeAlias = "Section[Any]"

NO_CONTEXT: Final = RenderContext()
_KEY: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Section(Typed, Generic[Params]):
    """`Section[Params](title=…, key=…)`, or without `[Params]` where it needs none. By itself it is only a heading."""

    reads_session: ClassVar[bool] = False
    """Whether what it renders depends on the session, so that it must be rendered again as the session changes."""

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
        """Whether `PromptTemplate.override` may change its text."""
        self.check()

    @property
    def params_type(self) -> type | None:
        """The dataclass whose value it is rendered with, or None where it needs none."""
        if self.type_arguments:
            return None if self.type_arguments[0] is NoneType else self.type_arguments[0]
        return None if self.default_params is None else type(self.default_params)

    @property
    def dynamic(self) -> bool:
        """Whether it may render differently from one moment to the next."""
        own = self.reads_session or self.enabled is not None or not isinstance(self.visibility, SectionVisibility)
        return own or any(child.dynamic for child in self.children)

    def check(self) -> None:
        """Raise InvalidSetting where something about the section cannot be meant; subclasses add to it."""
        where = f"section {self.key!r}"
        if not _KEY.fullmatch(self.key):
            raise InvalidSetting("a section's key", self.key, "1 to 64 small letters, digits, _ and -")
        if not self.title.strip() or "\n" in self.title:
            raise InvalidSetting(f"the title of {where}", self.title, "one line of text")
        if self.params_type is not None and not is_dataclass(self.params_type):
            raise InvalidSetting(f"the params of {where}", self.params_type, "a dataclass")
        if self.default_params is not None and type(self.default_params) is not self.params_type:
            raise InvalidSetting(f"default_params of {where}", self.default_params, f"a {_name(self.params_type)}")
        for tool in self.tools:
            if not isinstance(tool, Tool):
                raise InvalidSetting(f"a tool of {where}", tool, "a Tool; tool(function) makes one")
        for child in self.children:
            if not isinstance(child, Section):
                raise InvalidSetting(f"a child of {where}", child, "a Section")
        if self.summary is not None and not self.summary.strip():
            raise InvalidSetting(f"the summary of {where}", self.summary, "some text, or None")
        has_outline = self.summary is not None or type(self).outline is not Section.outline
        if self.visibility is SectionVisibility.SUMMARY and not has_outline:
            raise InvalidSetting(f"the summary of {where}", None, "a text, or show the section in full")

    def clone(self, **changes: Any) -> Self:
        """A copy with some attributes changed."""
        changed = copy.copy(self)
        for name, value in changes.items():
            if name not in vars(self):
                raise InvalidSetting(f"a change to section {self.key!r}", name, f"one of {', '.join(vars(self))}")
            setattr(changed, name, tuple(value) if name in {"tools", "children"} else value)
        changed.check()
        return changed

    def is_enabled(self, params: Params, context: RenderContext = NO_CONTEXT) -> bool:
        return self.enabled is None or self.enabled(params, context)

    def shown(self, params: Params, path: SectionPath, context: RenderContext = NO_CONTEXT) -> SectionVisibility:
        """How much of it is shown: what an override says, or else its own visibility."""
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
        """Its heading and content, without its children, which the prompt renders after it."""
        path = path or (self.key,)
        visibility = visibility or self.shown(params, path, context)
        if visibility is SectionVisibility.FULL:
            content = self.body(params, depth, number, path=path, context=context)
        else:
            content = self.outline(params, path=path, context=context) + "\n\n" + self.hint(path)
        return f"{self.heading(depth, number)}\n\n{content}".strip()

    def body(self, params: Params, depth: int, number: str, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002 - for subclasses
        """What stands under the heading when it is shown in full."""
        return ""

    def outline(self, params: Params, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        """What stands under the heading when only a summary is shown."""
        if self.summary is None:
            raise InvalidSetting(f"the visibility of section {dotted(path)!r}", "summary", "full, or it a summary")
        return self.summary.strip()

    def heading(self, depth: int, number: str) -> str:
        """`### 1.2. Title`; Markdown knows six levels, deeper ones share the last."""
        return f"{'#' * min(depth + 2, 6)} {number.rstrip('.')}. {self.title}"

    def hint(self, path: SectionPath) -> str:
        """How the model can see the rest of it."""
        names = ", ".join(f"`{tool.name}`" for tool in self.all_tools())
        more = f" and get the tools {names}" if names else ""
        key = dotted(path)
        return f'_Summary only. Call `open_sections` with ["{key}"] to open it{more}, or `read_section` with "{key}" to read it once._'

    def all_tools(self) -> Iterator[AnyTool]:
        """Its tools and those of the sections in it."""
        yield from self.tools
        for child in self.children:
            yield from child.all_tools()


def _name(cls: type | None) -> str:
    return "section with Params: Section[Params](…)" if cls is None else cls.__name__
