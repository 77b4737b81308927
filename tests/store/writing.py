"""A process that writes to a store until it is killed; each line it prints was acknowledged.

`python -m tests.store.writing URL CONVERSATION WRITERS TURNS NAME`: several tasks append turns of one user message, a
call, its two results and an answer. With NAME the user messages carry it, and every append has an idempotency key.
"""

import asyncio
import sys

from minutebook.store.open import open_store
from minutebook.testing.contract_parts import entries_of


def turn(name, writer, number):
    ids = [f"{name}-{writer}-{number}-{at}" for at in range(2)]
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return entries_of(
        [
            {"role": "user", "content": f"{name} {writer} {number}"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            *({"role": "tool", "tool_call_id": one, "content": "found " * 20} for one in ids),
            {"role": "assistant", "content": f"answer to {name} {writer} {number}"},
        ]
    )


def tell(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(url, conversation, writers, count, name):
    async def write(writer):
        for number in range(count):
            key = f"{name} {writer} {number}"
            await store.append(conversation, turn(name, writer, number), idempotency_key=key)
            tell(key)

    async with open_store(url) as store:
        tell("ready")
        await asyncio.gather(*(write(writer) for writer in range(writers)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
