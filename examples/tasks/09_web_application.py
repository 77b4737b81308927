"""Task 9: many users on PostgreSQL, streamed answers, conversations expire after 30 days, and a user can be erased."""

import os
from datetime import timedelta

from fastapi import FastAPI
from fastapi.sse import EventSourceResponse

from minutebook import AsyncConversation, OpenAIAdapter, open_store

app = FastAPI()
adapter = OpenAIAdapter("gpt-4o")

store = open_store(os.environ["DATABASE_URL"], expire_after=timedelta(days=30))


@app.post("/chat/{user}")
async def answer(user: str, text: str) -> EventSourceResponse:
    chat = AsyncConversation(recipient=user, store=store, model="gpt-4o")
    return EventSourceResponse(f"data: {event}\n\n" async for event in chat.stream(adapter, text))


@app.delete("/users/{user}")
async def erase(user: str) -> dict[str, int]:
    return {"conversations": (await store.erase(recipient=user)).conversations}
