"""Long conversations for measurements: a recorded one if there is a corpus, else a generated one."""

import random
from dataclasses import dataclass
from typing import Any

from bench.corpus import conversations, folder
from minutebook import Message

LONG = 1_000
WORDS = (
    *("parser", "token", "node", "index", "table", "caller", "value", "cache", "request", "connection", "retry"),
    *("reads", "returns", "changes", "waits", "before", "after", "because", "unless", "every", "another", "the", "a"),
)


@dataclass(frozen=True)
class Conversation:
    """A conversation for measurements, and its source."""

    source: str
    messages: list[Message]

    @property
    def calls(self) -> list[int]:
        """The indexes of the messages before which the model was called."""
        from minutebook.lab.sessions import call_indexes  # an older tree that `bench.probe` measures has none

        return list(call_indexes(self.messages))


def long_conversation() -> Conversation:
    """The longest recorded agent session, or a generated one of a thousand messages if there is no corpus."""
    if folder() is None:
        return Conversation("generated: no corpus found", coding_session(LONG))
    from minutebook.lab.peers import plain

    longest = max(conversations("coding_agents"), key=lambda recorded: len(recorded["messages"]))
    messages = [plain(message) for message in longest["messages"]]
    return Conversation(f"recorded: {longest['id']} of coding_agents", messages)


def coding_session(length: int, seed: int = 7) -> list[Message]:
    """A generated session of a coding agent with this number of messages: requests, steps of one to three calls, answers."""
    draw = random.Random(seed)
    messages: list[Message] = [{"role": "system", "content": _prose(draw, 300)}]
    while len(messages) < length:
        messages.append({"role": "user", "content": _prose(draw, draw.randint(10, 80))})
        for _ in range(draw.randint(2, 12)):
            messages += _step(draw, len(messages))
        messages.append({"role": "assistant", "content": _prose(draw, draw.randint(30, 120))})
    return messages[:length]


def _step(draw: random.Random, position: int) -> list[Message]:
    names = [draw.choice(("read", "grep", "bash", "edit")) for _ in range(draw.choice((1, 1, 1, 1, 2, 3)))]
    calls: list[dict[str, Any]] = [
        {
            "id": f"call_{position}_{number}",
            "type": "function",
            "function": {"name": name, "arguments": f'{{"path": "src/{draw.choice(WORDS)}_{draw.randint(1, 99)}.py"}}'},
        }
        for number, name in enumerate(names)
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": _listing(draw, draw.randint(2, 40))} for call in calls
    ]
    return [{"role": "assistant", "content": _prose(draw, draw.randint(5, 40)), "tool_calls": calls}, *results]


def _prose(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(WORDS, k=words)).capitalize() + "."


def _listing(draw: random.Random, lines: int) -> str:
    return "\n".join(
        f"{draw.randint(1, 900):4}  {draw.choice(WORDS)}_{draw.choice(WORDS)} = {draw.choice(WORDS)}({draw.randint(0, 9999)})"
        for _ in range(lines)
    )
