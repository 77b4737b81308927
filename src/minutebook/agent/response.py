"""What an evaluation gives back."""

from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from minutebook.agent.usage import Usage
from minutebook.history.view import View
from minutebook.record.transcript import Transcript

Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[Out]):
    """The answer, and what it took to get it."""

    prompt_name: str
    text: str
    """The final answer as the model wrote it."""
    output: Out
    """The answer as the prompt's output type: the dataclass it holds, or the text itself."""
    evaluation_id: UUID
    """Under which the session has recorded what was said."""
    usage: Usage
    """Of all calls of the model together."""
    calls: int
    """How often the model was called."""
    finish: str
    """Why the model stopped: stop, length or content_filter."""
    refusal: str | None
    """What it said instead of an answer, where the provider marks that."""
    conversation: Transcript
    """Everything said so far; give it to the next evaluation to go on."""
    view: View
    """What the model was sent the last time."""
