"""The tokens that an answer reports."""

from dataclasses import dataclass

from minutebook.testing.provider_meter import Measure, Meter
from minutebook.testing.script import Answer, Text, Thinking, Usage
from minutebook.tokens.content import PER_CALL


@dataclass(frozen=True, slots=True)
class Tally:
    """Tokens in and out, before each provider names them its own way."""

    prompt: int
    """All of them, the cached ones too."""
    cached: int
    written: int
    completion: int
    """All of them, the reasoning too."""
    reasoning: int


def tally(answer: Answer, measure: Measure, meter: Meter) -> Tally:
    """What was counted, unless the script says otherwise."""
    said = reasoning = 0
    for part in answer.parts:
        if isinstance(part, Text):
            said += meter.count(part.text)
        elif isinstance(part, Thinking):
            reasoning += meter.count(part.text)
        else:
            said += PER_CALL + meter.count(part.tool) + meter.count(part.arguments)
    said += meter.count(answer.refusal or "")
    given = answer.usage or Usage()
    prompt = measure.tokens if given.prompt is None else given.prompt
    cached = min(prompt, measure.cached if given.cached is None else given.cached)
    written = min(prompt - cached, measure.written)
    return Tally(prompt, cached, written, said + reasoning if given.completion is None else given.completion, reasoning)
