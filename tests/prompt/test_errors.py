import pickle

import pytest

from minutebook.errors import MinutebookError
from minutebook.prompt import errors
from minutebook.prompt.problem import Problem
from minutebook.prompt.visibility import SectionVisibility

PROBLEMS = [Problem("a", "is missing")]
EXAMPLES = [
    (
        errors.UnsupportedType("One.it", "bytes", "use str"),
        "One.it is bytes, which cannot be told to a model as JSON; use str",
    ),
    (
        errors.UnknownPlaceholder("task", "x", "Task", ["a"]),
        "the template of section 'task' has ${x}, which Task lacks",
    ),
    (errors.UnknownPlaceholder("task", "x", None, []), "the template of section 'task' has ${x} and no params"),
    (errors.DuplicateName("tool", "add", ["a", "b"]), "the tool 'add' is there more than once (a, b)"),
    (errors.MissingParams("task", "Task"), "section 'task' needs a Task; bind one"),
    (errors.ToolValidationError("No task history to summarize."), "No task history to summarize."),
    (errors.ToolValidationError("Mend:", PROBLEMS), "Mend:\n- a: is missing"),
    (
        errors.OutputParseError("Plan", "{}", PROBLEMS),
        "The answer is not a valid Plan:\n- a: is missing\nIt was: {}\nAnswer again",
    ),
    (
        errors.VisibilityExpansionRequired({("a", "b"): SectionVisibility.FULL}, "to see", ["a.b"]),
        "the model asks to open a.b (to see); merge requested_overrides into visibility_overrides",
    ),
]


@pytest.mark.parametrize(("error", "said"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_says_what_is_and_what_to_do_and_survives_pickling(error, said):
    copy = pickle.loads(pickle.dumps(error))

    assert str(error).startswith(said)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert isinstance(error, MinutebookError)
