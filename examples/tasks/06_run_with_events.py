"""Task 6: the same with the library's agent loop. Every message is stored as it happens, and the events are printed."""

import asyncio

from examples.tasks.data import read_file, run_tests
from minutebook import AsyncConversation, OpenAIAdapter


async def main() -> None:
    chat = AsyncConversation("agent", store="chat.db", system="You fix code.", model="gpt-4o")
    async for event in chat.stream(OpenAIAdapter("gpt-4o"), "Fix the build.", tools=[read_file, run_tests]):
        print(event)


if __name__ == "__main__":
    asyncio.run(main())
