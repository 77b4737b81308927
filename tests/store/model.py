"""What a store should do, written as simply as it can be: lists, no index, no sharing."""

from dataclasses import dataclass, field

from minutebook import Fold, Transcript
from minutebook.record import exchanges, turns
from minutebook.record.fold import record_with_folds
from minutebook.record.message import text_of
from minutebook.store.search import words


@dataclass
class Paper:
    """One document of the model."""

    conversation: str
    body: dict
    number: int


@dataclass
class Talk:
    """One conversation of the model."""

    recipient: str
    messages: list = field(default_factory=list)
    version: int = 1
    first: int = 0
    folds: list[Fold] = field(default_factory=list)
    undone: set[str] = field(default_factory=set)
    sealed: set[str] = field(default_factory=set)
    pins: set[int] = field(default_factory=set)
    origin: str | None = None
    status: str = "idle"

    @property
    def open_calls(self):
        return Transcript(self.messages, broken="mark").open_calls

    @property
    def live(self):
        return [fold for fold in self.folds if fold.id not in self.undone]

    @property
    def standing(self):
        kept = []
        for fold in self.live:
            kept = [other for other in kept if not (fold.start <= other.start and other.stop <= fold.stop)]
            kept.append(fold)
        return sorted(kept, key=lambda fold: fold.start)

    def may_fold(self, start, stop):
        units = exchanges(self.messages)
        if self.open_calls and stop > units[-1].start:
            return False
        whole = start in {unit.start for unit in units} and stop in {unit.stop for unit in units}
        apart_or_covered = all(
            other.stop <= start or stop <= other.start or (start <= other.start and other.stop <= stop)
            for other in self.standing
        )
        return whole and apart_or_covered

    def may_purge(self, before):
        covered = {place for fold in self.standing if fold.stop <= before for place in range(fold.start, fold.stop)}
        ends = {0, *(fold.stop for fold in self.standing)}
        return before <= self.first or (before in ends and covered >= set(range(self.first, before)))

    def shown(self):
        return list(record_with_folds(Transcript(self.messages, broken="mark"), self.live).transcript)

    def last_turns(self, count):
        spans = turns(self.messages)
        users = [span.start for span in spans if self.messages[span.start]["role"] == "user"]
        start = len(self.messages) if count == 0 else users[-count] if count < len(users) else 0
        return max(self.first, start)

    def last_messages(self, count):
        at = max(0, len(self.messages) - count)
        units = exchanges(self.messages)
        return max(self.first, next((unit.start for unit in units if at in unit), at))

    def trimmed(self, position):
        """The message at a position with as little left of its tool payloads as may be, or of its text."""
        message = self.messages[position]
        if message.get("tool_calls"):
            calls = [{**call, "function": {**call["function"], "arguments": ""}} for call in message["tool_calls"]]
            return {**message, "tool_calls": calls}
        return {**message, "content": ""}

    def may_trim(self, position):
        message = self.messages[position]
        return bool(message["role"] == "tool" or message.get("tool_calls"))

    def found(self, word):
        """The positions whose text has a word, from the last to the first."""
        places = reversed(range(self.first, len(self.messages)))
        return [place for place in places if word in words(text_of(self.messages[place]))]

    def fork(self, name, at):
        return Talk(
            self.recipient,
            self.messages[:at],
            1,
            self.first,
            [fold for fold in self.live if fold.stop <= at],
            set(),
            set(self.sealed),
            {pin for pin in self.pins if pin < at},
            name,
        )
