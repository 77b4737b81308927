"""A prompt: sections, the values they are filled with, and the type of the answer.

template = PromptTemplate[Review](ns="agents/reviewer", key="review", sections=[…])
rendered = template.bind(Task("src/app.py")).render()
review = rendered.parse(answer)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from types import NoneType
from typing import Any, Generic, TypeVar

from minutebook.errors import InvalidSetting
from minutebook.history.protocol import SessionProtocol
from minutebook.prompt.context import RenderContext
from minutebook.prompt.disclosure import DISCLOSURE_TOOLS
from minutebook.prompt.override import overridden
from minutebook.prompt.rendered import RenderedPrompt
from minutebook.prompt.response import response_format
from minutebook.prompt.schema import json_schema
from minutebook.prompt.section import AnySection
from minutebook.prompt.tree import defaults, placed, rendered, require_distinct, require_params
from minutebook.prompt.typed import Typed
from minutebook.prompt.visibility import SectionPath, SectionVisibility

Out = TypeVar("Out")


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
            MissingParams: a section has nothing to be rendered with.
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
