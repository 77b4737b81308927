"""Wrong types at the front door: every one is an error of ours that says what to pass instead."""

import pytest

from minutebook import (
    CompactionManager,
    ComposedManager,
    Conversation,
    Fold,
    MarkdownSection,
    MemoryStore,
    ModelInfo,
    ModelSummarizer,
    OpenAIAdapter,
    Prompt,
    PromptTemplate,
    Session,
    SlidingWindowManager,
    SummarizeStrategy,
    Transcript,
    check,
    counter_for,
    model_info,
    open_store,
    register_strategy,
    tool,
    view_of,
)
from minutebook.agent import ConversationRunner
from minutebook.errors import InvalidMessage, InvalidSetting
from minutebook.testing import LoopbackProvider, ScriptedModel, say

CHAT = [{"role": "user", "content": "Where is my order?"}]
PROMPT = Prompt(
    PromptTemplate(ns="shop", key="support", sections=[MarkdownSection(title="Role", template="x", key="r")])
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: view_of(CHAT, "8k"), "limit='8k': expected a number of tokens such as 8_000, a manager, or a list"),
        (lambda: view_of(CHAT, 0), "limit=0: expected a number of tokens such as 8_000"),
        (lambda: view_of(CHAT, True), "limit=True: expected a number of tokens"),
        (lambda: view_of(CHAT, SlidingWindowManager), "limit=<class .*: expected a number of tokens"),
        (lambda: view_of(CHAT, [SlidingWindowManager(3), 8_000]), r"limit=\[.*: expected a number of tokens"),
        (lambda: view_of("Where is my order?", 8_000), "messages='Where.*: expected a list of messages"),
        (lambda: view_of(CHAT, 8_000, system=CHAT[0]), "system=.*: expected the text of a system message"),
        (lambda: view_of(CHAT, max_tokens="8k"), "max_tokens='8k': expected a number of tokens"),
        (lambda: view_of(CHAT, folds=["f1"]), "folds='f1': expected a list of folds"),
        (lambda: view_of(CHAT, folds=Fold.over([0], reason="r")), "folds=Fold.*: expected a list of folds"),
        (lambda: view_of(CHAT, context={"pins": [1]}), "context=.*: expected a CurationContext"),
        (lambda: view_of(CHAT, counter="gpt-4o"), "counter='gpt-4o': expected a token counter"),
        (lambda: view_of(CHAT, 8_000, provider="opnai"), "provider='opnai': expected one of openai"),
        (lambda: Transcript(5), "messages=5: expected a list of messages"),
        (lambda: check(5), "messages=5: expected a list of messages"),
        (lambda: ComposedManager([5]), "manager=5: expected an object with a method curate"),
        (lambda: ComposedManager("x"), "manager='x': expected an object with a method curate"),
        (lambda: SummarizeStrategy(threshold="0.8"), "threshold='0.8': expected a share of the window"),
        (lambda: SummarizeStrategy(keep_turns="3"), "keep_turns='3': expected 1 or more"),
        (lambda: ModelSummarizer("gpt-4o"), "adapter='gpt-4o': expected an adapter, such as OpenAIAdapter"),
        (lambda: CompactionManager("summarize", "gpt-4o"), "model='gpt-4o': expected a ModelInfo, such as model_info"),
        (lambda: CompactionManager("turns", ModelInfo("x"), "gpt-4o"), "summarizer='gpt-4o': expected an object with"),
        (lambda: ModelInfo("x", max_input_tokens="8k"), "max_input_tokens='8k': expected a number of tokens"),
        (lambda: counter_for(5), "model=5: expected the name of a model"),
        (lambda: model_info(5), "model=5: expected the name of a model"),
        (lambda: OpenAIAdapter(5), "model=5: expected the name of a model"),
        (lambda: open_store(5), "store=5: expected a file name, sqlite:"),
        (lambda: register_strategy("mine", "summarize"), "factory='summarize': expected a strategy's class"),
        (lambda: tool(5), "function=5: expected a function with type hints"),
        (lambda: Prompt("You fix code."), "template='You fix code.': expected a PromptTemplate"),
        (lambda: PromptTemplate(ns="a", key="b", sections=["x"]), "sections='x': expected a list of sections"),
    ],
)
def test_functions_say_what_they_expect(call, message):
    with pytest.raises(InvalidSetting, match=message):
        call()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"store": 5}, "store=5: expected a file name, sqlite:"),
        ({"store": None}, "store=None: expected a file name, sqlite:"),
        ({"store": MemoryStore}, "store=<class .*: expected a file name, sqlite:"),
        ({"id": 5}, "id=5: expected 1 to 512 bytes"),
        ({"system": {"role": "system", "content": "x"}}, "system=.*: expected the text of a system message"),
        ({"model": 5}, "model=5: expected the name of a model, or a ModelInfo"),
        ({"max_tokens": "8k"}, "max_tokens='8k': expected a number of tokens"),
        ({"manager": 8_000}, "manager=8000: expected an object with a method curate"),
        ({"manager": "slidng_window"}, "manager='slidng_window': expected one of.*sliding_window"),
        ({"summarizer": "gpt-4o"}, "summarizer='gpt-4o': expected an object with"),
        ({"summarizer": ModelSummarizer}, "summarizer=<class .*: expected an object with"),
        ({"policy": 5}, "policy=5: expected the name of a policy"),
        ({"provider": "opnai"}, "provider='opnai': expected one of openai"),
    ],
)
def test_a_conversation_says_which_setting_is_wrong(settings, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidSetting, match=message):
        Conversation(**settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda chat: chat.append(), r"messages=\[\]: expected at least one message"),
        (lambda chat: chat.append([]), r"messages=\[\]: expected at least one message"),
        (lambda chat: chat.append("hi", request="1"), "request='1': expected the number of a request"),
        (lambda chat: chat.view(tools="read_file"), "tools='read_file': expected a list of tool definitions"),
        (lambda chat: chat.view(tools=5), "tools=5: expected a list of tool definitions"),
        (lambda chat: chat.view(tools=[object()]), "tools=.*: expected a list of tool definitions"),
        (lambda chat: chat.view(provider="opnai"), "provider='opnai': expected one of openai"),
        (lambda chat: chat.requests("5"), "last='5': expected a number of requests"),
        (lambda chat: chat.request("1"), "request='1': expected the number of a request"),
        (lambda chat: chat.why("0", request=1), "message='0': expected 0 to 0"),
        (lambda chat: chat.undo(5), "fold=5: expected a fold or its id"),
        (lambda chat: chat.pin("0"), "position='0': expected the position of a message"),
        (lambda chat: chat.pin(7), "position=7: expected 0 to 0"),
        (lambda chat: chat.fork("copy", at="1"), "at='1': expected the position of a message"),
        (lambda chat: chat.lease("a minute").__enter__(), "seconds='a minute': expected a number of seconds"),
    ],
)
def test_the_methods_of_a_conversation_say_what_they_expect(call, message):
    with Conversation(max_tokens=500) as chat:
        chat.append(CHAT)
        chat.view()

        with pytest.raises(InvalidSetting, match=message):
            call(chat)
        assert len(chat) == 1


@pytest.mark.parametrize("given", [None, 5, b"hi", object(), dict, ["hi"], {}, {"role": "usr", "content": "hi"}])
def test_what_is_no_message_is_not_appended(given):
    with Conversation() as chat:
        with pytest.raises(
            InvalidMessage, match=r"expected text, a chat message|is text; in a list|use system, developer"
        ):
            chat.append(given)
        assert len(chat) == 0


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ("You fix code.", {}, r"prompt='You fix code.': expected a Prompt; put text into a template"),
        (PROMPT.template, {}, "prompt=PromptTemplate.*: expected a Prompt"),
        (PROMPT, {"conversation": 5}, "conversation=5: expected a Transcript, a Conversation or a list of messages"),
        (PROMPT, {"history_manager": 8_000}, "manager=8000: expected an object with a method curate"),
        (PROMPT, {"request": 5}, "request=5: expected text or a message"),
        (PROMPT, {"max_tokens": "8k"}, "max_tokens='8k': expected a number of tokens"),
        (PROMPT, {"deadline": 30}, "deadline=30: expected a Deadline"),
        (PROMPT, {"budget": 30}, "budget=30: expected a Budget"),
        (PROMPT, {"compactor": "summarize"}, "compactor='summarize': expected a CompactionManager"),
    ],
)
def test_an_evaluation_says_what_it_expects(prompt, settings, message):
    adapter = OpenAIAdapter("gpt-4o")

    with pytest.raises(InvalidSetting, match=message):
        adapter.evaluate_sync(prompt, session=Session(), **settings)
    with pytest.raises(InvalidSetting, match=message):
        adapter.stream(prompt, session=Session(), **settings)


def test_a_runner_needs_an_adapter():
    with pytest.raises(InvalidSetting, match="adapter='gpt-4o': expected an adapter, such as OpenAIAdapter"):
        ConversationRunner(adapter="gpt-4o", prompt=PROMPT, session=Session())


def test_an_evaluation_continues_a_plain_list_of_messages():
    chat = [*CHAT, {"role": "assistant", "content": "In Cologne."}]
    with LoopbackProvider(ScriptedModel(say("Tomorrow."))) as provider:
        adapter = OpenAIAdapter("scripted", base_url=provider.base_url, api_key="none")
        with adapter:
            response = adapter.evaluate_sync(PROMPT, session=Session(), conversation=chat, request="When will it come?")

        assert response.text == "Tomorrow."
        sent = [message["content"] for message in provider.requests[0].body["messages"]]
    assert sent[1:] == ["Where is my order?", "In Cologne.", "When will it come?"]
    assert len(chat) == 2
