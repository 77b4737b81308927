"""The message of a conversation that holds the rendered prompt, and the fold that updates it when the prompt changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from minutebook.wire.read import read

Out = TypeVar("Out")


class PromptMessage(Generic[Out]):
    """The rendered prompt as a message of the conversation.

    If the run has a user's request (the `request` of `start`) or is resumed, the prompt is the system message; an empty
    prompt then adds no message, and the conversation keeps its own system messages. Otherwise the prompt is the user
    message.

    A conversation is append-only: when the prompt's text changes (its sections show the session's state, or the model
    opened one), the old message stays in the record, and a fold shows the new text in its place. A fold also shows the
    prompt before the first message of a stored conversation that does not start with a system message.
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
        self._index = 0
        """The index of the prompt's message in the conversation."""
        self._role = "system"
        self._shown_text = ""
        """The prompt's text in the current view: that of the message, or of the fold if there is one."""
        self._first_exchange: tuple[Message, ...] = ()
        """The first exchange of the conversation, if the prompt is shown before it and has no message there."""
        self._system_message: Message | None = None
        """The system message in the conversation that the prompt replaces; None if the prompt replaces none."""
        self.folds: tuple[Fold, ...] = ()
        """The fold that shows the current prompt; empty while the message in the conversation is current."""
        self._fold_with_prompt: tuple[Fold, Fold] | None = None
        """A fold over the prompt's position, and the same fold with the prompt before its messages. Cached by `folds_with`."""
        self.rendered: RenderedPrompt[Out] = self._render()

    def start(
        self,
        conversation: Transcript | None,
        request: str | Message | None,
        counter: TokenCounter,
        *,
        resume: bool = False,
        is_stored: bool = False,
        is_recorded: bool = True,
        start: int = 0,
    ) -> tuple[Transcript, list[Message]]:
        """Decide where the prompt's message goes, and return the conversation and the messages to append first.

        With `resume` there is no user message. In a stored conversation no message is inserted at the start, because its
        positions must not change. Without `is_recorded` the prompt gets no message in a conversation without messages. The
        messages before `start` were cleared.
        """
        self._shown_text = self.rendered.text
        conversation = Transcript(counter=counter) if conversation is None else conversation
        if request is None and not resume:
            self._index, self._role = len(conversation), "user"
            return conversation, [self._message()]
        user_messages = [] if request is None else read(request)
        if not self._shown_text:
            return conversation, user_messages
        self._index = start
        if start == len(conversation):
            if is_recorded:
                return conversation, [self._message(), *user_messages]
            self._shown_text, self._first_exchange = "", tuple(user_messages)
        elif is_system(conversation[start]):
            self._system_message = conversation[start]
            self._shown_text = text_of(self._system_message)
        elif is_stored:
            self._shown_text = ""
            self._first_exchange = tuple(conversation[start : conversation.exchange_of(start).stop])
        else:
            messages = [self._message(), *conversation]
            return Transcript(messages, counter=conversation.counter, broken=conversation.broken), user_messages
        return conversation, user_messages

    def is_prompt(self, message: Message) -> bool:
        """Whether the message is the rendered prompt."""
        return message == self._message()

    def next_folds(self) -> tuple[Fold, ...]:
        """The folds that the next `refresh` would set."""
        text = self._render().text if self._prompt.template.dynamic else self.rendered.text
        return self.folds if text == self._shown_text else (self._fold({"role": self._role, "content": text}),)

    def added_tokens(self, conversation: Transcript) -> int:
        """The tokens that a request needs for the prompt in addition to those of its message in the conversation."""
        folds = self.next_folds()
        if not folds or self._index >= len(conversation):
            return 0
        tokens = conversation.counter.message(folds[0].shown[0])
        return tokens if self._first_exchange else tokens - conversation.tokens_of(self._index)

    def folds_with(self, folds: Sequence[Fold], *, is_next: bool = False) -> tuple[Fold, ...]:
        """These folds, and the prompt shown by a fold. With `is_next`, it is the prompt of the next model call.

        The prompt's own fold comes first. But if one of these folds also covers the position of the prompt, that fold shows
        the prompt before its messages, and there is no other fold for the prompt.
        """
        own_folds = self.next_folds() if is_next else self.folds
        fold_at_start = next((fold for fold in reversed(folds) if fold.start <= self._index < fold.stop), None)
        if self._role != "system" or fold_at_start is None or not own_folds:
            return (*own_folds, *folds)
        prompt = own_folds[0].shown[0]
        cached = self._fold_with_prompt
        if cached is None or cached[0] is not fold_at_start or cached[1].shown[0] is not prompt:
            others = (message for message in fold_at_start.shown if message != self._system_message)
            cached = fold_at_start, replace(fold_at_start, shown=(prompt, *others))
            self._fold_with_prompt = cached
        return tuple(cached[1] if fold is fold_at_start else fold for fold in folds)

    def override_visibility(self, overrides: Mapping[SectionPath, SectionVisibility]) -> None:
        """Change the visibility of sections, and render the prompt again."""
        self._overrides.update(overrides)
        self.rendered = self._render()

    def refresh(self) -> Message | None:
        """Render a dynamic prompt again. If the text has changed, set `folds` and return the new message."""
        if self._prompt.template.dynamic:
            self.rendered = self._render()
        if self.rendered.text == self._shown_text:
            return None
        self._shown_text = self.rendered.text
        message = self._message()
        self.folds = (self._fold(message),)
        return message

    def _fold(self, message: Message) -> Fold:
        stop = self._index + max(1, len(self._first_exchange))
        has_message = not self._first_exchange
        reason = "the prompt was rendered again" if has_message else "the conversation does not start with the prompt"
        return Fold("prompt", self._index, stop, (message, *self._first_exchange), reason)

    def _message(self) -> dict[str, Any]:
        return {"role": self._role, "content": self.rendered.text}

    def _render(self) -> RenderedPrompt[Out]:
        return self._prompt.render(
            session=self._session, visibility_overrides=self._overrides, native_output=self._native_output
        )


class PlainTextSection(Section[None]):
    """A section that renders its text unchanged, without a heading."""

    def __init__(self, text: str, tools: Sequence[AnyTool] = ()) -> None:
        self.text = text
        super().__init__(title="Instruction", key="instruction", tools=tools)

    def render(self, *_: Any, **__: Any) -> str:
        return self.text


def text_prompt(
    name: str,
    text: str,
    tools: Sequence[AnyTool] = (),
    output: type | None = None,
    *,
    sections: Sequence[Section[Any]] = (),
) -> Prompt[Any]:
    """A prompt with this text, these tools and further sections. The answer is a string, or the dataclass `output`."""
    template_class: Any = PromptTemplate.__class_getitem__(output or str)
    all_sections = [PlainTextSection(text, tools), *sections]
    template: PromptTemplate[Any] = template_class(ns="dsl", key=name or "agent", sections=all_sections)
    return Prompt(template)
