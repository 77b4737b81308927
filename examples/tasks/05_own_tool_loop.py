"""Task 5: an agent loop of your own with 60 tool calls in 8,000 tokens. A call and its results are one append."""

from openai import OpenAI

from examples.tasks.data import SCHEMAS, run
from minutebook import Conversation

client = OpenAI()

chat = Conversation("agent", store="chat.db", system="You fix code.", max_tokens=8_000)
chat.append("Fix the build.")
while True:
    reply = client.chat.completions.create(model="gpt-4o", tools=SCHEMAS, messages=chat.view(tools=SCHEMAS).messages)
    calls = reply.choices[0].message.tool_calls or []
    chat.append(reply, *({"role": "tool", "tool_call_id": call.id, "content": run(call)} for call in calls))
    if not calls:
        break
