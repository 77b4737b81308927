"""Recorded sessions, prepared for replay: where the model was called, and what each answer used from the record.

An answer in a recording was written with everything in view. The names and lines that it repeats from earlier messages are
what a view should still contain at that call. They are found once per session, whatever the policies.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

from minutebook.formats.registry import read
from minutebook.formats.source import Source
from minutebook.history.names import NAME, full_text
from minutebook.record.message import Message, call_ids, is_result, is_user, result_id, role_of
from minutebook.tokens import TokenCounter, counter_for

OTHER_NAME: Final = re.compile(
    r"[A-Za-z0-9_$]+(?:[./:@#-]+[A-Za-z0-9_$]+)+|[A-Za-z]*\d[A-Za-z0-9]{3,}|[A-Za-z]+_[A-Za-z_]+|[A-Z][a-z]+[A-Z]\w+"
)
"""A second pattern, to see that a result does not depend on the first."""
MIN_LINE: Final = 24
"""Minimum length of a line that counts as quoted."""


@dataclass(frozen=True, slots=True)
class Use:
    """A name or a line that an answer uses, and the earlier messages that contain it."""

    text: str
    sources: Sequence[int]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of the model in a recording."""

    index: int
    """The index of the answer. The messages before it are the record at that time."""
    names: Sequence[Use]
    other_names: Sequence[Use]
    lines: Sequence[Use]


@dataclass
class RecordedSession:
    """One recorded conversation."""

    id: str
    messages: Sequence[Message]
    counter: TokenCounter
    provider: str = "openai"

    @cached_property
    def tokens(self) -> list[int]:
        return [self.counter.message(message) for message in self.messages]

    @cached_property
    def texts(self) -> list[str]:
        return [full_text(message) for message in self.messages]

    @cached_property
    def calls(self) -> list[RecordedCall]:
        """The calls of the model, each with what its answer uses."""
        indexes = list(call_indexes(self.messages))
        names = self._uses({index: NAME.findall(self.texts[index]) for index in indexes})
        other_names = self._uses({index: OTHER_NAME.findall(self.texts[index]) for index in indexes})
        lines = self._uses({index: list(_long_lines(self.texts[index])) for index in indexes})
        return [RecordedCall(index, names[index], other_names[index], lines[index]) for index in indexes]

    def _uses(self, found: Mapping[int, Sequence[str]]) -> dict[int, list[Use]]:
        """Of the texts that each answer has, those that an earlier message has too."""
        sources = {
            text: [index for index, message_text in enumerate(self.texts) if text in message_text]
            for text in {text for texts in found.values() for text in texts}
        }
        return {
            index: [
                Use(text, earlier)
                for text in dict.fromkeys(texts)
                if (earlier := sources[text][: bisect_left(sources[text], index)])
            ]
            for index, texts in found.items()
        }


def load_sessions(
    paths: Iterable[str | Path], *, min_messages: int = 0, model: str | None = None
) -> Iterator[RecordedSession]:
    """The sessions of files, folders and databases in every supported format, one at a time.

    Raises, while iterating:
        UnreadableInput: a file is in no known format.
    """
    for path in map(Path, paths):
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            for conversation in read(Source(file)):
                if len(conversation.items) >= min_messages:
                    counter = counter_for(model or conversation.model)
                    yield RecordedSession(conversation.id or file.name, conversation.messages, counter)


def _long_lines(text: str) -> Iterator[str]:
    return (line for line in map(str.strip, text.split("\n")) if len(line) >= MIN_LINE)


def call_indexes(messages: Sequence[Message]) -> Iterator[int]:
    """The indexes of answers to a complete request: the message before is the user's or the last result."""
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        if role_of(message) == "assistant":
            before = messages[index - 1] if index else None
            if before is not None and not open_calls and (is_user(before) or is_result(before)):
                yield index
            open_calls = set(call_ids(message))
        elif is_result(message):
            open_calls.discard(result_id(message))
        else:
            open_calls = set()


def spread(sessions: Sequence[RecordedSession], count: int) -> list[RecordedSession]:
    """At most `count` of the sessions, evenly spread."""
    step = max(1, len(sessions) // max(1, count))
    return list(islice(sessions, 0, None, step))[:count]
