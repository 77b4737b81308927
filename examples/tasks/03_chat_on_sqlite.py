"""Task 3: a chat in the terminal that is stored in SQLite, continues after a restart, and always fits the model."""

from openai import OpenAI

from minutebook import Conversation

client = OpenAI()

with Conversation("order-48213", store="chat.db", system="Be brief.", model="gpt-4o") as chat:
    while line := input("> "):
        chat.append(line)
        chat.append(client.chat.completions.create(model="gpt-4o", messages=chat.view().messages))
        print(chat[-1]["content"])
