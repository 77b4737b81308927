"""Hypothesis strategies: conversations that a provider accepts by construction, and broken ones."""

from typing import Any

from hypothesis import strategies as st

Chat = list[dict[str, Any]]

words = st.sampled_from(
    [
        "ok",
        "fix src/app/main.py",
        "order 48213",
        "日本語のテキスト",
        "приём",
        "🙂🙂",
        "a" * 700,
        "",
        " ",
        "\n",
        "<|endoftext|>",
    ]
)
any_text = st.one_of(
    words,
    words,
    st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40),
    st.builds(lambda word, times: (word + " ") * times, words, st.integers(1, 300)),
)
image = st.just({"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}})
text_part = st.builds(lambda text: {"type": "text", "text": text}, any_text)
contents = st.one_of(any_text, any_text, any_text, st.lists(text_part, min_size=1, max_size=3))
user_contents = st.one_of(contents, st.lists(st.one_of(text_part, image), min_size=1, max_size=3))
extras = st.fixed_dictionaries({}, optional={"cache_control": st.just({"type": "ephemeral"}), "x": st.integers(0, 3)})


@st.composite
def exchanges(draw: st.DrawFn, number: int, names: tuple[str, ...] = ("read", "search", "run")) -> Chat:
    """An assistant message with calls, and all of its results in some order."""
    count = draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
    calls = [
        {
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": draw(st.sampled_from(names)), "arguments": '{"path": "src/app/main.py"}'},
        }
        for index in range(count)
    ]
    call_message = {"role": "assistant", "content": draw(st.one_of(st.none(), any_text)), "tool_calls": calls}
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": draw(contents), **draw(extras)}
        for call in draw(st.permutations(calls))
    ]
    return [call_message, *results]


@st.composite
def conversations(draw: st.DrawFn, *, user_first: bool = False, max_steps: int = 14) -> Chat:
    """A conversation with every call answered: with or without system messages, user messages, tools, anything."""
    chat: Chat = [
        {"role": draw(st.sampled_from(["system", "developer"])), "content": draw(any_text)}
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2])))
    ]
    if user_first:
        chat.append({"role": "user", "content": draw(user_contents)})
    for number in range(draw(st.integers(0, max_steps))):
        kind = draw(st.sampled_from(["user", "user", "assistant", "exchange", "exchange", "exchange", "system"]))
        if kind == "exchange":
            chat += draw(exchanges(number))
        elif kind == "system":
            chat.append({"role": "system", "content": draw(words)})
        else:
            chat.append({"role": kind, "content": draw(user_contents if kind == "user" else contents), **draw(extras)})
    return chat


foreign_parts = st.sampled_from(
    [
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file_1"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "JVBERi0="}},
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,SGVsbG8"}},
        {"type": "file", "file": {"filename": "a.zip", "file_data": "data:application/zip;base64,UEsDBA=="}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
)


@st.composite
def foreign_conversations(draw: st.DrawFn) -> Chat:
    """Chat conversations with what other APIs do not have: audio, files, custom and deprecated calls, ids of any form."""
    chat: Chat = [{"role": "user", "content": draw(any_text)}]
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["function", "custom", "odd id", "parts", "answer"]))
        if kind == "function":
            call = {"name": draw(st.sampled_from(["read", "run"])), "arguments": '{"path": 1}'}
            chat.append({"role": "assistant", "content": draw(st.one_of(st.none(), any_text)), "function_call": call})
            chat.append({"role": "function", "name": call["name"], "content": draw(any_text)})
        elif kind in {"custom", "odd id"}:
            call_id = f"call_{number}" if kind == "custom" else draw(st.sampled_from(["a.b", "a b", "a_b", "", "ü:1"]))
            call_id = f"{call_id}{number}"
            function = {"name": "read", "arguments": "{}"}
            call = {"id": call_id, "type": "function", "function": function}
            if kind == "custom":
                call = {"id": call_id, "type": "custom", "custom": {"name": "run", "input": draw(any_text)}}
            chat.append({"role": "assistant", "content": None, "tool_calls": [call]})
            chat.append({"role": "tool", "tool_call_id": call_id, "content": draw(any_text)})
        else:
            role = "user" if kind == "parts" else "assistant"
            parts = draw(st.lists(st.one_of(foreign_parts, text_part), min_size=1, max_size=3))
            chat.append({"role": role, "content": parts})
    return [*chat, {"role": "user", "content": "Go on."}]


@st.composite
def in_flight(draw: st.DrawFn) -> Chat:
    """A conversation that may end before all results have arrived."""
    chat = draw(conversations())
    if draw(st.booleans()):
        chat += draw(exchanges(999))
        del chat[len(chat) - draw(st.integers(0, len(chat) - _last_call(chat) - 1)) :]
    return chat


def _last_call(chat: Chat) -> int:
    return max(index for index, message in enumerate(chat) if message.get("tool_calls"))


def indexes_of_role(chat: Chat, role: str) -> list[int]:
    return [index for index, message in enumerate(chat) if message["role"] == role]


BREAKAGES = (
    "lost result",
    "lost call",
    "double result",
    "user inside",
    "late result",
    "early result",
    "odd role",
    "no id",
)


@st.composite
def broken(draw: st.DrawFn) -> Chat:
    """A conversation with one to three kinds of damage."""
    chat = draw(conversations(user_first=True))
    for _ in range(draw(st.integers(1, 3))):
        break_once(chat, draw(st.sampled_from(BREAKAGES)), lambda n: draw(st.integers(0, n)))
    return chat


def break_once(chat: Chat, breakage: str, pick: Any) -> bool:
    """Damage a conversation in place; return False if this kind of damage is not possible.

    `pick(n)` selects a number from 0 to n.
    """
    results = indexes_of_role(chat, "tool")
    if breakage == "odd role":
        chat.insert(pick(len(chat)), {"role": "narrator", "content": "meanwhile"})
        return True
    if not results:
        return False
    index = results[pick(len(results) - 1)]
    if breakage == "lost result":
        del chat[index]
    elif breakage == "lost call":
        calls = [call_index for call_index in indexes_of_role(chat, "assistant") if chat[call_index].get("tool_calls")]
        if not calls:
            return False
        del chat[calls[pick(len(calls) - 1)]]
    elif breakage == "double result":
        chat.insert(index + 1 + pick(len(chat) - index - 1), dict(chat[index]))
    elif breakage == "user inside":
        chat.insert(index, {"role": "user", "content": "wait"})
    elif breakage == "late result":
        chat.insert(index + pick(len(chat) - index - 1), chat.pop(index))
    elif breakage == "early result":
        chat.insert(pick(index), chat.pop(index))
    elif breakage == "no id":
        chat[index] = {key: value for key, value in chat[index].items() if key != "tool_call_id"}
    return True
