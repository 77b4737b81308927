"""How many of the facts that a summary stands for are still in view, and of those that the conversation needs again."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf

from bench.corpus import conversations, folder
from bench.replay import plain
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

FILES = ("coding_agents", "claude_code", "codex_responses")
KINDS = ("paths", "ids", "numbers", "commands")
WINDOW = 32_000
_BREAKS = re.compile(r"\\+[nrt]")
_QUOTING = re.compile(r'\\+|"')
_WORD = re.compile(r"\w")


@dataclass
class Share:
    """How many there were, and how many of them are still there."""

    all: int = 0
    kept: int = 0

    def add(self, texts: Iterable[str], view: str) -> None:
        for text in texts:
            self.all += 1
            self.kept += place_of(text, view) >= 0

    @property
    def share(self) -> float:
        return self.kept / max(1, self.all)

    def __add__(self, other: "Share") -> "Share":
        return Share(self.all + other.all, self.kept + other.kept)

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} %" if self.all else "-"


def flat(text: str) -> str:
    """A text without the marks that JSON puts in it, once or twice: what is at the start of a line is then a word too."""
    return _QUOTING.sub("", _BREAKS.sub(" ", text))


def place_of(text: str, where: str) -> int:
    """Where a text stands last as a whole in another, or -1: `15s` does not name `5s`."""
    at = where.rfind(text)
    while at >= 0:
        around = where[max(0, at - 1) : at] + where[at + len(text) : at + len(text) + 1]
        if not _WORD.search(around):
            return at
        at = where.rfind(text, 0, at + len(text) - 1)
    return -1


class Future:
    """What an assistant says in the course of a conversation, for whoever asks what is named again after a message."""

    def __init__(self, chat: Sequence[Message]) -> None:
        said = [
            flat(json.dumps(message, ensure_ascii=False)) if message["role"] == "assistant" else "" for message in chat
        ]
        self._starts = list(accumulate((len(text) + 1 for text in said), initial=0))
        self._text = "\n".join(said)
        self._last: dict[str, int] = {}

    def names(self, text: str, after: int) -> bool:
        """Whether a text is named in a message after this one."""
        if text not in self._last:
            self._last[text] = place_of(text, self._text)
        return self._last[text] >= self._starts[after + 1]


@dataclass(frozen=True)
class Told:
    """A session, and what is known of it before it is replayed."""

    file: str
    group: str
    chat: list[Message]
    read: FactReader
    future: Future


FIRST, SECOND, OTHERS = "first half", "second half", "others"
AS_IT_IS, NO_WEIGHTS = "as it is", "no weights"
WEIGHINGS = {
    AS_IT_IS: DEFAULT_WEIGHTS,
    "own words 1": replace(DEFAULT_WEIGHTS, own_words=1),
    "own words 16": replace(DEFAULT_WEIGHTS, own_words=16),
    "half-life 100": replace(DEFAULT_WEIGHTS, half_life=100),
    "half-life 1,000": replace(DEFAULT_WEIGHTS, half_life=1_000),
    NO_WEIGHTS: FactWeights(own_words=1, half_life=inf),
}
LIMIT = 1_500
LONGEST = 9
"""So many sessions of each file; the ledger was made with these in sight."""


def measure(*, quick: bool) -> Part:
    part = Part()
    if folder() is None:
        part.tables.append(Table("Survival of facts: there is no corpus here (MINUTEBOOK_CORPUS names its folder)", []))
        return part
    sessions = list(_sessions(2 if quick else LONGEST))
    part.tables.append(_beside_none(_longest(sessions), part))
    if not quick:
        part.tables.append(_held_out(sessions, part))
    return part


def _sessions(most: int) -> Iterator[Told]:
    """Of every file the longest sessions, every other one in the same half; then as many that come after those."""
    for name in FILES:
        found = sorted(conversations(name), key=lambda recorded: -len(recorded["messages"]))
        groups = [(FIRST, SECOND)[number % 2] for number in range(most)]
        groups += [OTHERS] * most if most == LONGEST else []
        for group, recorded in zip(groups, found, strict=False):
            chat = [plain(dict(message)) for message in recorded["messages"]]
            yield Told(name, group, chat, FactReader(), Future(chat))


def _beside_none(sessions: Sequence[Told], part: Part) -> Table:
    table = Table(
        f"Survival of facts: {len(sessions)} agent sessions, window {WINDOW:,}; what a summary stands for and is still in view",
        ["ledger", "compactions", *KINDS, "all", "used again", "tokens, most"],
        notes=["Used again: named as a whole word in a later message of the assistant or in its calls."],
    )
    for limit in (0, LIMIT):
        progress(f"survival: ledger of {limit:,} tokens")
        shares = {kind: Share() for kind in KINDS}
        again, count, largest = Share(), 0, 0
        for told in sessions:
            for seen in _replayed(told, limit):
                count += 1
                largest = max(largest, seen.tokens)
                for kind in KINDS:
                    shares[kind].add(seen.gone[kind], seen.view)
                again.add(seen.needed(told), seen.view)
        whole = sum(shares.values(), Share())
        table.rows.append(
            [f"{limit:,}" if limit else "none", f"{count}", *map(str, (*shares.values(), whole, again)), f"{largest:,}"]
        )
        part.figures[f"ledger {limit}"] = {"again": again.share, "all": whole.share}
    part.targets.append(_target(f"90 % of what is used again is still in view, for {LIMIT:,} tokens", again))
    return table


def _held_out(sessions: Sequence[Told], part: Part) -> Table:
    """What the ledger keeps of sessions on which it was not weighed."""
    found: dict[str, dict[str, Share]] = {}
    for name, weights in WEIGHINGS.items():
        progress(f"survival: {name}")
        found[name] = _kept(sessions if name in {AS_IT_IS, NO_WEIGHTS} else _longest(sessions), weights)
    best = {half: max(found, key=lambda name: found[name][half].share) for half in (FIRST, SECOND)}
    held = {FIRST: found[best[SECOND]][FIRST], SECOND: found[best[FIRST]][SECOND]}
    apart = held[FIRST] + held[SECOND]
    table = Table(
        f"Used again and in view, for at most {LIMIT:,} tokens, by how facts are weighed",
        ["weights", FIRST, SECOND, "both", OTHERS],
        [
            [name, *map(str, (one[FIRST], one[SECOND], one[FIRST] + one[SECOND], one[OTHERS]))]
            for name, one in found.items()
        ],
        [
            f"Held out: the weights that are best on the second half ({best[SECOND]}) keep {held[FIRST]} on the first;",
            f"those that are best on the first ({best[FIRST]}) keep {held[SECOND]} on the second; together {apart}.",
            "The halves are every other of the longest sessions. The forms of facts, the ranking by uses for each token, that",
            "all kinds weigh the same, and the weights as they are were worked out with all of these in sight.",
            f"The others are {len(sessions) - len(_longest(sessions))} shorter sessions, on which nothing was chosen.",
            f"By file, as it is: {', '.join(f'{file} {found[AS_IT_IS][file]}' for file in FILES)} (the others not counted).",
        ],
    )
    part.figures["weights"] = {
        name: {group: share.share for group, share in one.items()} for name, one in found.items()
    }
    part.figures["held out"] = apart.share
    part.targets.append(_target("the same with weights chosen on the other half", apart))
    part.targets.append(_target("the same in the other sessions", found[AS_IT_IS][OTHERS]))
    return table


def _target(what: str, again: Share) -> Target:
    return Target(what, str(again), again.share >= 0.9)


def _longest(sessions: Sequence[Told]) -> list[Told]:
    return [told for told in sessions if told.group != OTHERS]


def _kept(sessions: Sequence[Told], weights: FactWeights) -> dict[str, Share]:
    """Of what is used again, what is in view: by half, and by file for the halves together."""
    found = {group: Share() for group in (FIRST, SECOND, OTHERS, *FILES)}
    for told in sessions:
        for seen in _replayed(told, LIMIT, weights):
            share = Share()
            share.add(seen.needed(told), seen.view)
            found[told.group] += share
            if told.group != OTHERS:
                found[told.file] += share
    return found


@dataclass(frozen=True)
class Seen:
    """A compaction: what it left to be seen."""

    place: int
    gone: dict[str, list[str]]
    """By kind, what is named in messages that are no longer shown."""
    view: str
    tokens: int
    """Of the ledger."""

    def needed(self, told: Told) -> Iterator[str]:
        """What is gone and named again later."""
        return (text for kind in KINDS for text in self.gone[kind] if told.future.names(text, self.place))


def _replayed(told: Told, limit: int, weights: FactWeights = DEFAULT_WEIGHTS) -> list[Seen]:
    return asyncio.run(_compactions(told, replace(SummarizeStrategy(), max_ledger_tokens=limit), weights))


async def _compactions(told: Told, strategy: SummarizeStrategy, weights: FactWeights) -> list[Seen]:
    record = Transcript(broken="mark")
    compactor = CompactionManager(strategy, ModelInfo("any", max_input_tokens=WINDOW))
    found = []
    for place, message in enumerate(told.chat):
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
        gone: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for kind, fact in dict.fromkeys(key for at in view.hidden for key in told.read(record[at])):
            if kind in gone:
                gone[kind].append(flat(fact))
        _, head, lines = summaries[0].partition(HEADING)
        found.append(Seen(place, gone, text, record.counter.count(head + lines)))
    return found
