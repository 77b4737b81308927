"""A model of a store, as simple as possible: lists, no index, no sharing."""

from dataclasses import dataclass, field

from minutebook import Fold, Transcript
from minutebook.record import exchanges, turns
from minutebook.record.fold import record_with_folds
from minutebook.record.message import is_system
from minutebook.store.search import searchable_text
from minutebook.store.words import words


@dataclass
class ModelDocument:
    """One document of the model."""

    conversation: str
    body: dict
    number: int


@dataclass
class ModelConversation:
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
    calls_from: int = 0
    """Calls before this position were hidden by a rewind."""
    status: str = "idle"

    @property
    def open_calls(self):
        return Transcript(self.messages[self.calls_from :], broken="mark").open_calls

    @property
    def lead(self):
        """The position after the leading system messages, as if the hidden messages did not exist; None after a purge."""
        rewinds = [range(fold.start, fold.stop) for fold in self.applied_folds if fold.is_rewind]
        shown = [
            position
            for position, message in enumerate(self.messages)
            if not is_system(message) and not any(position in hidden for hidden in rewinds)
        ]
        return None if self.first else min(shown, default=len(self.messages))

    @property
    def applied_folds(self):
        return [fold for fold in self.folds if fold.id not in self.undone]

    @property
    def active_folds(self):
        active = []
        for fold in self.applied_folds:
            active = [other for other in active if not (fold.start <= other.start and other.stop <= fold.stop)]
            active.append(fold)
        return sorted(active, key=lambda fold: fold.start)

    def may_fold(self, start, stop):
        units = exchanges(self.messages)
        if self.open_calls and stop > units[-1].start:
            return False
        whole = start in {unit.start for unit in units} and stop in {unit.stop for unit in units}
        apart_or_covered = all(
            other.stop <= start or stop <= other.start or (start <= other.start and other.stop <= stop)
            for other in self.active_folds
        )
        return whole and apart_or_covered

    def may_rewind(self, to):
        """Whether no fold over entries before and after a position would have to stay. Undoing one may show another."""
        undone = set(self.undone)
        try:
            while cut := [fold for fold in self.active_folds if fold.start < to < fold.stop]:
                if cut[0].id in self.sealed:
                    return False
                self.undone.add(cut[0].id)
            return True
        finally:
            self.undone = undone

    def rewind(self, fold):
        """Add the fold of a rewind."""
        while cut := [other for other in self.active_folds if other.start < fold.start < other.stop]:
            self.undone.add(cut[0].id)
        if self.open_calls:
            self.sealed.add(fold.id)
        self.folds.append(fold)
        self.pins -= set(range(fold.start, fold.stop))
        self.calls_from = len(self.messages)
        self.version += 1

    def undo(self, fold):
        if fold.is_rewind and fold.id not in self.undone:
            self.version += 1
        self.undone.add(fold.id)

    def may_purge(self, before):
        covered = {
            position for fold in self.active_folds if fold.stop <= before for position in range(fold.start, fold.stop)
        }
        ends = {0, *(fold.stop for fold in self.active_folds)}
        return before <= self.first or (before in ends and covered >= set(range(self.first, before)))

    def shown(self):
        return list(record_with_folds(Transcript(self.messages, broken="mark"), self.applied_folds).transcript)

    def last_turns(self, count):
        spans = turns(self.messages)
        users = [span.start for span in spans if self.messages[span.start]["role"] == "user"]
        start = len(self.messages) if count == 0 else users[-count] if count < len(users) else 0
        return max(self.first, start)

    def last_messages(self, count):
        start = max(0, len(self.messages) - count)
        units = exchanges(self.messages)
        return max(self.first, next((unit.start for unit in units if start in unit), start))

    def trimmed(self, position):
        """The message at a position with its tool payloads removed, or else its text."""
        message = self.messages[position]
        if message.get("tool_calls"):
            calls = [{**call, "function": {**call["function"], "arguments": ""}} for call in message["tool_calls"]]
            return {**message, "tool_calls": calls}
        return {**message, "content": ""}

    def may_trim(self, position):
        message = self.messages[position]
        return bool(message["role"] == "tool" or message.get("tool_calls"))

    def positions_with(self, word):
        """The positions whose text or tool arguments have a word, from the last to the first."""
        positions = reversed(range(self.first, len(self.messages)))
        return [position for position in positions if word in words(searchable_text(self.messages[position]))]

    def fork(self, name, at):
        return ModelConversation(
            self.recipient,
            self.messages[:at],
            1,
            self.first,
            [fold for fold in self.applied_folds if fold.stop <= at],
            set(),
            set(self.sealed),
            {pin for pin in self.pins if pin < at},
            name,
        )
