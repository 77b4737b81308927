"""What was named in summarised steps: which of it stands beside the summaries, and how much."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ToolCall
from minutebook.planning.events import AppendTurn, ExpandStep, SetupPlan, SummarizeStep, UpdateStep
from minutebook.planning.plan import PlanStep
from minutebook.planning.summaries import LEDGER_HEADING, OPEN_STEPS_LABEL, StepLedger
from minutebook.planning.task_history import Turn
from minutebook.tokens import counter_for
from tests.planning.parts import new_session, prompt_for

LISTING = "src/app/billing/\nsrc/app/shipping/\nsrc/app/returns/\nREADME.md"
COUNT = counter_for(None).count


def turns(*said):
    """Turns of results, but for those that begin with a dollar: they are calls of a shell."""
    found = []
    for number, text in enumerate(said, 1):
        if text.startswith("$ "):
            call = ToolCall(f"call_{number}", "shell", f'{{"command": "{text[2:]}"}}')
            found.append(Turn(number, "assistant", "", tool_calls=(call,)))
        else:
            found.append(Turn(number, "tool", text))
    return found


def noted(*said, max_tokens=300, summaries="", ahead=()):
    return StepLedger(max_tokens).text(turns(*said), section_text=summaries, open_titles=ahead)


def line(text, name):
    return next((each.partition(": ")[2].split() for each in text.splitlines() if each.startswith(f"- {name}: ")), [])


def test_what_the_open_steps_name_comes_first_though_it_was_seen_once():
    often = [f"$ cat src/app/core/part{n}.py" for n in range(40)] * 3

    text = noted(LISTING, *often, max_tokens=120, ahead=["Mend shipping", "Mend returns"])

    assert line(text, OPEN_STEPS_LABEL) == ["src/app/returns", "src/app/shipping"]
    assert "src/app/billing" not in text
    assert "src/app/core/part" in text


def test_a_word_that_many_facts_have_tells_less_than_one_that_few_have():
    many = "\n".join(f"pages/part{n}/index.html" for n in range(60))

    text = noted(many, LISTING, max_tokens=100, ahead=["Write pages for shipping"])

    assert line(text, OPEN_STEPS_LABEL)[0] == "src/app/shipping"


def test_the_steps_ahead_leave_room_for_what_was_used_most():
    many = "\n".join(f"src/shipping/part{n}.py" for n in range(60))

    text = noted(many, *["$ make check"] * 5, max_tokens=100, ahead=["Mend shipping"])

    assert "`make check`" in text


def test_what_was_used_most_for_what_it_costs_comes_before_what_was_seen_once():
    text = noted("\n".join(f"lib/seen{n}.py" for n in range(50)), *["$ cat lib/used.py"] * 3, max_tokens=60)

    assert line(text, "paths")[0] == "lib/used.py"


def test_what_the_section_says_already_is_left_out():
    assert "shipping" not in noted(LISTING, summaries="Mended src/app/shipping/rates.py.", ahead=["Mend shipping"])


def test_a_path_of_a_diff_is_the_path_of_the_file():
    text = noted("--- a/src/app/main.py\n+++ b/src/app/main.py")

    assert line(text, "paths") == ["src/app/main.py"]


def test_without_facts_there_is_no_ledger():
    assert noted("Nothing here.") == ""
    assert noted() == ""


@given(
    st.lists(st.from_regex(r"(\$ )?[a-z]{1,6}/[a-z_]{1,8}\.py( [A-Z]{2}-\d{3,5})?", fullmatch=True), max_size=40),
    st.integers(0, 200),
    st.lists(st.from_regex(r"[A-Za-z]{1,8} [a-z_]{1,8}", fullmatch=True), max_size=3),
)
def test_it_is_within_its_bound_and_says_only_what_was_named(said, bound, ahead):
    text = noted(*said, max_tokens=bound, ahead=ahead)

    assert not text or COUNT(text) <= bound
    assert not text or text.startswith(LEDGER_HEADING)
    facts = [word.strip("`") for each in text.splitlines()[1:] for word in each.partition(": ")[2].split()]
    assert all(any(fact in turn for turn in said) for fact in facts)
    assert text == noted(*said, max_tokens=bound, ahead=ahead)


def test_another_process_writes_the_same_bytes():
    script = (
        "from minutebook.planning.summaries import StepLedger\n"
        "from minutebook.planning.task_history import Turn\n"
        f"turn = Turn(1, 'tool', {LISTING!r} + ' AB-123 CD-456 EF-789 GH-012')\n"
        "print(StepLedger(60).text([turn], section_text='', open_titles=['Mend shipping, billing and returns']))"
    )

    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(outputs) == 1
    assert "src/app/billing src/app/returns src/app/shipping" in outputs.pop()


def at_work():
    session = new_session()
    prompt_for(session)
    session.dispatch(SetupPlan("Move", (PlanStep(1, "Look around"), PlanStep(2, "Mend shipping"))))
    session.dispatch(UpdateStep(1, "in_progress"))
    session.dispatch(AppendTurn(Turn(None, "tool", LISTING)))
    return session


def shown(session, **options):
    return prompt_for(session, **options).render(session=session).text


def test_the_section_shows_it_while_the_step_is_summarised():
    session = at_work()
    before = shown(session)

    session.dispatch(SummarizeStep(1, "Looked around."))
    assert line(shown(session), OPEN_STEPS_LABEL) == ["src/app/shipping"]
    assert shown(session) == shown(session)
    session.dispatch(ExpandStep(1))

    assert LEDGER_HEADING not in before
    assert shown(session) == before


def test_what_is_ahead_changes_with_the_plan():
    session = at_work()
    session.dispatch(SummarizeStep(1, "Looked around."))
    session.dispatch(UpdateStep(2, "done"))

    assert line(shown(session), OPEN_STEPS_LABEL) == []
    assert "src/app/shipping" in line(shown(session), "paths")


@pytest.mark.parametrize("options", [{"max_ledger_tokens": 0}, {"max_ledger_tokens": 5}], ids=str)
def test_it_can_be_left_out(options):
    session = at_work()
    session.dispatch(SummarizeStep(1, "Looked around."))

    assert LEDGER_HEADING not in shown(session, **options)
