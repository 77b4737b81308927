"""A user's program: type checkers accept views as arguments of the official clients."""

from anthropic import Anthropic
from openai import OpenAI

from minutebook import view_of
from minutebook.history import View


def call_clients(view: View) -> str:
    chat = OpenAI().chat.completions.create(model="gpt-4o", messages=view.messages)
    also_chat = OpenAI().chat.completions.create(model="gpt-4o", **view.openai())
    message = Anthropic().messages.create(model="claude-sonnet-4-5", max_tokens=1024, **view.anthropic())
    also_message = Anthropic().messages.create(model="claude-sonnet-4-5", max_tokens=1024, messages=view.messages)
    response = OpenAI().responses.create(model="gpt-4o", **view.responses())
    streamed = OpenAI().chat.completions.create(model="gpt-4o", messages=view.messages, stream=True)
    first = next(iter(streamed)).choices[0].delta.content
    return f"{chat.choices[0].message.content}{also_chat}{message.content}{also_message.id}{response}{first}"


def view_for_anthropic() -> View:
    return view_of([{"role": "user", "content": "Hello."}], 8_000, system="Be brief.", provider="anthropic")
