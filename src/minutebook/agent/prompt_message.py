"""The prompt's own message: where it stands in a conversation, and what is shown there when it is rendered again."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from minutebook.history.protocol import SessionProtocol
from minutebook.prompt.section import Section
from minutebook.prompt.template import Prompt, PromptTemplate, RenderedPrompt
from minutebook.prompt.tools import AnyTool
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_system, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

Out = TypeVar("Out")


class Opening(Generic[Out]):
    """A prompt in its conversation.

    With a request it is the system message, without one it is what the user asks; with a request, one that says nothing
    is no message, and the conversation's own system messages stand. The conversation only grows: when the prompt says
    something else than it did (its sections show the session's state, or the model opened one), the old message stays
    in the record, and a fold shows the new one in its place.
    """

    def __init__(
        self,
        prompt: Prompt[Out],
        *,
        session: SessionProtocol,
        overrides: Mapping[SectionPath, SectionVisibility] | None,
        native_output: bool,
    ) -> None:
        self._prompt = prompt
        self._session = session
        self._overrides = dict(overrides or {})
        self._native_output = native_output
        self._place = 0
        self._role = "system"
        self._shown = ""
        self.folds: tuple[Fold, ...] = ()
        """What shows the prompt as it is now, where the conversation holds another."""
        self.rendered: RenderedPrompt[Out] = self._render()

    def begin(
        self, before: Transcript | None, request: str | Message | None, counter: TokenCounter
    ) -> tuple[Transcript, list[Message]]:
        """The conversation to go on with, and what is to be said first."""
        self._shown = self.rendered.text
        if request is None:
            conversation = Transcript(counter=counter) if before is None else before
            self._place, self._role = len(conversation), "user"
            return conversation, [self._message()]
        asked: Message = {"role": "user", "content": request} if isinstance(request, str) else request
        conversation = Transcript(counter=counter) if before is None else before
        if not self._shown:
            return conversation, [asked]
        if before is None or not before:
            return conversation, [self._message(), asked]
        if not is_system(before[0]):
            return Transcript([self._message(), *before], counter=before.counter, broken=before.broken), [asked]
        self._shown = text_of(before[0])
        return before, [asked]

    def is_prompt(self, message: Message) -> bool:
        """Whether a message is the prompt's own."""
        return message == self._message()

    def upcoming(self) -> tuple[Fold, ...]:
        """The folds that would show the prompt if it were rendered now."""
        text = self._render().text if self._prompt.template.dynamic else self.rendered.text
        return self.folds if text == self._shown else (self._fold({"role": self._role, "content": text}),)

    def growth(self, conversation: Transcript) -> int:
        """How many tokens the prompt would have now beyond those of the message that stands in the conversation."""
        folds = self.upcoming()
        if not folds or self._place >= len(conversation):
            return 0
        return conversation.counter.message(folds[0].shown[0]) - conversation.tokens_of(self._place)

    def open(self, overrides: Mapping[SectionPath, SectionVisibility]) -> None:
        """Show sections in another way from now on."""
        self._overrides.update(overrides)
        self.rendered = self._render()

    def changed(self) -> Message | None:
        """The prompt's message, if it is not the one that was last shown."""
        if self._prompt.template.dynamic:
            self.rendered = self._render()
        if self.rendered.text == self._shown:
            return None
        self._shown = self.rendered.text
        message = self._message()
        self.folds = (self._fold(message),)
        return message

    def _fold(self, message: Message) -> Fold:
        return Fold("prompt", self._place, self._place + 1, (message,), "the prompt was rendered again")

    def _message(self) -> dict[str, Any]:
        return {"role": self._role, "content": self.rendered.text}

    def _render(self) -> RenderedPrompt[Out]:
        return self._prompt.render(
            session=self._session, visibility_overrides=self._overrides, native_output=self._native_output
        )


class Instruction(Section[None]):
    """A text as it stands, without a heading, and the tools that go with it."""

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
