"""The speed of token counters, and the error of estimates."""

import os
from collections.abc import Callable
from statistics import fmean
from time import perf_counter

from bench.contest import WARM_UP_TEXT, clear_count_cache
from bench.peers_env import HOME
from bench.report import Part, Table, progress
from bench.session import long_conversation
from minutebook.tokens import EstimatedCounter, ExactCounter
from tests.tokens.reference import fill_cache
from tests.tokens.samples import SAMPLES

PIECE_CHARACTERS = 500
MAX_CHARACTERS = 1_000_000

Count = Callable[[str], int]


def measure(*, quick: bool) -> Part:
    part = Part()
    progress("tokens: speed")
    _measure_speed(part, rounds=2 if quick else 5)
    progress("tokens: error of the estimate")
    _measure_error(part)
    return part


def _measure_speed(part: Part, rounds: int) -> None:
    conversation = long_conversation()
    text = "\n".join(str(message["content"]) for message in conversation.messages)[:MAX_CHARACTERS]
    pieces = [
        text[start : start + PIECE_CHARACTERS] for start in range(0, len(text) - PIECE_CHARACTERS, PIECE_CHARACTERS)
    ]
    megabytes = len(text.encode()) / 1e6
    exact, estimate = ExactCounter(), EstimatedCounter()
    # Counts are cached, so new and cached texts are measured separately.
    counters: dict[str, tuple[Count, Callable[[], None]]] = {
        "minutebook ExactCounter, new text": (exact.count, clear_count_cache),
        "minutebook ExactCounter, cached": (exact.count, lambda: None),
        "minutebook EstimatedCounter": (estimate.count, lambda: None),
        "tiktoken encode_ordinary": (_tiktoken(), lambda: None),
        "characters / 4": (lambda text: len(text) // 4, lambda: None),
    }
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, (count, prepare) in counters.items():
            prepare()
            started = perf_counter()
            for piece in pieces:
                count(piece)
            best[name] = min(best.get(name, float("inf")), perf_counter() - started)
    table = Table(
        f"Tokens: {megabytes:.2f} MB of a conversation ({conversation.source}), o200k_base, in pieces of {PIECE_CHARACTERS} characters",
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
    encode(WARM_UP_TEXT)
    return lambda text: len(encode(text))


def _measure_error(part: Part) -> None:
    estimates: dict[str, Count] = {
        "estimate": EstimatedCounter().count,
        "modern": EstimatedCounter(modern=True).count,
        "chars / 4": lambda text: len(text) // 4,
    }
    exact = ExactCounter().count
    columns = [f"{name}: {what}" for name in estimates for what in ("error", "under", "over")]
    table = Table(
        f"Estimates compared with o200k_base, in pieces of {PIECE_CHARACTERS} characters: mean error, and the extremes",
        ["text", *columns],
    )
    errors: dict[str, dict[str, list[float]]] = {}
    for kind, text in SAMPLES.items():
        pieces = [
            text[start : start + PIECE_CHARACTERS] for start in range(0, len(text) - PIECE_CHARACTERS, PIECE_CHARACTERS)
        ]
        errors[kind] = {
            name: [estimate(piece) / exact(piece) - 1 for piece in pieces] for name, estimate in estimates.items()
        }
        table.rows.append([kind, *_cells(errors[kind])])
    every = {name: [e for kind in errors.values() for e in kind[name]] for name in estimates}
    table.rows.append(["all", *_cells(every)])
    table.notes = [
        "error: mean of absolute errors. The estimate should be too high rather than too low, and valid for cl100k_base too."
    ]
    part.tables.append(table)
    part.figures["error"] = {
        kind: {name: {"mean": fmean(map(abs, e)), "under": min(e), "over": max(e)} for name, e in kind_errors.items()}
        for kind, kind_errors in {**errors, "all": every}.items()
    }


def _cells(errors: dict[str, list[float]]) -> list[str]:
    return [
        cell
        for values in errors.values()
        for cell in (f"{fmean(map(abs, values)):.0%}", f"{min(0.0, *values):+.0%}", f"{max(0.0, *values):+.0%}")
    ]
