"""Where a script stands: which step is next, and which ids its calls get."""

from dataclasses import replace
from itertools import count
from threading import Lock

from minutebook.errors import InvalidSetting
from minutebook.testing.received import ReceivedRequest
from minutebook.testing.script import Answer, Failure, ScriptedModel, Step, Use, say


class Playback:
    """Plays one script to whoever asks next, from any thread."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self._lock = Lock()
        self._asked = 0
        self._ids = count(1)

    def next(self, request: ReceivedRequest) -> Answer | Failure:
        """The answer to this request. A script that is at its end, or that raises, is an error that says so."""
        with self._lock:
            place, self._asked = self._asked, self._asked + 1
        steps = self.model.steps
        step = steps[place] if place < len(steps) else self.model.otherwise
        if step is None:
            said = f"the script has {len(steps)} steps and this is request {place + 1}; add a step, or say `otherwise`"
            return Failure(500, said, code="script_exhausted", retryable=False)
        try:
            return self._numbered(_resolved(step, request))
        except Exception as error:  # noqa: BLE001 - a test's own function; the client must see what it raised
            said = f"step {place} of the script raised {type(error).__name__}: {error}"
            return Failure(500, said, code="script_failed", retryable=False)

    def _numbered(self, answer: Answer | Failure) -> Answer | Failure:
        if isinstance(answer, Failure):
            return answer
        with self._lock:
            parts = tuple(
                replace(part, call_id=f"call_{next(self._ids)}") if isinstance(part, Use) else part
                for part in answer.parts
            )
        return replace(answer, parts=parts)


def _resolved(step: Step, request: ReceivedRequest) -> Answer | Failure:
    while callable(step):
        step = step(request)
    if not isinstance(step, Answer | Failure | str):
        raise InvalidSetting("its answer", step, "a text, say(…), call(…) or fail(…)")
    return say(step) if isinstance(step, str) else step
