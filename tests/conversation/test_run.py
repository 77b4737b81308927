"""An agent that runs in a stored conversation: each exchange is stored as it happens, and the next run continues."""

import asyncio
import multiprocessing
import os
import signal
from contextlib import aclosing
from importlib import import_module
from itertools import pairwise
from threading import Event

import pytest

from minutebook import (
    HistoryCompacted,
    MarkdownSection,
    MemoryStore,
    Prompt,
    PromptTemplate,
    Session,
    Transcript,
    TruncateStrategy,
    check,
)
from minutebook.agent import ModelReply
from minutebook.agent.events import RunFinished, ViewBuilt
from minutebook.conversation import AsyncConversation, Conversation
from minutebook.errors import ConversationBusy, InvalidSetting, MissingSetting, ProviderFailed, StoreUnavailable
from minutebook.prompt import tool
from minutebook.record.finding import errors
from minutebook.store.loop_thread import run_sync
from minutebook.testing import LoopbackProvider, ScriptedModel, call, fail, say, uses
from tests.agent.parts import READ, InProcessAdapter, adapter_for, run_and_cancel

CALLS = 60


def look_up(number: int) -> str:
    """Look up an order."""
    return f"Order {number} was shipped."


def orders(calls=CALLS):
    """A model that calls `look_up` for the orders 1, 2, …, by the number of results it was sent, then answers."""

    def answer(request):
        done = sum(message["role"] == "tool" for message in request.messages)
        return call("look_up", number=done + 1) if done < calls - 1 else say("All orders were shipped.")

    return ScriptedModel(otherwise=answer)


def expected_record(calls=CALLS):
    """Roles and contents after a run with `orders`."""
    exchanges = [("assistant", None), ("tool", "Order {}")]
    middle = [
        (role, content and f"Order {number} was shipped.") for number in range(1, calls) for role, content in exchanges
    ]
    return [
        ("system", "You are a support agent."),
        ("user", "Check all orders."),
        *middle,
        ("assistant", "All orders were shipped."),
    ]


def roles_and_contents(messages):
    return [(message["role"], message.get("content")) for message in messages]


def stored_messages(store, conversation="orders"):
    """The messages as another process reads them."""
    return list(run_sync(store.load(conversation)).messages)


def support_chat(store, **settings):
    return AsyncConversation("orders", store=store, system="You are a support agent.", **settings)


@pytest.fixture
def store():
    return MemoryStore()


def test_every_message_and_every_request_of_a_run_is_stored():
    with LoopbackProvider(orders(3)) as provider, adapter_for(provider) as adapter:
        chat = Conversation("orders", system="You are a support agent.", model="gpt-4o")
        response = chat.run(adapter, "Check all orders.", tools=[look_up])

        assert response.text == "All orders were shipped."
        assert roles_and_contents(chat) == expected_record(3)
        requests = chat.requests()
        assert [request.number for request in requests] == [1, 2, 3]
        assert [request.messages for request in requests] == [chat[:2], chat[:4], chat[:6]]
        assert [request.finish for request in requests] == ["tool_calls", "tool_calls", "stop"]
        assert sum(request.usage.total_tokens for request in requests) == response.usage.total_tokens
        assert response.view.number == 3
        assert chat.view().number == 4


def test_the_tokens_of_tools_are_subtracted_from_the_budget_before_the_manager_cuts(caplog):
    def find_document(number: int) -> str:
        return f"Document {number}: " + "text " * 10

    find_document.__doc__ = "Find a document. " + "It has a long description. " * 20

    steps = [call("find_document", number=number) for number in range(40)]
    with (
        LoopbackProvider(ScriptedModel(*steps, say("Done."))) as provider,
        adapter_for(provider) as adapter,
    ):
        chat = Conversation("orders", max_tokens=800)
        chat.run(adapter, "Find all documents.", tools=[find_document])

        requests = [request.messages for request in provider.requests]
        cuts = sum(later[: len(earlier)] != earlier for earlier, later in pairwise(requests))
    assert "repaired" not in caplog.text
    assert cuts < 8


def test_the_next_run_continues_the_conversation(store):
    async def main():
        chat = support_chat(store)
        await chat.run(adapter, "Hello.")
        return await support_chat(store).run(adapter, "And now?")

    model = ScriptedModel("Good morning.", "Still here.")
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        assert run_sync(main()).text == "Still here."
        assert [message["content"] for message in provider.requests[-1].messages] == [
            "You are a support agent.",
            "Hello.",
            "Good morning.",
            "And now?",
        ]


def _check_orders(database, base_url):
    """The process that is killed. Its lease is short, so that the next run does not wait long."""

    async def main():
        async with support_chat(database) as chat:
            async with adapter_for(_Address(base_url)) as adapter, chat.lease(seconds=2):
                await chat.run(adapter, "Check all orders.", tools=[look_up])

    import_module("openai.resources.chat.completions")  # it takes longer than the lease lasts
    asyncio.run(main())


class _Address:
    def __init__(self, base_url):
        self.base_url = base_url


@pytest.mark.parametrize("killed_in", [1, 59])
def test_a_run_that_was_killed_continues_without_loss_or_duplicates(tmp_path, killed_in):
    database, processes, model = str(tmp_path / "chat.db"), [], orders().otherwise
    is_killed = Event()

    def answer(request):
        if request.number == killed_in:
            os.kill(processes[0].pid, signal.SIGKILL)
            is_killed.wait()
        return model(request)

    with LoopbackProvider(ScriptedModel(otherwise=answer)) as provider, adapter_for(provider) as adapter:
        processes.append(
            multiprocessing.get_context("forkserver").Process(target=_check_orders, args=(database, provider.base_url))
        )
        processes[0].start()
        processes[0].join()
        is_killed.set()
        assert processes[0].exitcode == -signal.SIGKILL

        with Conversation("orders", store=database) as chat:
            assert roles_and_contents(chat) == expected_record()[: 2 * killed_in]
            response = chat.run(adapter, tools=[look_up])

            assert response.text == "All orders were shipped."
            assert roles_and_contents(chat) == expected_record()
            assert len(provider.requests) == CALLS + 1
            requests = chat.requests(last=CALLS + 1)
            assert [request.number for request in requests] == list(range(1, CALLS + 2))
            assert [request.number for request in requests if request.usage is None] == [killed_in]
            assert requests[killed_in].messages == requests[killed_in - 1].messages


def replies():
    def reply(content, *paths):
        calls = [
            {"id": f"c{path}", "type": "function", "function": {"name": "read", "arguments": f'{{"path": "{path}"}}'}}
            for path in paths
        ]
        return ModelReply({"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})})

    return [reply("Let me see", "a", "b"), reply(None, "d"), reply("It is all fine now")]


class SlowStore(MemoryStore):
    """A store that needs a few iterations of the event loop before and after it stores."""

    async def append(self, *args, **settings):
        await asyncio.sleep(0)
        version = await super().append(*args, **settings)
        await asyncio.sleep(0)
        return version


def test_a_run_can_be_cancelled_at_any_moment_and_continued():
    finished = False
    for iterations in range(1, 500):
        store = SlowStore()
        chat = support_chat(store)
        finished = run_and_cancel(iterations, chat.run(InProcessAdapter(*replies()), "Check.", tools=[READ]))
        try:
            stored = stored_messages(store)
        except LookupError:
            stored = []  # cancelled before the user message was stored
        assert not errors(check(stored))

        if stored:
            run_sync(chat.run(InProcessAdapter(*replies()), "And now?", tools=[READ]))
            assert list(chat) == stored_messages(store)
            assert stored_messages(store)[: len(stored)] == stored
            assert not errors(check(stored_messages(store)))
        if finished:
            break
    assert finished


def test_resuming_a_finished_run_returns_its_answer_and_calls_no_model(store):
    async def main():
        await support_chat(store).run(adapter, "Hello.")
        return await support_chat(store).run(adapter)

    with LoopbackProvider(ScriptedModel("Good morning.")) as provider, adapter_for(provider) as adapter:
        response = run_sync(main())

        assert (response.text, response.calls) == ("Good morning.", 0)
        assert len(provider.requests) == 1


def test_an_empty_conversation_cannot_be_resumed(store):
    with pytest.raises(MissingSetting, match="pass the user message"):
        run_sync(support_chat(store).run(InProcessAdapter()))


@pytest.mark.parametrize("roles", [["user", "user"], ["assistant"], ["system"]])
def test_a_run_takes_one_user_message(store, roles):
    with pytest.raises(InvalidSetting, match="one user message"):
        run_sync(support_chat(store).run(InProcessAdapter(), [{"role": role, "content": "Hi."} for role in roles]))


@pytest.mark.parametrize("tools", [look_up, tool(look_up), None])
def test_tools_that_are_not_a_list_are_refused(store, tools):
    with pytest.raises(InvalidSetting, match=r"expected a list of functions or tools: \[find_order\]"):
        run_sync(support_chat(store).run(InProcessAdapter(), "Hi.", tools=tools))


def test_events_are_one_line_each():
    model = ScriptedModel(call("look_up", number=17), "It was\nshipped.")
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        chat = Conversation("orders", model="gpt-4o")
        events = list(chat.stream(adapter, "Where is\norder 17?", tools=[tool(look_up)]))

    lines = [str(event) for event in events]
    assert not any("\n" in line for line in lines)
    assert lines[0] == f"request: {events[0].view!r}"
    assert lines[0].startswith("request: <View 1: 1 of 1 messages")
    assert 'call look_up: {"number": 17}' in lines
    assert "result of look_up: Order 17 was shipped." in lines
    assert lines[-1] == "finished after 2 model calls: It was shipped."
    assert isinstance(events[-1], RunFinished)


def test_the_text_of_a_stream_that_was_closed_is_stored(store):
    async def main():
        chat = support_chat(store)
        async with aclosing(chat.stream(InProcessAdapter(*replies()), "Check.", tools=[READ])) as events:
            async for event in events:
                if str(event) == "text: 'fine'":
                    break

    run_sync(main())

    stored = stored_messages(store)
    assert stored[-1] == {"role": "assistant", "content": stored[-1]["content"], "interrupted": True}
    assert "fine" in stored[-1]["content"]
    assert not errors(check(stored))


def test_only_one_run_at_a_time(store):
    async def main():
        async with support_chat(store).lease(seconds=60):
            await support_chat(store).run(InProcessAdapter(*replies()), "Check.")

    with pytest.raises(ConversationBusy):
        run_sync(main())


def test_a_message_of_another_process_does_not_stop_a_run(store):
    chat, other = support_chat(store), support_chat(store)

    async def note(number: int) -> str:
        """Write a note, in another process."""
        await other.append(f"Note {number}.")
        return "Noted."

    model = ScriptedModel(call("note", number=1), call("note", number=2), "Done.")
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        response = run_sync(chat.run(adapter, "Take notes.", tools=[note]))

        assert response.text == "Done."
        contents = [message.get("content") for message in stored_messages(store)]
        assert contents == [
            *("You are a support agent.", "Take notes."),
            *("Note 1.", None, "Noted."),
            *("Note 2.", None, "Noted."),
            "Done.",
        ]
        assert list(chat) == list(response.conversation) == stored_messages(store)
        assert [message["role"] for message in provider.requests[1].messages[-3:]] == ["user", "assistant", "tool"]


class UnavailableStore(MemoryStore):
    """A store that loses the connection during the second append, before or after it is stored."""

    def __init__(self, *, stores):
        super().__init__()
        self.stores = stores
        self.appends = 0

    async def append(self, *args, **settings):
        self.appends += 1
        version = None if self.appends == 2 and not self.stores else await super().append(*args, **settings)
        if self.appends == 2:
            raise StoreUnavailable("test", "the connection was lost")
        return version


@pytest.mark.parametrize("stores", [False, True])
def test_a_failed_append_is_repeated_and_never_stored_twice(stores):
    store = UnavailableStore(stores=stores)
    chat = support_chat(store)

    with pytest.raises(StoreUnavailable):
        run_sync(chat.run(InProcessAdapter(*replies()), "Check.", tools=[READ]))
    roles = [message["role"] for message in stored_messages(store)]
    assert roles == ["system", "user", "assistant", "tool", "tool"]

    run_sync(chat.run(InProcessAdapter(*replies()[1:]), tools=[READ]))
    assert [message["role"] for message in stored_messages(store)] == [*roles, "assistant", "tool", "assistant"]


def test_a_request_that_failed_is_recorded_with_the_failure(store):
    async def main():
        chat = support_chat(store)
        with pytest.raises(ProviderFailed):
            await chat.run(adapter, "Hello.")
        return (await chat.requests())[0], [item async for item in documents()]

    async def documents():
        for document in (await store.documents("orders", "request")).items:
            yield document.body

    with (
        LoopbackProvider(ScriptedModel(fail(400, "bad"))) as provider,
        adapter_for(provider) as adapter,
    ):
        request, bodies = run_sync(main())

    assert (request.number, request.usage) == (1, None)
    assert bodies[0]["failed"] == "ProviderFailed"


GUIDE = MarkdownSection(title="Guide", key="guide", template="Look the order up first.")


@pytest.mark.parametrize("system", ["You are a support agent.", None])
def test_sections_are_shown_without_changing_the_record(store, system):
    chat = AsyncConversation("orders", store=store, system=system)

    async def main():
        await chat.append("Hello.")
        return await chat.run(adapter, "Where is my order?", sections=[GUIDE])

    with LoopbackProvider(ScriptedModel("On its way.")) as provider, adapter_for(provider) as adapter:
        run_sync(main())

        sent = provider.requests[0].messages
        assert sent[0]["role"] == "system"
        assert "Look the order up first." in sent[0]["content"]
        assert [message["content"] for message in sent[1:]] == ["Hello.", "Where is my order?"]
        prompts = [system] if system else []
        assert [message["content"] for message in chat] == [*prompts, "Hello.", "Where is my order?", "On its way."]
        request = run_sync(chat.request(1))
        assert [dict(message) for message in request.messages] == list(sent)


@pytest.mark.parametrize("system", ["You are a support agent.", None])
@pytest.mark.parametrize("hide", [None, "clear", "rewind"])
def test_every_run_sends_each_section_once(store, system, hide):
    expected = [] if system is None else [system]

    async def main():
        for number in range(3):
            chat = AsyncConversation("orders", store=store, system=system)
            await chat.run(adapter, f"Question {number}.", sections=[GUIDE])
            if hide == "clear":
                await chat.clear()
            elif hide == "rewind":
                await chat.rewind(-1)

    with LoopbackProvider(ScriptedModel(otherwise="On its way.")) as provider, adapter_for(provider) as adapter:
        run_sync(main())

        for number, request in enumerate(provider.requests):
            first, *others = request.messages
            assert first["role"] == "system"
            assert first["content"].count("Look the order up first.") == 1
            assert all(first["content"].count(text) == 1 for text in expected)
            assert [message["role"] for message in others].count("system") == 0
            assert others[-1]["content"] == f"Question {number}."


def test_sections_are_shown_before_a_summary_of_the_first_messages(store):
    chat = AsyncConversation("orders", store=store, max_tokens=10_000)

    async def main():
        for number in range(20):
            await chat.append(f"Question {number}. " * 20, {"role": "assistant", "content": f"Answer {number}. " * 20})
        assert await chat.compact()
        await chat.run(adapter, "Where is my order?", sections=[GUIDE])
        return await chat.folds()

    with LoopbackProvider(ScriptedModel("On its way.")) as provider, adapter_for(provider) as adapter:
        (fold,) = run_sync(main())

        sent = provider.requests[0].messages
        assert fold.start == 0
        assert "Look the order up first." in sent[0]["content"]
        assert len(sent) < 30
        assert fold.shown[0]["content"] in [message["content"] for message in sent]


def test_views_of_a_run_stay_within_the_budget_of_the_conversation(store):
    chat = support_chat(store, max_tokens=600)

    with LoopbackProvider(orders(30)) as provider, adapter_for(provider) as adapter:
        views = []

        async def main():
            async for event in chat.stream(adapter, "Check all orders.", tools=[look_up]):
                if isinstance(event, ViewBuilt):
                    views.append(event.view)
                if len(views) == 30:
                    break

        run_sync(main())
        assert all(view.tokens <= 600 for view in views)
        assert views[-1].why(2).status.value == "dropped"
        reason = run_sync(chat.why(2, request=views[-1].number))
        assert (reason.status, reason.reason) == (views[-1].why(2).status, views[-1].why(2).reason)


async def _events(stream):
    return [event async for event in stream]


@pytest.mark.parametrize("streamed", [False, True])
def test_the_strategy_of_the_conversation_folds_during_a_run(store, streamed):
    chat = support_chat(store, model="gpt-4o", max_tokens=2_000, strategy=TruncateStrategy())

    def read_log(page: int) -> str:
        """Read a page of the log."""
        return f"page {page} " * 100

    model = ScriptedModel(*(call("read_log", page=page) for page in range(20)), "Done.")
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        session, published = Session(), []
        session.bus.subscribe(HistoryCompacted, published.append)
        if streamed:
            events = run_sync(_events(chat.stream(adapter, "Read the log.", tools=[read_log], session=session)))
            assert [event for event in events if isinstance(event, HistoryCompacted)] == published
        else:
            run_sync(chat.run(adapter, "Read the log.", tools=[read_log], session=session))

        assert published
        assert run_sync(chat.folds())
        assert len(chat) == 2 + 40 + 1
        assert all(request.status == 200 for request in provider.requests)


def test_evaluate_stores_in_a_conversation_too(store):
    prompt = Prompt(PromptTemplate[str](ns="tests", key="support", sections=[GUIDE]))
    with LoopbackProvider(ScriptedModel("On its way.")) as provider, adapter_for(provider) as adapter:
        chat = Conversation("orders", store=store)
        adapter.evaluate_sync(prompt, session=Session(), request="Where is my order?", conversation=chat)

        assert [message["role"] for message in chat] == ["system", "user", "assistant"]
        assert list(chat) == stored_messages(store)


def test_a_stored_conversation_has_its_own_limits(store):
    prompt = Prompt(PromptTemplate[str](ns="tests", key="support", sections=[GUIDE]))
    with pytest.raises(InvalidSetting, match="max_tokens=100: expected None: a stored conversation has its own"):
        InProcessAdapter().evaluate_sync(
            prompt, session=Session(), request="Hi.", conversation=support_chat(store), max_tokens=100
        )


def test_a_transcript_can_be_resumed_without_a_user_message():
    prompt = Prompt(PromptTemplate[str](ns="tests", key="support", sections=[GUIDE]))
    transcript = Transcript([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}])
    adapter = InProcessAdapter(ModelReply({"role": "assistant", "content": "Hello."}))

    response = adapter.evaluate_sync(prompt, session=Session(), conversation=transcript, resume=True)

    assert [message["role"] for message in response.conversation] == ["system", "user", "assistant"]


def test_usage_is_that_of_the_provider(store):
    with (
        LoopbackProvider(ScriptedModel(say("Hi.") + uses(prompt=1_000, completion=7))) as provider,
        adapter_for(provider) as adapter,
    ):
        chat = Conversation("orders", store=store)
        chat.run(adapter, "Hello.")

        usage = chat.request(1).usage
        assert (usage.input_tokens, usage.output_tokens) == (1_000, 7)
