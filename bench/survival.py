"""How many of the facts that a summary stands for are still in view, and of those that the conversation needs again."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bench.corpus import conversations, folder
from bench.replay import plain
from bench.report import Part, Table, Target, progress
from minutebook import CompactionManager, Message, ModelInfo, SummarizeStrategy, Transcript, facts, view_of
from minutebook.compaction.facts import spelled_out
from minutebook.compaction.shown import is_summary

FILES = ("coding_agents", "claude_code", "codex_responses")
KINDS = ("paths", "ids", "numbers", "commands")
WINDOW = 32_000


@dataclass
class Share:
    """How many there were, and how many of them are still there."""

    all: int = 0
    kept: int = 0

    def add(self, texts: Iterable[str], view: str) -> None:
        for text in texts:
            self.all += 1
            self.kept += text in view

    def __str__(self) -> str:
        return f"{100 * self.kept / self.all:.1f} %" if self.all else "-"


@dataclass
class Tally:
    compactions: int = 0
    ledger_tokens: int = 0


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
    table = Table(
        f"Survival of facts: {len(chats)} agent sessions, window {WINDOW:,}; what a summary stands for and is still in view",
        ["ledger", "compactions", *KINDS, "all", "used again", "tokens, most"],
    )
    for limit in (0, 1_500):
        progress(f"survival: ledger of {limit:,} tokens")
        shares = {kind: Share() for kind in KINDS}
        again, count, largest = Share(), 0, 0
        for chat in chats:
            found = asyncio.run(_replayed(chat, replace(SummarizeStrategy(), max_ledger_tokens=limit)))
            for gone, view, future, tokens in found:
                count += 1
                largest = max(largest, tokens)
                for kind in KINDS:
                    shares[kind].add(gone[kind], view)
                    again.add((text for text in gone[kind] if text in future), view)
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
    table.notes.append("Used again: named in a later message of the assistant or in its calls.")
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
    chat: list[Message], strategy: SummarizeStrategy
) -> list[tuple[dict[str, list[str]], str, str, int]]:
    """At every compaction: what is no longer shown, the view, what the assistant says later, the ledger's tokens."""
    record = Transcript(broken="mark")
    compactor = CompactionManager(strategy, ModelInfo("any", max_input_tokens=WINDOW))
    said = [json.dumps(message, ensure_ascii=False) if message["role"] == "assistant" else "" for message in chat]
    found = []
    for place, message in enumerate(chat):
        record.append(message)
        if record.open_calls or record.newest_request is None or message["role"] == "assistant":
            continue
        done = await compactor.check_and_apply(record)
        summaries = [fold.shown[0]["content"] for fold in done.added if fold.shown and is_summary(fold.shown[0])]
        if not summaries:
            continue
        view = view_of(record, folds=done.folds)
        text = spelled_out("\n".join(json.dumps(shown, ensure_ascii=False) for shown in view.messages))
        hidden = [record[at] for at in sorted(view.hidden)]
        gone: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for fact in facts(hidden):
            if fact.kind in gone:
                gone[fact.kind].append(json.dumps(fact.text, ensure_ascii=False)[1:-1])
        ledger = str(summaries[0]).partition("Facts named in it")[2]
        found.append((gone, text, "\n".join(said[place + 1 :]), record.counter.count(ledger)))
    return found
