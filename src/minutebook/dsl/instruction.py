"""The text of a program's prompt, as a prompt of ours."""

from collections.abc import Sequence
from typing import Any

from minutebook.prompt.prompt import Prompt, PromptTemplate
from minutebook.prompt.section import Section
from minutebook.prompt.tool import AnyTool


class Instruction(Section[None]):
    """A text as it stands in the program, without a heading, and the tools that go with it."""

    def __init__(self, text: str, tools: Sequence[AnyTool] = ()) -> None:
        self.text = text
        super().__init__(title="Instruction", key="instruction", tools=tools)

    def render(self, *_: Any, **__: Any) -> str:
        return self.text


def prompt_of(name: str, text: str, tools: Sequence[AnyTool] = (), output: type | None = None) -> Prompt[Any]:
    """The prompt that says this, and whose answer is a text or such a dataclass."""
    typed: Any = PromptTemplate.__class_getitem__(output or str)
    template: PromptTemplate[Any] = typed(ns="dsl", key=name or "agent", sections=[Instruction(text, tools)])
    return Prompt(template)
