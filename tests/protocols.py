"""Hypothesis strategies: valid conversations in the formats of Anthropic's Messages API and of the Responses API."""

from hypothesis import strategies as st

from minutebook.record.shapes import encodable_copy
from minutebook.testing.provider.anthropic import thinking_signature
from tests.strategies import any_text

texts = any_text.filter(lambda text: text.strip())
mark = st.fixed_dictionaries({}, optional={"cache_control": st.just({"type": "ephemeral"})})
base64_source = st.just({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="})
arguments = st.sampled_from([{}, {"path": "a.py"}, {"path": None, "limit": 1.0, "nested": {"x": [1, None]}}])


def with_mark(block):
    return st.builds(lambda fields, extra: {**fields, **extra}, block, mark)


text_blocks = with_mark(texts.map(lambda text: {"type": "text", "text": text}))
image_blocks = with_mark(
    st.one_of(
        base64_source,
        st.just({"type": "url", "url": "https://example.com/a.png"}),
        st.just({"type": "file", "file_id": "file_1"}),
    ).map(lambda source: {"type": "image", "source": source})
)
document_sources = st.one_of(
    st.just({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}),
    st.just({"type": "text", "media_type": "text/plain", "data": "The contract."}),
    st.just({"type": "url", "url": "https://example.com/a.pdf"}),
    st.just({"type": "content", "content": [{"type": "text", "text": "One."}]}),
)
document_fields = st.fixed_dictionaries(
    {}, optional={"title": st.just("Contract"), "context": st.just("Signed."), "citations": st.just({"enabled": True})}
)
document_blocks = with_mark(
    st.builds(
        lambda source, fields: {"type": "document", "source": source, **fields}, document_sources, document_fields
    )
)
search_results = st.just(
    {"type": "search_result", "source": "a.md", "title": "A", "content": [{"type": "text", "text": "Found."}]}
)
user_blocks = st.one_of(text_blocks, text_blocks, image_blocks, document_blocks, search_results)


@st.composite
def tool_results(draw, call_id):
    block = {"type": "tool_result", "tool_use_id": call_id, **draw(mark)}
    content = draw(
        st.one_of(st.none(), any_text, st.lists(st.one_of(text_blocks, image_blocks, search_results), max_size=2))
    )
    if content is not None:
        block["content"] = content
    if draw(st.booleans()):
        block["is_error"] = draw(st.booleans())
    return block


server_results = st.sampled_from([[], {"type": "web_search_tool_result_error", "error_code": "unavailable"}])


@st.composite
def answers(draw, calls=()):
    """The blocks of an assistant message. They end with the calls."""
    blocks = []
    if draw(st.booleans()):
        thought = encodable_copy(draw(texts))  # a signed text has no lone surrogate
        blocks.append({"type": "thinking", "thinking": thought, "signature": thinking_signature(thought, "prompt")})
    if draw(st.sampled_from([False, False, True])):
        blocks += [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "order 17"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": draw(server_results)},
        ]
    if not calls or draw(st.booleans()):
        for block in draw(st.lists(text_blocks, min_size=1, max_size=2)):
            cited = draw(st.sampled_from([{}, {"citations": [{"type": "char_location", "cited_text": "x"}]}]))
            blocks.append({**block, **cited})
    return blocks + [
        {"type": "tool_use", "id": call_id, "name": draw(st.sampled_from(["read", "run"])), "input": draw(arguments)}
        | draw(mark)
        for call_id in calls
    ]


@st.composite
def anthropic_conversations(draw, *, max_turns=8):
    """Alternating messages that end with the user's: each call is answered in the next message."""
    messages = [{"role": "user", "content": draw(st.one_of(texts, st.lists(user_blocks, min_size=1, max_size=3)))}]
    for turn in range(draw(st.integers(0, max_turns))):
        calls = [f"toolu_{turn}_{number}" for number in range(draw(st.sampled_from([0, 1, 1, 2, 3])))]
        plain = not calls and draw(st.booleans())
        messages.append({"role": "assistant", "content": draw(texts) if plain else draw(answers(calls))})
        results = [draw(tool_results(call_id)) for call_id in draw(st.permutations(calls))]
        rest = draw(st.lists(user_blocks, min_size=0 if calls else 1, max_size=2))
        is_text = not calls and draw(st.booleans())
        messages.append({"role": "user", "content": draw(texts) if is_text else results + rest})
    return messages


@st.composite
def conversations_with_neighbours(draw):
    """Anthropic conversations with adjacent messages of one role, and with system messages within."""
    messages = []
    for message in draw(anthropic_conversations()):
        messages.append(message)
        has_calls = any(block["type"] == "tool_use" for block in message["content"] if isinstance(block, dict))
        kind = draw(st.sampled_from(["", "user", "system"] if message["role"] == "user" else ["", "assistant"]))
        if kind and not has_calls:
            messages.append(
                {"role": kind, "content": draw(st.one_of(texts, st.lists(text_blocks, min_size=1, max_size=2)))}
            )
    block = {"type": "search_result", "source": "a.md", "title": "A", "content": [{"type": "text", "text": "Found."}]}
    return [*messages, {"role": "user", "content": [block]}]  # without such a block it looks like a chat


input_parts = st.one_of(
    any_text.map(lambda text: {"type": "input_text", "text": text}),
    any_text.map(lambda text: {"type": "input_text", "text": text}),
    st.just({"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"}),
    st.just({"type": "input_image", "file_id": "file_1", "detail": "auto"}),
    st.just({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}),
    st.just({"type": "input_file", "file_url": "https://example.com/a.pdf"}),
)
input_content = st.one_of(any_text, st.lists(input_parts, min_size=1, max_size=3))
output_parts = st.one_of(
    any_text.map(lambda text: {"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
    any_text.map(lambda text: {"type": "output_text", "text": text, "annotations": [{"type": "file_citation"}]}),
    any_text.map(lambda text: {"type": "refusal", "refusal": text}),
)
item_type = st.sampled_from([{}, {"type": "message"}])


@st.composite
def output_items(draw, turn, calls):
    """What a model answers: reasoning, hosted tools, text and calls, in this order."""
    items = []
    if draw(st.booleans()):
        items.append({"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": "gAAAA"})
    if draw(st.sampled_from([False, False, True])):
        items.append(
            {"type": "web_search_call", "id": f"ws_{turn}", "status": "completed", "action": {"type": "search"}}
        )
    if not calls or draw(st.booleans()):
        content = draw(st.lists(output_parts, min_size=1, max_size=2))
        fields = {"id": f"msg_{turn}", "status": "completed", "type": "message"}
        items.append({**fields, "role": "assistant", "content": content})
    for call_id in calls:
        if draw(st.sampled_from([False, False, True])):
            items.append({"type": "custom_tool_call", "call_id": call_id, "name": "run", "input": draw(any_text)})
        else:
            ids = draw(st.sampled_from([{}, {"id": f"fc_{call_id}", "status": "completed"}]))
            items.append(
                {"type": "function_call", "call_id": call_id, "name": "read", "arguments": '{"path": 1}', **ids}
            )
    return items


@st.composite
def responses_conversations(draw, *, max_turns=8):
    """Items that end with the user's or with the outputs of calls."""
    items = [{"role": draw(st.sampled_from(["system", "developer"])), "content": draw(any_text)}] * draw(
        st.integers(0, 1)
    )
    items.append({**draw(item_type), "role": "user", "content": draw(input_content)})
    for turn in range(draw(st.integers(0, max_turns))):
        calls = [f"call_{turn}_{number}" for number in range(draw(st.sampled_from([0, 1, 1, 2, 3])))]
        if not calls and draw(st.booleans()):
            items.append({"role": "assistant", "content": draw(any_text)})
        else:
            answer = draw(output_items(turn, calls))
            items += answer
            for call_id in draw(st.permutations(calls)):
                kind = next(item["type"] for item in answer if item.get("call_id") == call_id)
                items.append({"type": f"{kind}_output", "call_id": call_id, "output": draw(input_content)})
        if not calls or draw(st.booleans()):
            items.append({**draw(item_type), "role": "user", "content": draw(input_content)})
    return items


def has_blocks(messages):
    """Whether some content block of a conversation is not a plain text with or without a cache mark."""
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return any(block["type"] != "text" or "citations" in block for block in blocks)
