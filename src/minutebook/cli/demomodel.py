"""The model that `minutebook serve` starts when it is told of no provider: it says what it was sent."""

from typing import Final

from minutebook.testing import LoopbackProvider, ScriptedModel
from minutebook.testing.received import ReceivedRequest

NAME: Final = "demo"


def demo_provider() -> LoopbackProvider:
    """A server on loopback that plays the demo model. Whoever starts it closes it."""
    return LoopbackProvider(ScriptedModel(otherwise=_answer), models=(NAME,), remember=100)


def _answer(request: ReceivedRequest) -> str:
    said = request.last_text.strip()
    words = " ".join(said.split()[:12]) or "nothing"
    sent = len(request.messages)
    return f"You said: {words!r}. I was sent {sent} message{'s' * (sent != 1)}. (This is the demo model.)"
