"""How fast tokens are counted, and how far off a guess is."""

import os
from collections.abc import Callable
from statistics import fmean
from time import perf_counter

from bench.contest import FIRST, forget_counts
from bench.peers_env import HOME
from bench.report import Part, Table, progress
from bench.session import long_conversation
from minutebook.tokens import EstimatedCounter, ExactCounter
from tests.tokens.reference import fill_cache
from tests.tokens.samples import SAMPLES

PIECE = 500
MOST = 1_000_000

Count = Callable[[str], int]


def measure(*, quick: bool) -> Part:
    part = Part()
    progress("tokens: speed")
    _speed(part, rounds=2 if quick else 5)
    progress("tokens: error of the estimate")
    _error(part)
    return part


def _speed(part: Part, rounds: int) -> None:
    conversation = long_conversation()
    text = "\n".join(str(message["content"]) for message in conversation.messages)[:MOST]
    pieces = [text[start : start + PIECE] for start in range(0, len(text) - PIECE, PIECE)]
    megabytes = len(text.encode()) / 1e6
    exact, estimate = ExactCounter(), EstimatedCounter()
    # What is counted twice is remembered, so a new text is told from a known one.
    counters: dict[str, tuple[Count, Callable[[], None]]] = {
        "minutebook ExactCounter, new text": (exact.count, forget_counts),
        "minutebook ExactCounter, seen before": (exact.count, lambda: None),
        "minutebook EstimatedCounter": (estimate.count, lambda: None),
        "tiktoken encode_ordinary": (_tiktoken(), lambda: None),
        "characters / 4": (lambda text: len(text) // 4, lambda: None),
    }
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, (count, prepare) in counters.items():
            prepare()
            began = perf_counter()
            for piece in pieces:
                count(piece)
            best[name] = min(best.get(name, float("inf")), perf_counter() - began)
    table = Table(
        f"Tokens: {megabytes:.2f} MB of a conversation ({conversation.source}), o200k_base, in pieces of {PIECE}",
        ["counter", "MB/s", "µs per piece", "speed / tiktoken"],
    )
    slow = best["tiktoken encode_ordinary"]
    for name, seconds in best.items():
        row = [name, f"{megabytes / seconds:,.0f}", f"{seconds / len(pieces) * 1e6:.2f}", f"{slow / seconds:.1f}x"]
        table.rows.append(row)
    part.tables.append(table)
    part.figures["speed"] = {name: {"seconds": s, "megabytes": megabytes} for name, s in best.items()}


def _tiktoken() -> Count:
    folder = HOME / "tiktoken"
    folder.mkdir(parents=True, exist_ok=True)
    fill_cache(folder)
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    import tiktoken

    encode = tiktoken.get_encoding("o200k_base").encode_ordinary
    encode(FIRST)
    return lambda text: len(encode(text))


def _error(part: Part) -> None:
    guesses: dict[str, Count] = {
        "estimate": EstimatedCounter().count,
        "modern": EstimatedCounter(modern=True).count,
        "chars / 4": lambda text: len(text) // 4,
    }
    exact = ExactCounter().count
    columns = [f"{name}: {what}" for name in guesses for what in ("error", "under", "over")]
    table = Table(
        f"Guesses beside o200k_base, in pieces of {PIECE}: error, and the worst either way", ["text", *columns]
    )
    errors: dict[str, dict[str, list[float]]] = {}
    for kind, text in SAMPLES.items():
        pieces = [text[start : start + PIECE] for start in range(0, len(text) - PIECE, PIECE)]
        errors[kind] = {name: [guess(piece) / exact(piece) - 1 for piece in pieces] for name, guess in guesses.items()}
        table.rows.append([kind, *_cells(errors[kind])])
    every = {name: [e for kind in errors.values() for e in kind[name]] for name in guesses}
    table.rows.append(["all", *_cells(every)])
    table.notes = [
        "error: mean of the distances; the estimate is meant to be high rather than low, and to hold for cl100k_base too."
    ]
    part.tables.append(table)
    part.figures["error"] = {
        kind: {name: {"mean": fmean(map(abs, e)), "under": min(e), "over": max(e)} for name, e in found.items()}
        for kind, found in {**errors, "all": every}.items()
    }


def _cells(errors: dict[str, list[float]]) -> list[str]:
    return [
        cell
        for found in errors.values()
        for cell in (f"{fmean(map(abs, found)):.0%}", f"{min(0.0, *found):+.0%}", f"{max(0.0, *found):+.0%}")
    ]
