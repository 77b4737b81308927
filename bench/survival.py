"""The share of summarized facts that are still in view: of all facts, and of those that are used again."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf

from bench.corpus import conversations, folder
from bench.report import Part, Table, Target, progress
from minutebook import CompactionManager, Message, ModelInfo, SummarizeStrategy, Transcript, view_of
from minutebook.compaction.fact_ledger import (
    DEFAULT_WEIGHTS,
    HEADING,
    FactReader,
    FactWeights,
    LedgerCache,
    with_braces_expanded,
)
from minutebook.compaction.summarizer import is_summary, summary_text
from minutebook.lab.peers import plain

FILES = ("coding_agents", "claude_code", "codex_responses")
KINDS = ("paths", "ids", "numbers", "commands")
WINDOW = 32_000
_BREAKS = re.compile(r"\\+[nrt]")
_QUOTING = re.compile(r'\\+|"')
_WORD = re.compile(r"\w")


@dataclass
class Share:
    """A number of facts, and how many of them are in view."""

    all: int = 0
    in_view: int = 0

    def add(self, texts: Iterable[str], view: str) -> None:
        for text in texts:
            self.all += 1
            self.in_view += last_index_of(text, view) >= 0

    @property
    def share(self) -> float:
        return self.in_view / max(1, self.all)

    def __add__(self, other: "Share") -> "Share":
        return Share(self.all + other.all, self.in_view + other.in_view)

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} %" if self.all else "-"


def flat(text: str) -> str:
    """A text without the escapes of JSON, so that the start of an escaped line is a separate word."""
    return _QUOTING.sub("", _BREAKS.sub(" ", text))


def last_index_of(text: str, where: str) -> int:
    """The last index of a text as a whole word in another, or -1: `15s` does not contain `5s`."""
    at = where.rfind(text)
    while at >= 0:
        around = where[max(0, at - 1) : at] + where[at + len(text) : at + len(text) + 1]
        if not _WORD.search(around):
            return at
        at = where.rfind(text, 0, at + len(text) - 1)
    return -1


class LaterMessages:
    """The assistant messages of a conversation, to find texts that are used again after a message."""

    def __init__(self, chat: Sequence[Message]) -> None:
        texts = [
            flat(json.dumps(message, ensure_ascii=False)) if message["role"] == "assistant" else "" for message in chat
        ]
        self._starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
        self._text = "\n".join(texts)
        self._last: dict[str, int] = {}

    def contain(self, text: str, after: int) -> bool:
        """Whether a text is in an assistant message after this index."""
        if text not in self._last:
            self._last[text] = last_index_of(text, self._text)
        return self._last[text] >= self._starts[after + 1]


@dataclass(frozen=True)
class RecordedSession:
    """A session of the corpus, and what does not depend on the replay."""

    file: str
    group: str
    chat: list[Message]
    read: FactReader
    later: LaterMessages


FIRST, SECOND, OTHERS = "first half", "second half", "others"
CURRENT, NO_WEIGHTS = "current", "no weights"
WEIGHINGS = {
    CURRENT: DEFAULT_WEIGHTS,
    "outside results 1": replace(DEFAULT_WEIGHTS, outside_results=1),
    "outside results 16": replace(DEFAULT_WEIGHTS, outside_results=16),
    "half-life 100": replace(DEFAULT_WEIGHTS, half_life=100),
    "half-life 1,000": replace(DEFAULT_WEIGHTS, half_life=1_000),
    NO_WEIGHTS: FactWeights(outside_results=1, half_life=inf),
}
LIMIT = 1_500
LONGEST = 9
"""Number of the longest sessions of each file. The ledger was developed with these."""


def measure(*, quick: bool) -> Part:
    part = Part()
    if folder() is None:
        part.tables.append(Table("Survival of facts: no corpus found; set MINUTEBOOK_CORPUS to its folder", []))
        return part
    sessions = list(_read_sessions(2 if quick else LONGEST))
    part.tables.append(_compare_with_no_ledger(_longest(sessions), part))
    if not quick:
        part.tables.append(_compare_weights(sessions, part))
    return part


def _read_sessions(count: int) -> Iterator[RecordedSession]:
    """The longest sessions of every file, alternately in the first and second half, and as many shorter ones."""
    for name in FILES:
        by_length = sorted(conversations(name), key=lambda recorded: -len(recorded["messages"]))
        groups = [(FIRST, SECOND)[number % 2] for number in range(count)]
        groups += [OTHERS] * count if count == LONGEST else []
        for group, recorded in zip(groups, by_length, strict=False):
            chat = [plain(dict(message)) for message in recorded["messages"]]
            yield RecordedSession(name, group, chat, FactReader(), LaterMessages(chat))


def _compare_with_no_ledger(sessions: Sequence[RecordedSession], part: Part) -> Table:
    table = Table(
        f"Survival of facts: {len(sessions)} agent sessions, window {WINDOW:,}; share of the summarized facts in view",
        ["ledger", "compactions", *KINDS, "all", "used again", "max tokens"],
        notes=["Used again: a whole word in a later assistant message or its calls."],
    )
    for limit in (0, LIMIT):
        progress(f"survival: ledger of {limit:,} tokens")
        shares = {kind: Share() for kind in KINDS}
        again, count, largest = Share(), 0, 0
        for session in sessions:
            for compaction in _replay(session, limit):
                count += 1
                largest = max(largest, compaction.tokens)
                for kind in KINDS:
                    shares[kind].add(compaction.hidden_facts[kind], compaction.view)
                again.add(compaction.needed(session), compaction.view)
        whole = sum(shares.values(), Share())
        table.rows.append(
            [f"{limit:,}" if limit else "none", f"{count}", *map(str, (*shares.values(), whole, again)), f"{largest:,}"]
        )
        part.figures[f"ledger {limit}"] = {"again": again.share, "all": whole.share}
    part.targets.append(_target(f"90 % of the facts that are used again are in view, with {LIMIT:,} tokens", again))
    return table


def _compare_weights(sessions: Sequence[RecordedSession], part: Part) -> Table:
    """The results on sessions on which the weights were not tuned."""
    found: dict[str, dict[str, Share]] = {}
    for name, weights in WEIGHINGS.items():
        progress(f"survival: {name}")
        found[name] = _used_again(sessions if name in {CURRENT, NO_WEIGHTS} else _longest(sessions), weights)
    best = {half: max(found, key=lambda name: found[name][half].share) for half in (FIRST, SECOND)}
    shares = {FIRST: found[best[SECOND]][FIRST], SECOND: found[best[FIRST]][SECOND]}
    held_out = shares[FIRST] + shares[SECOND]
    table = Table(
        f"Facts that are used again and in view, with at most {LIMIT:,} tokens, by weights",
        ["weights", FIRST, SECOND, "both", OTHERS],
        [
            [name, *map(str, (one[FIRST], one[SECOND], one[FIRST] + one[SECOND], one[OTHERS]))]
            for name, one in found.items()
        ],
        [
            f"Held out: the weights that are best on the second half ({best[SECOND]}) keep {shares[FIRST]} on the first;",
            f"those that are best on the first ({best[FIRST]}) keep {shares[SECOND]} on the second; together {held_out}.",
            "The halves alternate over the longest sessions. The patterns of facts, the ranking by uses per token, the equal weight",
            "of all kinds and the current weights were developed with all of these.",
            f"The others are {len(sessions) - len(_longest(sessions))} shorter sessions, on which nothing was tuned.",
            f"By file, current weights: {', '.join(f'{file} {found[CURRENT][file]}' for file in FILES)} (without the others).",
        ],
    )
    part.figures["weights"] = {
        name: {group: share.share for group, share in one.items()} for name, one in found.items()
    }
    part.figures["held out"] = held_out.share
    part.targets.append(_target("the same with weights tuned on the other half", held_out))
    part.targets.append(_target("the same in the other sessions", found[CURRENT][OTHERS]))
    return table


def _target(what: str, again: Share) -> Target:
    return Target(what, str(again), again.share >= 0.9)


def _longest(sessions: Sequence[RecordedSession]) -> list[RecordedSession]:
    return [session for session in sessions if session.group != OTHERS]


def _used_again(sessions: Sequence[RecordedSession], weights: FactWeights) -> dict[str, Share]:
    """The share of the facts used again that are in view: by group, and by file for both halves."""
    found = {group: Share() for group in (FIRST, SECOND, OTHERS, *FILES)}
    for session in sessions:
        for compaction in _replay(session, LIMIT, weights):
            share = Share()
            share.add(compaction.needed(session), compaction.view)
            found[session.group] += share
            if session.group != OTHERS:
                found[session.file] += share
    return found


@dataclass(frozen=True)
class Compaction:
    """The state after one compaction."""

    index: int
    hidden_facts: dict[str, list[str]]
    """Kind → the facts of messages that are not in view."""
    view: str
    tokens: int
    """Size of the ledger."""

    def needed(self, session: RecordedSession) -> Iterator[str]:
        """The hidden facts that are used again later."""
        return (text for kind in KINDS for text in self.hidden_facts[kind] if session.later.contain(text, self.index))


def _replay(session: RecordedSession, limit: int, weights: FactWeights = DEFAULT_WEIGHTS) -> list[Compaction]:
    return asyncio.run(_compactions(session, replace(SummarizeStrategy(), max_ledger_tokens=limit), weights))


async def _compactions(session: RecordedSession, strategy: SummarizeStrategy, weights: FactWeights) -> list[Compaction]:
    record = Transcript(broken="mark")
    compactor = CompactionManager(strategy, ModelInfo("any", max_input_tokens=WINDOW))
    found = []
    for index, message in enumerate(session.chat):
        record.append(message)
        if record.open_calls or record.newest_request is None or message["role"] == "assistant":
            continue
        LedgerCache.of(record, weights)
        done = await compactor.check_and_apply(record)
        summaries = [summary_text(fold.shown[0]) for fold in done.added if fold.shown and is_summary(fold.shown[0])]
        if not summaries:
            continue
        view = view_of(record, folds=done.folds)
        text = with_braces_expanded(flat("\n".join(json.dumps(shown, ensure_ascii=False) for shown in view.messages)))
        hidden_facts: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for kind, fact in dict.fromkeys(key for at in view.hidden for key in session.read(record[at])):
            if kind in hidden_facts:
                hidden_facts[kind].append(flat(fact))
        _, head, lines = summaries[0].partition(HEADING)
        found.append(Compaction(index, hidden_facts, text, record.counter.count(head + lines)))
    return found
