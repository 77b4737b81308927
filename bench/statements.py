"""The share of goals, constraints and decisions that are still in view after 20 compactions without a model."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from bench.report import Part, Table, Target
from minutebook import CompactionManager, Message, ModelInfo, Transcript, view_of
from minutebook.compaction import strategy_named

COMPACTIONS = 20
WINDOW = 8_000
SEEDS = 5
STRATEGIES = ("summarize", "hybrid", "turns")
STATEMENTS = {
    "goal": (
        ("user", "I want to move the whole billing service to the new queue before the audit."),
        ("user", "The goal of this part is a report that the finance team can read without help."),
        ("user", "After that we need a way to replay one customer's events."),
        ("user", "In the end the old cron jobs should be gone."),
    ),
    "constraint": (
        ("user", "Never write to the production bucket, not even in a dry run."),
        ("user", "All amounts must stay in whole cents, no floats anywhere."),
        ("user", "Please don't add new dependencies without asking me."),
        ("user", "The public API can only change in a backwards compatible way."),
    ),
    "decision": (
        ("user", "Let's go with Postgres for the outbox, not Redis."),
        ("assistant", "Agreed: failed events are retried three times and then parked."),
        ("user", "We decided that refunds are handled by the support tool instead."),
        ("assistant", "I chose one worker for each tenant, because the order of events matters."),
    ),
    "other words": (
        ("user", "Keep the old endpoints alive until all partners have moved."),
        ("user", "For customers the switch is invisible, please."),
        ("assistant", "Then prices include tax, and the invoice shows both."),
        ("user", "We stay on the current database version for now."),
    ),
}
"""Kind → speaker and text. They have few names and numbers, so the list of facts does not keep them. Those in other words
were written after the summarizer was tuned, and have none of the words that it looks for."""
_WORDS = [
    "handler",
    "event",
    "retry",
    "table",
    "worker",
    "index",
    "customer",
    "invoice",
    "check",
    "test",
    "column",
    "value",
    "queue",
    "branch",
    "note",
    "line",
]


def measure(*, quick: bool) -> Part:
    part = Part()
    table = Table(
        f"Survival of statements: in view after {COMPACTIONS} compactions without a model, window {WINDOW:,}",
        ["strategy", *STATEMENTS, "all"],
        notes=[f"{SEEDS} conversations, {sum(map(len, STATEMENTS.values()))} statements in the first turns of each."],
    )
    conversations = 1 if quick else SEEDS
    for name in STRATEGIES:
        in_view = Counter(kind for seed in range(conversations) for kind in asyncio.run(surviving(name, seed)))
        shares = [in_view[kind] / len(STATEMENTS[kind]) / conversations for kind in STATEMENTS]
        share = sum(shares) / len(shares)
        table.rows.append([name, *(f"{100 * value:.0f} %" for value in (*shares, share))])
        part.figures[name] = {**dict(zip(STATEMENTS, shares, strict=True)), "all": share}
        part.targets.append(Target(f"{name}: 80 % of the statements are in view", f"{100 * share:.0f} %", share >= 0.8))
    part.tables.append(table)
    return part


async def surviving(strategy: str, seed: int) -> list[str]:
    """The kind of each statement that is in view after the compactions."""
    record = Transcript()
    compactor = CompactionManager(strategy_named(strategy), ModelInfo("m", max_input_tokens=WINDOW))
    compactions = 0
    for message in _conversation(random.Random(seed)):
        record.append(message)
        if message["role"] != "assistant":
            compactions += bool(await compactor.check_and_apply(record))
        if compactions == COMPACTIONS:
            break
    view = "\n".join(str(message.get("content")) for message in view_of(record, folds=compactor.folds).curated)
    return [kind for kind, statements in STATEMENTS.items() for _, text in statements if text in view]


def _conversation(rng: random.Random) -> Iterator[Message]:
    """Steps of work without end. Each of the first steps also has a statement."""
    statements = [statement for kind in STATEMENTS.values() for statement in kind]
    rng.shuffle(statements)
    yield {"role": "system", "content": "You are a careful engineer."}
    yield {"role": "user", "content": "Read the repository, then go on step by step."}
    yield {"role": "assistant", "content": "I read it. There are three services and one shared library."}
    step = 0
    while True:
        step += 1
        speaker, text = statements.pop() if statements else ("", "")
        yield {"role": "user", "content": _with(f"Go on with step {step}.", text if speaker == "user" else "", rng)}
        for number in range(rng.randrange(1, 4)):
            yield from _tool_use(f"c{step}_{number}", rng)
        report = f"Done with step {step}: {_sentence(rng)} The {rng.randrange(10, 90)} tests of it pass."
        yield {"role": "assistant", "content": _with(report, text if speaker == "assistant" else "", rng)}


def _with(text: str, statement: str, rng: random.Random) -> str:
    return " ".join(part for part in rng.sample([text, statement], 2) if part)


def _sentence(rng: random.Random) -> str:
    return f"I changed the {rng.choice(_WORDS)} so that every {rng.choice(_WORDS)} has a {rng.choice(_WORDS)}."


def _tool_use(call_id: str, rng: random.Random) -> Sequence[Message]:
    function = {"name": "read", "arguments": f'{{"path": "src/{rng.choice(_WORDS)}_{rng.randrange(60)}.py"}}'}
    call = {"id": call_id, "type": "function", "function": function}
    return (
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": " ".join(rng.choices(_WORDS, k=rng.randrange(40, 400)))},
    )
