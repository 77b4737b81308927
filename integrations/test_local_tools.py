"""Tool calls of a model of 135 million parameters: none with its own template, valid ones with `CALLING_TEMPLATE`."""

import json

import anthropic
import openai
import pytest

QUESTION = [{"role": "user", "content": "Add 2 and 3."}]
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "Adds two numbers", "parameters": NUMBERS}},
    {"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": CITY}},
]
REQUIRED = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 100}


@pytest.fixture(scope="module")
def client(tool_model):
    with openai.OpenAI(base_url=tool_model.base_url, api_key="any", max_retries=0) as client:
        yield client


def ask(client, model, messages=QUESTION, **options):
    return client.chat.completions.create(model=model.model, messages=messages, **options)


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_with_its_own_template_the_model_does_not_see_tools(local, openai_client, choice):
    without_tools = ask(openai_client, local, max_tokens=8)
    with_tools = ask(openai_client, local, max_tokens=8, tools=TOOLS, tool_choice=choice)

    assert with_tools.usage.prompt_tokens == without_tools.usage.prompt_tokens
    assert with_tools.choices[0].message.content
    assert with_tools.choices[0].message.tool_calls is None


def test_a_required_call_names_a_tool_and_matches_its_schema(tool_model, client):
    answer = ask(client, tool_model, **REQUIRED).choices[0]

    [call] = answer.message.tool_calls
    assert answer.finish_reason == "tool_calls"
    assert not answer.message.content
    assert call.id
    assert call.function.name in {"add", "weather"}
    arguments = json.loads(call.function.arguments)
    assert set(arguments) == ({"a", "b"} if call.function.name == "add" else {"city"})


def test_a_streamed_call_is_sent_in_pieces(tool_model, client):
    pieces = [
        call
        for event in ask(client, tool_model, stream=True, **REQUIRED)
        for choice in event.choices
        for call in choice.delta.tool_calls or ()
    ]

    assert {piece.index for piece in pieces} == {0}
    assert len(pieces) > 1
    assert "".join(piece.function.name or "" for piece in pieces) in {"add", "weather"}
    assert isinstance(json.loads("".join(piece.function.arguments or "" for piece in pieces)), dict)


def test_after_a_result_the_model_answers(tool_model, client):
    message = ask(client, tool_model, **REQUIRED).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "5"}
    history = [*QUESTION, message.model_dump(exclude_none=True), result]
    answer = ask(client, tool_model, history, tools=TOOLS, tool_choice="none", max_tokens=16)

    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


def test_a_truncated_call_has_the_finish_reason_length_and_invalid_json(tool_model, client):
    answer = ask(client, tool_model, **{**REQUIRED, "max_tokens": 12}).choices[0]

    assert answer.finish_reason == "length"
    for call in answer.message.tool_calls or ():
        with pytest.raises(ValueError, match="Expecting"):
            json.loads(call.function.arguments)


def test_with_tool_choice_auto_the_server_fails_on_a_text_answer(tool_model, client):
    """A limitation of this call format in llama.cpp; the test fails when it is fixed."""
    with pytest.raises(openai.InternalServerError, match="does not match the expected"):
        ask(client, tool_model, tools=TOOLS, tool_choice="auto", max_tokens=16)


def test_anthropics_client_gets_a_tool_use_and_an_answer_to_its_result(tool_model):
    tools = [
        {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
        for f in (tool["function"] for tool in TOOLS)
    ]
    with anthropic.Anthropic(base_url=tool_model.anthropic_url, api_key="any", max_retries=0) as client:
        response = client.messages.create(
            model=tool_model.model,
            messages=QUESTION,
            tools=tools,
            tool_choice={"type": "any"},
            stop_sequences=[", <function"],  # this server does not know disable_parallel_tool_use
            max_tokens=100,
        )
        calls = [block for block in response.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": "5"} for block in calls]
        history = [
            *QUESTION,
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in calls]},
            {"role": "user", "content": results},
        ]
        answer = client.messages.create(model=tool_model.model, messages=history, max_tokens=16)

    assert response.stop_reason == "tool_use"
    assert {block.name for block in calls} <= {"add", "weather"}
    assert all(isinstance(block.input, dict) for block in calls)
    assert [block.type for block in answer.content] == ["text"]
