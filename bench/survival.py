"""How many of the facts that a summary stands for are still in view, and of those that the conversation needs again."""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from bench.corpus import conversations, folder
from bench.replay import plain
from bench.report import Part, Table, Target, progress
from minutebook import CompactionManager, Message, ModelInfo, SummarizeStrategy, Transcript, facts, view_of
from minutebook.compaction.facts import HEAD, Reading, spelled_out
from minutebook.compaction.shown import is_summary, summary_text

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

    def __str__(self) -> str:
        return f"{100 * self.kept / self.all:.1f} %" if self.all else "-"


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


def measure(*, quick: bool) -> Part:
    part = Part()
    if folder() is None:
        part.tables.append(Table("Survival of facts: there is no corpus here (MINUTEBOOK_CORPUS names its folder)", []))
        return part
    most = 4 if quick else 24
    chats = [
        [plain(dict(message)) for message in recorded["messages"]]
        for name in FILES
        for recorded in _long(name, most // len(FILES) + 1)
    ]
    readings = [(Reading(), Future(chat)) for chat in chats]
    table = Table(
        f"Survival of facts: {len(chats)} agent sessions, window {WINDOW:,}; what a summary stands for and is still in view",
        ["ledger", "compactions", *KINDS, "all", "used again", "tokens, most"],
    )
    for limit in (0, 1_500):
        progress(f"survival: ledger of {limit:,} tokens")
        shares = {kind: Share() for kind in KINDS}
        again, count, largest = Share(), 0, 0
        for chat, (read, future) in zip(chats, readings, strict=True):
            found = asyncio.run(_replayed(chat, replace(SummarizeStrategy(), max_ledger_tokens=limit), read))
            for place, gone, view, tokens in found:
                count += 1
                largest = max(largest, tokens)
                for kind in KINDS:
                    shares[kind].add(gone[kind], view)
                    again.add((text for text in gone[kind] if future.names(text, place)), view)
        whole = Share(sum(s.all for s in shares.values()), sum(s.kept for s in shares.values()))
        table.rows.append(
            [
                "none" if not limit else f"{limit:,}",
                f"{count}",
                *map(str, shares.values()),
                str(whole),
                str(again),
                f"{largest:,}",
            ]
        )
        part.figures[f"ledger {limit}"] = {
            "again": again.kept / max(1, again.all),
            "all": whole.kept / max(1, whole.all),
        }
    table.notes.append("Used again: named as a whole word in a later message of the assistant or in its calls.")
    part.tables.append(table)
    share = part.figures["ledger 1500"]["again"]
    part.targets.append(
        Target("90 % of what is used again is still in view, for 1,500 tokens", f"{100 * share:.1f} %", share >= 0.9)
    )
    return part


def _long(name: str, most: int) -> list[dict[str, list[Message]]]:
    found = sorted(conversations(name), key=lambda recorded: -len(recorded["messages"]))
    return found[:most]


async def _replayed(
    chat: list[Message], strategy: SummarizeStrategy, read: Reading
) -> list[tuple[int, dict[str, list[str]], str, int]]:
    """At every compaction: its place, what is no longer shown, the view, the ledger's tokens."""
    record = Transcript(broken="mark")
    compactor = CompactionManager(strategy, ModelInfo("any", max_input_tokens=WINDOW))
    found = []
    for place, message in enumerate(chat):
        record.append(message)
        if record.open_calls or record.newest_request is None or message["role"] == "assistant":
            continue
        done = await compactor.check_and_apply(record)
        summaries = [summary_text(fold.shown[0]) for fold in done.added if fold.shown and is_summary(fold.shown[0])]
        if not summaries:
            continue
        view = view_of(record, folds=done.folds)
        text = spelled_out(flat("\n".join(json.dumps(shown, ensure_ascii=False) for shown in view.messages)))
        hidden = [record[at] for at in sorted(view.hidden)]
        gone: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for fact in facts(hidden, read=read):
            if fact.kind in gone:
                gone[fact.kind].append(flat(fact.text))
        _, head, lines = summaries[0].partition(HEAD)
        found.append((place, gone, text, record.counter.count(head + lines)))
    return found
