"""What the tasks work on: a support chat of a furniture shop, a photo, and the tools of a build agent."""

from typing import Any, Final

SYSTEM: Final = "You are the support agent of a furniture shop. Be brief."
PHOTO: Final[dict[str, Any]] = {"type": "image_url", "image_url": {"url": "https://example.org/broken-leg.jpg"}}
TOPICS: Final = ("the oak desk", "the floor lamp", "the delivery on Monday", "the invoice", "the missing screws")


def support_chat(turns: int = 200) -> list[dict[str, Any]]:
    """A long chat in the format of chat completions."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for number in range(turns):
        topic = TOPICS[number % len(TOPICS)]
        messages.append({"role": "user", "content": f"Order {48_200 + number}: I have a question about {topic}. " * 4})
        messages.append({"role": "assistant", "content": f"I have looked up {topic}; here is what I found. " * 6})
    return [*messages, {"role": "user", "content": "So when does the desk arrive?"}]


def claude_chat(turns: int = 200) -> list[dict[str, Any]]:
    """A long chat in the format of Anthropic's Messages API, with tool calls."""
    messages: list[dict[str, Any]] = []
    for number in range(turns):
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "find_order", "input": {"number": 48_200 + number}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "shipped on Monday. " * 20}
        messages += [
            {"role": "user", "content": f"Where is order {48_200 + number}?"},
            {"role": "assistant", "content": [{"type": "text", "text": "I look it up."}, call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": "It was shipped on Monday."},
        ]
    return [*messages, {"role": "user", "content": "And the lamp?"}]


def talk(chat: Any) -> None:
    """A long support chat in a conversation: every question is sent with what fits."""
    for message in support_chat(12)[1:]:
        chat.append(message)
        if message["role"] == "user":
            chat.view()


def without_images(message: Any) -> dict[str, Any]:
    """The message with a note in place of each image."""
    if isinstance(message["content"], str):
        return {**message}
    note = {"type": "text", "text": "[image]"}
    return {**message, "content": [note if part["type"] == "image_url" else part for part in message["content"]]}


def read_file(path: str) -> str:
    """Read a file of the project."""
    return f"# {path}\n" + "def build(): ...\n" * 60


def run_tests(target: str) -> str:
    """Run the tests of a target and return their output."""
    return f"{target}: 3 passed, 1 failed\n" * 20


SCHEMAS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, description, argument in (
        ("read_file", "Read a file of the project.", "path"),
        ("run_tests", "Run the tests of a target.", "target"),
    )
]


def run(call: Any) -> str:
    """Run one tool call of a chat completion."""
    return read_file(call.id) if call.function.name == "read_file" else run_tests(call.id)
