"""What one rendering of a prompt gives: the text, and the tools that go with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from minutebook.prompt.parse import parse
from minutebook.prompt.tool import AnyTool
from minutebook.prompt.visibility import SectionPath, SectionVisibility

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
