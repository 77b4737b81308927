"""Both providers with their official clients: sync, async and streaming, against a real server."""

import asyncio
import sys
from contextlib import aclosing

import openai
import pytest

from minutebook import AnthropicAdapter, OpenAIAdapter, Session, SlidingWindowManager
from minutebook.agent import (
    AnswerRestarted,
    ModelReply,
    ModelRequest,
    RetryPolicy,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    ToolAnswered,
    ToolCalled,
)
from minutebook.errors import ContextOverflow, MissingExtra, ProviderFailed, RetriesExhausted
from minutebook.testing import (
    ANTHROPIC_CACHE,
    LoopbackProvider,
    ScriptedModel,
    call,
    cut,
    ends,
    fail,
    overflow,
    say,
    think,
)
from minutebook.testing.provider.anthropic import blocks_of
from tests.agent.parts import (
    ADAPTERS,
    INSTANT_RETRIES,
    Verdict,
    adapter_for,
    assert_coherent,
    no_sleep,
    prompt_of,
    roles_and_texts,
)

KINDS = sorted(ADAPTERS)
MODES = ["sync", "async", "stream"]


def evaluate(kind, mode, model, prompt=None, *, session=None, provider_options=None, adapter_options=None, **options):
    """The response, the events if there are any, and the provider."""
    session = session or Session()
    events = []

    async def run(adapter):
        async with adapter:
            if mode == "async":
                return await adapter.evaluate(prompt or prompt_of(), session=session, **options)
            events.extend([event async for event in adapter.stream(prompt or prompt_of(), session=session, **options)])
            return events[-1].response

    with LoopbackProvider(model, **(provider_options or {})) as provider:
        adapter = adapter_for(provider, kind, **(adapter_options or {}))
        if mode == "sync":
            with adapter:
                response = adapter.evaluate_sync(prompt or prompt_of(), session=session, **options)
        else:
            response = asyncio.run(run(adapter))
    return response, events, provider, session


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_run_through_the_official_client(kind, mode):
    model = ScriptedModel(
        say("Let me see. ") + call("read", path="a.py") + call("fetch", path="b"),
        call("read", path="ünïcødé.py"),
        say("All fine."),
    )

    response, _, provider, session = evaluate(kind, mode, model)

    assert provider.problems == []
    assert response.text == "All fine."
    assert response.usage.input_tokens > 0
    assert response.usage.output_tokens > 0
    assert [role for role, _ in roles_and_texts(session)] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert ("tool", "The content of ünïcødé.py.") in roles_and_texts(session)
    assert all(bool(request.body.get("stream")) == (mode == "stream") for request in provider.requests)
    assert_coherent(session)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_yields_deltas_tool_calls_and_the_end(kind):
    model = ScriptedModel(think("Hm.") + say("Let me see.") + call("read", path="a.py"), say("All is fine."))

    response, events, _, _ = evaluate(kind, "stream", model)

    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "Hm."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me see.All is fine."
    assert [event.call.name for event in events if isinstance(event, ToolCalled)] == ["read"]
    assert [event.content for event in events if isinstance(event, ToolAnswered)] == ["The content of a.py."]
    assert events[-1] == RunFinished(response)


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_and_whole_answers_give_the_same_record(kind):
    def model():
        return ScriptedModel(
            think("Hm.") + say("So. ") + call("read", '{"path": "a"}') + call("fetch", path="b"), say("Done.")
        )

    texts = [roles_and_texts(evaluate(kind, mode, model())[3]) for mode in MODES]

    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("kind", KINDS)
def test_closing_a_stream_early_cancels_the_run_and_completes_the_record(kind):
    session = Session()

    async def leave(provider):
        async with adapter_for(provider, kind) as adapter:
            async with aclosing(adapter.stream(prompt_of(), session=session)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break

    with LoopbackProvider(ScriptedModel(say("One two three four."))) as provider:
        asyncio.run(leave(provider))

    assert [role for role, _ in roles_and_texts(session)] == ["user", "assistant"]
    assert "One two three four.".startswith(roles_and_texts(session)[1][1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_request_is_retried_unchanged(kind, mode):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)
        await no_sleep(seconds)

    model = ScriptedModel(fail(429, retry_after=2), fail(503), cut(), say("At last."))
    retry_policy = RetryPolicy(sleep=sleep, draw=lambda: 0.5, first_wait_seconds=1.0)

    response, _, provider, _ = evaluate(kind, mode, model, adapter_options={"retry_policy": retry_policy})

    assert response.text == "At last."
    assert waits == [2.0, 1.0, 2.0]
    assert len({str(request.body) for request in provider.requests}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_answer_is_requested_again_with_an_event(kind):
    model = ScriptedModel(say("One two three four five six seven.") + cut(after_chunks=5), say("Whole."))

    response, events, _, session = evaluate(kind, "stream", model)

    assert response.text == "Whole."
    restarted = next(index for index, event in enumerate(events) if isinstance(event, AnswerRestarted))
    assert any(isinstance(event, TextDelta) for event in events[:restarted])
    assert roles_and_texts(session)[-1] == ("assistant", "Whole.")
    assert len(roles_and_texts(session)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_middle_of_a_stream_is_retried(kind):
    model = ScriptedModel(say("One two three.") + fail(529), say("Whole."))

    response, _, _, _ = evaluate(kind, "stream", model)

    assert response.text == "Whole."


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_key_is_not_retried(kind, mode):
    with pytest.raises(ProviderFailed) as caught:
        evaluate(kind, mode, ScriptedModel(), provider_options={"api_key": "another"})

    assert caught.value.status == 401
    assert not isinstance(caught.value, RetriesExhausted)


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_that_keeps_failing_is_given_up(kind):
    with pytest.raises(RetriesExhausted, match="6 attempts") as caught:
        evaluate(kind, "async", ScriptedModel(otherwise=fail(500, "out of order")))

    assert caught.value.status == 500


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_connection_is_retried(kind, mode):
    provider = LoopbackProvider(ScriptedModel())
    provider.close()
    session = Session()
    adapter_class, url = ADAPTERS[kind]

    with adapter_class("gpt-4o", base_url=getattr(provider, url), api_key="x", retry_policy=INSTANT_RETRIES) as adapter:
        with pytest.raises(RetriesExhausted) as caught:
            adapter.evaluate_sync(prompt_of(), session=session)

    assert caught.value.status is None
    assert [role for role, _ in roles_and_texts(session)] == ["user"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_structured_answer_works_with_every_provider(kind):
    model = ScriptedModel(say('{"good": false, "reason": "Typo."}'))

    response, _, _, _ = evaluate(kind, "async", model, prompt_of(output=Verdict))

    assert response.output == Verdict(good=False, reason="Typo.")


def test_anthropic_gets_the_schema_with_native_output():
    model = ScriptedModel(say('{"good": false, "reason": "Typo."}'))

    _, _, provider, _ = evaluate(
        "anthropic", "async", model, prompt_of(output=Verdict), adapter_options={"native_output": True}
    )

    assert provider.requests[0].body["output_config"]["format"]["type"] == "json_schema"
    assert "JSON Schema" not in provider.requests[0].last_text


def test_strict_tools_are_sent_as_strict():
    _, _, provider, _ = evaluate("openai", "async", ScriptedModel("Hi."), adapter_options={"strict_tools": True})

    assert all(spec["function"]["strict"] for spec in provider.requests[0].body["tools"])


@pytest.mark.parametrize("kind", KINDS)
def test_options_are_in_every_request(kind):
    _, _, provider, _ = evaluate(
        kind, "async", ScriptedModel(call("read", path="a"), "Hi."), adapter_options={"options": {"temperature": 0.5}}
    )

    assert [request.body["temperature"] for request in provider.requests] == [0.5, 0.5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_answer_has_the_finish_reason_length(kind):
    response, _, _, _ = evaluate(kind, "async", ScriptedModel(say("And then") + ends("length")))

    assert response.finish == "length"


def test_cached_tokens_are_part_of_the_input_tokens():
    model = ScriptedModel(*[call("read", path="a" * 400)] * 4, say("Done."))

    response, _, _, _ = evaluate(
        "anthropic",
        "async",
        model,
        provider_options={"cache": ANTHROPIC_CACHE},
        prompt=prompt_of(text="Look. " * 1200),
    )

    assert 0 < response.usage.cached_tokens < response.usage.input_tokens
    assert response.usage.cache_write_tokens > 0


@pytest.mark.parametrize("bound", [False, True], ids=["signed", "bound-to-prompt"])
@pytest.mark.parametrize("mode", MODES)
def test_signed_thinking_is_sent_back_unchanged_or_left_out(mode, bound):
    steps = [think(f"Thought {n}.") + say("So. ") + call("read", path=f"{n}.py") for n in range(8)]
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}}

    _, _, provider, _ = evaluate(
        "anthropic",
        mode,
        ScriptedModel(*steps, say("Done.")),
        provider_options={"preserved_thinking": bound},
        adapter_options={"options": options},
        history_manager=SlidingWindowManager(4),
    )

    assert provider.problems == []
    kinds = [
        [block["type"] for message in request.messages for block in blocks_of(message)] for request in provider.requests
    ]
    assert "thinking" in kinds[1]


def test_thinking_is_sent_back_while_nothing_before_it_changed():
    steps = [think(f"Thought {n}.") + call("read", path=f"{n}.py") for n in range(3)]

    _, _, provider, _ = evaluate(
        "anthropic", "async", ScriptedModel(*steps, say("Done.")), provider_options={"preserved_thinking": True}
    )

    thoughts = [
        block["thinking"]
        for message in provider.requests[-1].messages
        for block in blocks_of(message)
        if block["type"] == "thinking"
    ]
    assert thoughts == ["Thought 0.", "Thought 1.", "Thought 2."]


def test_messages_of_one_provider_can_be_sent_to_the_other():
    session = Session()
    response, _, _, _ = evaluate(
        "anthropic",
        "async",
        ScriptedModel(think("Hm.") + call("read", path="a"), say("Fine.")),
        session=session,
        request="Hi",
    )
    second, _, provider, _ = evaluate(
        "openai",
        "async",
        ScriptedModel(say("Also fine.")),
        session=session,
        request="And now?",
        conversation=response.conversation,
    )

    assert provider.problems == []
    assert second.text == "Also fine."
    assert "anthropic" not in str(provider.requests[0].body)


@pytest.mark.parametrize("kind", KINDS)
def test_the_context_overflow_of_each_provider_is_recognised(kind):
    async def ask(provider):
        async with adapter_for(provider, kind) as adapter:
            await adapter.ask(ModelRequest([{"role": "user", "content": "Hi"}]))

    with LoopbackProvider(ScriptedModel(overflow(9031, 8192))) as provider, pytest.raises(ContextOverflow) as caught:
        asyncio.run(ask(provider))

    assert (caught.value.tokens, caught.value.maximum) == (9031, 8192)


def test_a_given_client_is_used_and_not_closed():
    async def use_client(provider):
        client = openai.AsyncOpenAI(base_url=provider.base_url, api_key="any", default_headers={"x-mine": "yes"})
        async with OpenAIAdapter("gpt-4o", client=client) as adapter:
            await adapter.evaluate(prompt_of(), session=Session())
        assert not client.is_closed()
        await client.close()

    with LoopbackProvider(ScriptedModel("Hi.")) as provider:
        asyncio.run(use_client(provider))

    assert provider.requests[0].headers["x-mine"] == "yes"


def test_one_adapter_serves_several_event_loops():
    with LoopbackProvider(ScriptedModel("One.", "Two.", "Three.")) as provider, adapter_for(provider) as adapter:

        async def once():
            try:
                return (await adapter.evaluate(prompt_of(), session=Session())).text
            finally:
                await adapter.aclose()

        assert [asyncio.run(once()), asyncio.run(once())] == ["One.", "Two."]
        assert adapter.evaluate_sync(prompt_of(), session=Session()).text == "Three."


@pytest.mark.parametrize(
    ("adapter_class", "module"), [(OpenAIAdapter, "openai"), (AnthropicAdapter, "anthropic")], ids=KINDS[::-1]
)
def test_the_error_names_the_client_that_is_not_installed(monkeypatch, adapter_class, module):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtra, match=rf"pip install 'minutebook\[{module}\]'"):
        adapter_class("gpt-4o")


@pytest.mark.parametrize("kind", KINDS)
def test_the_clients_do_not_retry_by_themselves(kind):
    with LoopbackProvider(ScriptedModel(fail(500), "Never asked.")) as provider:
        with (
            adapter_for(provider, kind, retry_policy=RetryPolicy(attempts=1)) as adapter,
            pytest.raises(ProviderFailed),
        ):
            adapter.evaluate_sync(prompt_of(), session=Session())

        assert len(provider.requests) == 1


def test_of_several_choices_in_a_stream_the_first_is_the_answer():
    chunks = [{"choices": [{"index": index, "delta": {"content": text}}]} for index, text in ((0, "yes"), (1, "no"))]
    chunks.append({"id": "a", "model": "m", "choices": [{"index": None, "delta": {}, "finish_reason": "stop"}]})
    deltas = []

    class Chunks(OpenAIAdapter):
        async def _chunks(self, arguments):
            for chunk in chunks:
                yield chunk

    request = ModelRequest([{"role": "user", "content": "Is it?"}])
    reply = asyncio.run(Chunks("m", api_key="any").ask(request, on_delta=deltas.append))

    assert reply == ModelReply({"role": "assistant", "content": "yes"}, finish="stop", model="m", response_id="a")
    assert deltas == [TextDelta("yes")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_may_have_anthropic_blocks(kind):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    request = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}

    _, _, provider, _ = evaluate(kind, "async", ScriptedModel("A cat."), request=request)

    assert provider.problems == []
    parts = provider.requests[0].messages[-1]["content"]
    assert parts[1] == (image if kind == "anthropic" else {"type": "image_url", "image_url": {"url": IMAGE_URL}})


IMAGE_URL = "data:image/png;base64,iVBORw0KGgo="
