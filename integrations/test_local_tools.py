"""How far a model of 135 million parameters goes with tools: ignored as it comes, called when a template makes it."""

import json

import anthropic
import openai
import pytest

ASKING = [{"role": "user", "content": "Add 2 and 3."}]
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 30}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "Adds two numbers", "parameters": NUMBERS}},
    {"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": CITY}},
]
REQUIRED = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 100}


@pytest.fixture(scope="module")
def client(calling):
    with openai.OpenAI(base_url=calling.base_url, api_key="any", max_retries=0) as client:
        yield client


def asked(client, model, messages=ASKING, **more):
    return client.chat.completions.create(model=model.model, messages=messages, **more)


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_as_it_comes_the_model_never_sees_a_tool(local, openai_client, choice):
    without = asked(openai_client, local, max_tokens=8)
    offered = asked(openai_client, local, max_tokens=8, tools=TOOLS, tool_choice=choice)

    assert offered.usage.prompt_tokens == without.usage.prompt_tokens
    assert offered.choices[0].message.content
    assert offered.choices[0].message.tool_calls is None


def test_a_required_call_names_a_tool_and_fits_its_schema(calling, client):
    answer = asked(client, calling, **REQUIRED).choices[0]

    [call] = answer.message.tool_calls
    assert answer.finish_reason == "tool_calls"
    assert not answer.message.content
    assert call.id
    assert call.function.name in {"add", "weather"}
    arguments = json.loads(call.function.arguments)
    assert set(arguments) == ({"a", "b"} if call.function.name == "add" else {"city"})


def test_a_streamed_call_comes_in_pieces_that_make_a_whole(calling, client):
    pieces = [
        call
        for event in asked(client, calling, stream=True, **REQUIRED)
        for choice in event.choices
        for call in choice.delta.tool_calls or ()
    ]

    assert {piece.index for piece in pieces} == {0}
    assert len(pieces) > 1
    assert "".join(piece.function.name or "" for piece in pieces) in {"add", "weather"}
    assert isinstance(json.loads("".join(piece.function.arguments or "" for piece in pieces)), dict)


def test_a_result_leads_to_an_answer(calling, client):
    said = asked(client, calling, **REQUIRED).choices[0].message
    result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "5"}
    history = [*ASKING, said.model_dump(exclude_none=True), result]
    answer = asked(client, calling, history, tools=TOOLS, tool_choice="none", max_tokens=16)

    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


def test_a_call_that_is_cut_off_says_so_and_is_no_json(calling, client):
    answer = asked(client, calling, **{**REQUIRED, "max_tokens": 12}).choices[0]

    assert answer.finish_reason == "length"
    for call in answer.message.tool_calls or ():
        with pytest.raises(ValueError, match="Expecting"):
            json.loads(call.function.arguments)


def test_where_the_model_may_choose_and_answers_with_text_the_server_fails(calling, client):
    """A limit of this form of calls in llama.cpp, written down so that its end is noticed."""
    with pytest.raises(openai.InternalServerError, match="does not match the expected"):
        asked(client, calling, tools=TOOLS, tool_choice="auto", max_tokens=16)


def test_anthropics_client_gets_a_tool_use_and_an_answer_to_its_result(calling):
    tools = [
        {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
        for f in (tool["function"] for tool in TOOLS)
    ]
    with anthropic.Anthropic(base_url=calling.anthropic_url, api_key="any", max_retries=0) as client:
        made = client.messages.create(
            model=calling.model,
            messages=ASKING,
            tools=tools,
            tool_choice={"type": "any"},
            stop_sequences=[", <function"],  # this server does not know disable_parallel_tool_use
            max_tokens=100,
        )
        calls = [block for block in made.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": "5"} for block in calls]
        history = [
            *ASKING,
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in calls]},
            {"role": "user", "content": results},
        ]
        answer = client.messages.create(model=calling.model, messages=history, max_tokens=16)

    assert made.stop_reason == "tool_use"
    assert {block.name for block in calls} <= {"add", "weather"}
    assert all(isinstance(block.input, dict) for block in calls)
    assert [block.type for block in answer.content] == ["text"]
