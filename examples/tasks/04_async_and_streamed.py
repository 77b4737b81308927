"""Task 4: the same with the async client, and the answer is printed while it is written."""

import asyncio

from openai import AsyncOpenAI

from minutebook import AsyncConversation

client = AsyncOpenAI()


async def main() -> None:
    async with AsyncConversation("order-48213", store="chat.db", system="Be brief.", model="gpt-4o") as chat:
        await chat.append("Where is my desk?")
        async with client.chat.completions.stream(model="gpt-4o", **(await chat.view()).openai()) as stream:
            async for event in stream:
                if event.type == "content.delta":
                    print(event.delta, end="")
            await chat.append(await stream.get_final_completion())


if __name__ == "__main__":
    asyncio.run(main())
