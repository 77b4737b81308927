"""The official clients of both providers, waiting and not, streaming and not, against a real server."""

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
from tests.agent.parts import ADAPTERS, PATIENT, Verdict, adapter_for, assert_coherent, at_once, prompt_of, spoken

KINDS = sorted(ADAPTERS)
MODES = ["sync", "async", "stream"]


def evaluate(kind, mode, model, prompt=None, *, session=None, provider_options=None, adapter_options=None, **options):
    """The response, the events if there are any, and the provider."""
    session = session or Session()
    events = []

    async def asked(adapter):
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
            response = asyncio.run(asked(adapter))
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
    assert [role for role, _ in spoken(session)] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert ("tool", "The content of ünïcødé.py.") in spoken(session)
    assert all(bool(request.body.get("stream")) == (mode == "stream") for request in provider.requests)
    assert_coherent(session)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_says_what_happens_as_it_happens(kind):
    model = ScriptedModel(think("Hm.") + say("Let me see.") + call("read", path="a.py"), say("All is fine."))

    response, events, _, _ = evaluate(kind, "stream", model)

    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "Hm."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me see.All is fine."
    assert [event.call.name for event in events if isinstance(event, ToolCalled)] == ["read"]
    assert [event.content for event in events if isinstance(event, ToolAnswered)] == ["The content of a.py."]
    assert events[-1] == RunFinished(response)


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_and_whole_answers_are_recorded_the_same(kind):
    def model():
        return ScriptedModel(
            think("Hm.") + say("So. ") + call("read", '{"path": "a"}') + call("fetch", path="b"), say("Done.")
        )

    texts = [spoken(evaluate(kind, mode, model())[3]) for mode in MODES]

    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_a_stream_early_cancels_the_run_and_settles_the_record(kind):
    session = Session()

    async def leave(provider):
        async with adapter_for(provider, kind) as adapter:
            async with aclosing(adapter.stream(prompt_of(), session=session)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break

    with LoopbackProvider(ScriptedModel(say("One two three four."))) as provider:
        asyncio.run(leave(provider))

    assert [role for role, _ in spoken(session)] == ["user", "assistant"]
    assert "One two three four.".startswith(spoken(session)[1][1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_busy_provider_is_asked_again_with_the_same_request(kind, mode):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)
        await at_once(seconds)

    model = ScriptedModel(fail(429, retry_after=2), fail(503), cut(), say("At last."))
    retry_policy = RetryPolicy(sleep=sleep, draw=lambda: 0.5, first_wait_seconds=1.0)

    response, _, provider, _ = evaluate(kind, mode, model, adapter_options={"retry_policy": retry_policy})

    assert response.text == "At last."
    assert waits == [2.0, 1.0, 2.0]
    assert len({str(request.body) for request in provider.requests}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_breaks_off_is_asked_for_again_and_listeners_are_told(kind):
    model = ScriptedModel(say("One two three four five six seven.") + cut(after_chunks=5), say("Whole."))

    response, events, _, session = evaluate(kind, "stream", model)

    assert response.text == "Whole."
    restarted = next(at for at, event in enumerate(events) if isinstance(event, AnswerRestarted))
    assert any(isinstance(event, TextDelta) for event in events[:restarted])
    assert spoken(session)[-1] == ("assistant", "Whole.")
    assert len(spoken(session)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_middle_of_a_stream_is_asked_again(kind):
    model = ScriptedModel(say("One two three.") + fail(529), say("Whole."))

    response, _, _, _ = evaluate(kind, "stream", model)

    assert response.text == "Whole."


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_key_is_not_asked_again(kind, mode):
    with pytest.raises(ProviderFailed) as caught:
        evaluate(kind, mode, ScriptedModel(), provider_options={"api_key": "another"})

    assert caught.value.status == 401
    assert not isinstance(caught.value, RetriesExhausted)


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_that_goes_on_failing_is_given_up(kind):
    with pytest.raises(RetriesExhausted, match="6 attempts") as caught:
        evaluate(kind, "async", ScriptedModel(otherwise=fail(500, "out of order")))

    assert caught.value.status == 500


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_there_is_a_failure_that_may_pass(kind, mode):
    provider = LoopbackProvider(ScriptedModel())
    provider.close()
    session = Session()
    made, url = ADAPTERS[kind]

    with made("gpt-4o", base_url=getattr(provider, url), api_key="x", retry_policy=PATIENT) as adapter:
        with pytest.raises(RetriesExhausted) as caught:
            adapter.evaluate_sync(prompt_of(), session=session)

    assert caught.value.status is None
    assert [role for role, _ in spoken(session)] == ["user"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_structured_answer_comes_from_every_provider(kind):
    model = ScriptedModel(say('{"good": false, "reason": "Typo."}'))

    response, _, _, _ = evaluate(kind, "async", model, prompt_of(output=Verdict))

    assert response.output == Verdict(good=False, reason="Typo.")


def test_anthropic_is_given_the_schema_where_it_is_asked_to():
    model = ScriptedModel(say('{"good": false, "reason": "Typo."}'))

    _, _, provider, _ = evaluate(
        "anthropic", "async", model, prompt_of(output=Verdict), adapter_options={"native_output": True}
    )

    assert provider.requests[0].body["output_config"]["format"]["type"] == "json_schema"
    assert "JSON Schema" not in provider.requests[0].last_text


def test_strict_tools_are_described_strictly():
    _, _, provider, _ = evaluate("openai", "async", ScriptedModel("Hi."), adapter_options={"strict_tools": True})

    assert all(spec["function"]["strict"] for spec in provider.requests[0].body["tools"])


@pytest.mark.parametrize("kind", KINDS)
def test_options_go_into_every_request(kind):
    _, _, provider, _ = evaluate(
        kind, "async", ScriptedModel(call("read", path="a"), "Hi."), adapter_options={"options": {"temperature": 0.5}}
    )

    assert [request.body["temperature"] for request in provider.requests] == [0.5, 0.5]


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_cut_short_says_so(kind):
    response, _, _, _ = evaluate(kind, "async", ScriptedModel(say("And then") + ends("length")))

    assert response.finish == "length"


def test_cached_tokens_are_counted_in_all_input_and_apart():
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
def test_signed_thinking_goes_back_as_it_came_or_not_at_all(mode, bound):
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
        [block["type"] for message in request.messages for block in message["content"]] for request in provider.requests
    ]
    assert "thinking" in kinds[1]


def test_thinking_goes_back_byte_for_byte_while_nothing_before_it_changed():
    steps = [think(f"Thought {n}.") + call("read", path=f"{n}.py") for n in range(3)]

    _, _, provider, _ = evaluate(
        "anthropic", "async", ScriptedModel(*steps, say("Done.")), provider_options={"preserved_thinking": True}
    )

    thoughts = [
        block["thinking"]
        for message in provider.requests[-1].messages
        for block in message["content"]
        if block["type"] == "thinking"
    ]
    assert thoughts == ["Thought 0.", "Thought 1.", "Thought 2."]


def test_what_one_provider_said_can_be_sent_to_the_other():
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
        from minutebook.agent import ModelRequest

        async with adapter_for(provider, kind) as adapter:
            await adapter.ask(ModelRequest([{"role": "user", "content": "Hi"}]))

    with LoopbackProvider(ScriptedModel(overflow(9031, 8192))) as provider, pytest.raises(ContextOverflow) as caught:
        asyncio.run(ask(provider))

    assert (caught.value.tokens, caught.value.maximum) == (9031, 8192)


def test_a_client_of_ones_own_is_used_and_left_open():
    async def own(provider):
        client = openai.AsyncOpenAI(base_url=provider.base_url, api_key="any", default_headers={"x-mine": "yes"})
        async with OpenAIAdapter("gpt-4o", client=client) as adapter:
            await adapter.evaluate(prompt_of(), session=Session())
        assert not client.is_closed()
        await client.close()

    with LoopbackProvider(ScriptedModel("Hi.")) as provider:
        asyncio.run(own(provider))

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
    ("made", "module"), [(OpenAIAdapter, "openai"), (AnthropicAdapter, "anthropic")], ids=KINDS[::-1]
)
def test_a_client_that_is_not_installed_is_named(monkeypatch, made, module):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtra, match=rf"pip install 'minutebook\[{module}\]'"):
        made("gpt-4o")


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
    heard = []

    class Chunks(OpenAIAdapter):
        async def _chunks(self, arguments):
            for chunk in chunks:
                yield chunk

    request = ModelRequest([{"role": "user", "content": "Is it?"}])
    reply = asyncio.run(Chunks("m", api_key="any").ask(request, on_delta=heard.append))

    assert reply == ModelReply({"role": "assistant", "content": "yes"}, finish="stop", model="m", response_id="a")
    assert heard == [TextDelta("yes")]
