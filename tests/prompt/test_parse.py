import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from minutebook.errors import OutputParseError, ToolValidationError, UnsupportedType
from minutebook.prompt.parse import parse, parse_arguments
from minutebook.prompt.schema import json_data, json_text
from tests.prompt.generated import Colour, Tree
from tests.prompt.test_schema import Plan, Status, Step


def problems(cls, data, **options):
    with pytest.raises(OutputParseError) as caught:
        parse(cls, data, **options)
    return [str(problem) for problem in caught.value.problems]


def one(hint, metadata=None):
    @dataclass
    class One:
        it: hint = field(metadata=metadata or {})

    return One


def test_reads_a_plan():
    answer = '{"objective": "ship", "steps": [{"title": "test", "status": "done"}], "deadline": "2025-01-01T00:00:00Z"}'

    assert parse(Plan, answer) == Plan(
        objective="ship", steps=(Step("test", Status.DONE),), deadline=datetime(2025, 1, 1, tzinfo=UTC)
    )


def test_says_everything_that_is_wrong_at_once_and_what_to_do():
    answer = (
        '{"objective": 3, "steps": [{"title": "a"}, {"titel": "b"}, {"title": "", "status": "gone"}], "priority": 9}'
    )
    with pytest.raises(OutputParseError) as caught:
        parse(Plan, answer)

    assert str(caught.value) == (
        "The answer is not a valid Plan:\n"
        "- objective: is 3; expected text\n"
        "- steps[1].title: is missing\n"
        "- steps[1].titel: is not a field of Step; the fields are title, status, notes\n"
        "- steps[2].title: has 0 characters; expected at least 1\n"
        '- steps[2].status: is "gone"; expected "pending" or "done"\n'
        "- priority: is 9; expected at most 5\n"
        f"The answer was: {answer}\n"
        "Answer again with one JSON object for Plan and nothing else."
    )


def test_a_flood_of_problems_and_a_long_answer_are_cut_short_in_the_message_only():
    with pytest.raises(OutputParseError) as caught:
        parse(one(list[int]), {"it": ["x"] * 100})

    assert len(caught.value.problems) == 100
    assert "- and 80 more" in str(caught.value)
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize(
    ("hint", "data", "problem"),
    [
        (int, True, "it: is true; expected a whole number"),
        (int, 1.0, "it: is 1.0; expected a whole number"),
        (int, "1", 'it: is "1"; expected a whole number'),
        (float, "x" * 100, f'it: is "{"x" * 58}…; expected a number'),
        (float, 10**400, "it: is too large a number"),
        (bool, 1, "it: is 1; expected true or false"),
        (str, None, "it: is null; expected text"),
        (None, 0, "it: is 0; expected null"),
        (Literal[1, "a"], True, 'it: is true; expected 1 or "a"'),
        (Colour, "RED", 'it: is "RED"; expected "red" or "blue"'),
        (datetime, "soon", 'it: is "soon"; expected text in the format date-time'),
        (list[int], {"a": 1}, "it: is an object; expected a list"),
        (tuple[int, str], [1], "it: is a list of 1 item; expected a list of 2 items"),
        (set[int], [1, 1], "it: has the same item twice; remove one"),
        (dict[str, int], {"a b": "c"}, 'it["a b"]: is "c"; expected a whole number'),
        (dict[Colour, int], {"green": 1}, 'it.green: is "green"; expected "red" or "blue"'),
        (int | str | None, [], "it: is a list of 0 items; expected a whole number or text or null"),
        (Tree, 1, "it: is 1; expected an object (Tree)"),
        (Tree | None, {"name": 1}, "it.name: is 1; expected text"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_what_to_give(hint, data, problem):
    assert problems(one(hint), {"it": data}) == [problem]


@pytest.mark.parametrize(
    ("metadata", "hint", "good", "bad", "said"),
    [
        ({"ge": 0}, int, 0, -1, "is -1; expected at least 0"),
        ({"gt": 0}, float, 0.1, 0.0, "is 0.0; expected more than 0"),
        ({"lt": 1}, float | None, 0.9, 1.0, "is 1.0; expected less than 1"),
        ({"multiple_of": 0.1}, float, 0.3, 0.35, "is 0.35; expected a multiple of 0.1"),
        ({"pattern": "^[a-z]+$"}, str, "a", "A", "does not match the pattern ^[a-z]+$"),
        ({"max_length": 1}, list[int], [1], [1, 2], "has 2 items; expected at most 1"),
        ({"min_length": 1}, dict[str, int], {"a": 1}, {}, "has 0 keys; expected at least 1"),
    ],
)
def test_limits_of_a_field_are_held(metadata, hint, good, bad, said):
    cls = one(hint, metadata)

    assert parse(cls, {"it": good}).it == good
    assert problems(cls, {"it": bad}) == [f"it: {said}"]


def test_what_the_dataclass_itself_refuses_is_a_problem_too():
    @dataclass
    class Range:
        low: int
        high: int

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError("low is above high")

    assert problems(one(list[Range]), {"it": [{"low": 1, "high": 2}, {"low": 3, "high": 2}]}) == [
        "it[1]: low is above high"
    ]


def test_a_whole_number_may_stand_for_any_number_and_null_for_a_default():
    value = parse(one(float), {"it": 3}).it

    assert (value, type(value)) == (3.0, float)
    assert parse(Step, {"title": "a", "status": None, "notes": None}) == Step("a")


@dataclass(frozen=True)
class Add:
    left: "Expression"
    right: "Expression"
    kind: Literal["add"] = "add"


@dataclass(frozen=True)
class Multiply:
    left: "Expression"
    right: "Expression"
    kind: Literal["multiply"] = "multiply"


Expression = Add | Multiply | int | float


def test_a_union_takes_the_member_that_fits():
    value = Add(Multiply(1, 2.5), Add(3, 4))

    assert parse(Add, json_data(value)) == value
    assert problems(Add, {"left": {"kind": "multiply", "left": 1}, "right": "x"}) == [
        "left.right: is missing",
        'right: is "x"; expected an object (Add) or an object (Multiply) or a whole number or a number',
    ]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("red", Colour.RED),
        ("2025-01-01", datetime(2025, 1, 1)),  # noqa: DTZ001 - as it was given
        ([1, "a"], (1, "a")),
        ([1, 2, 3], [1, 2, 3]),
        ({"a": 1}, {"a": 1}),
        ({"name": "a"}, Tree("a")),
        (1.5, 1.5),
        (2, 2),
    ],
)
def test_a_union_of_everything_takes_each_for_what_it_is(data, value):
    hint = Colour | datetime | tuple[int, str] | list[int] | dict[str, int] | Tree | float | int
    found = parse(one(hint), {"it": data}).it

    assert (found, type(found)) == (value, type(value))


def test_anything_is_kept_as_it_is_and_values_that_are_there_already_are_taken():
    moment = datetime(2025, 1, 1, tzinfo=UTC)

    assert parse(one(Any), {"it": {"a": [None, 1.5]}}).it == {"a": [None, 1.5]}
    assert parse(one(Any | None), {"it": [1]}).it == [1]
    assert parse(one(datetime), {"it": moment}).it is moment
    assert problems(one(set), {"it": [[1]]}) == ["it[0]: cannot be in a set"]
    assert problems(one(set[Any]), {"it": 1}) == ["it: is 1; expected a list"]


def test_a_deep_union_is_read_in_time_that_grows_with_its_size():
    value = 1
    for _ in range(60):
        value = {"kind": "multiply", "left": value, "right": 1}
    broken = {"kind": "add", "left": value, "right": "x"}

    started = time.perf_counter()
    assert len(problems(Add, broken)) == 1
    assert time.perf_counter() - started < 5  # trying both at each level would take 2**60 steps


def test_a_strict_reading_leaves_no_false_problems():
    @dataclass
    class Point:
        x: float
        y: float

    assert problems(one(Point | None), {"it": {"x": 1, "y": "a"}}) == ['it.y: is "a"; expected a number']


@pytest.mark.parametrize(
    ("hint", "data", "value"),
    [
        (int, "3", 3),
        (int, " 3.0 ", 3),
        (int, 3.0, 3),
        (float, "2.5", 2.5),
        (bool, "True", True),
        (str, 3, "3"),
        (list[int], '["1", 2]', [1, 2]),
        (Tree, '{"name": 7}', Tree("7")),
        (int | None, "3", 3),
        (int | str, "3", "3"),
    ],
)
def test_coercing_takes_what_plainly_means_the_same(hint, data, value):
    found = parse(one(hint), {"it": data}, coerce=True).it

    assert (found, type(found)) == (value, type(value))
    if not isinstance(data, str) or hint != int | str:
        assert problems(one(hint), {"it": data})


@pytest.mark.parametrize(
    ("hint", "data"),
    [(int, "true"), (int, "3.5"), (int, "x"), (bool, "1"), (bool, "yes"), (str, True), (float, "nan"), (int, True)],
)
def test_coercing_does_not_guess(hint, data):
    (problem,) = problems(one(hint), {"it": data}, coerce=True)

    assert problem.startswith(f"it: is {json.dumps(data)}; expected")


FENCE = "```"


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "a"}',
        ' \n{"name": "a"}\n',
        f'{FENCE}json\n{{"name": "a"}}\n{FENCE}',
        f'{FENCE}\n{{"name": "a"}}{FENCE}',
        f'Sure! Here it is:\n\n{FENCE}json\n{{\n  "name": "a"\n}}\n{FENCE}\nI used {{braces}} and "quotes.',
        'As [1] says, {like this} and { that: {"name": "a"} Done.',
        'Not {} but {"name": "a"}',
        'First I thought {"name": ...}, now {"name": "a"}',
        'The "odd quote: {"name": "a"}',
    ],
)
def test_finds_the_json_whatever_stands_around_it(answer):
    assert parse(Tree, answer) == Tree("a")


def test_where_nothing_fits_the_first_object_is_what_is_wrong():
    assert problems(Tree, 'Not {"name": 1} nor {"nam": "a"} nor {"name": oops}.') == ["name: is 1; expected text"]


def test_braces_and_quotes_in_strings_are_part_of_the_string():
    value = Tree('} "quoted" { \\ \n', (Tree("{"),))

    assert parse(Tree, f"So: {json_text(value)} there") == value


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("I do not know.", "the value: contains no JSON object"),
        ("", "the value: contains no JSON object"),
        ("[1, 2]", "the value: is a list of 2 items; expected an object (Tree)"),
        (f'{FENCE}json\n[{{"name": "a"}}]\n{FENCE}', "the value: is a list of 1 item; expected an object (Tree)"),
        ('{"name": NaN}', "the value: is not JSON: NaN is not JSON"),
        (
            '{"name": "a", "next": {"name": "b"}',
            "the value: is not JSON: Expecting ',' delimiter: line 1 column 36 (char 35)",
        ),
        (
            '{"name": "a" "next": {"name": "b"}}',
            "the value: is not JSON: Expecting ',' delimiter: line 1 column 14 (char 13)",
        ),
    ],
)
def test_never_takes_the_inside_of_a_broken_answer_for_the_answer(answer, problem):
    assert problems(Tree, answer) == [problem]


def test_deep_and_hostile_answers_are_refused_in_good_time():
    deep = '{"name":"a","next":' * 100_000
    quotes = '{"name": "' + '\\"' * 200_000
    numbers = '{"name": ' + "9" * 10_000 + "}"
    data: dict[str, Any] = {"name": "a"}
    for _ in range(5_000):
        data = {"name": "a", "next": data}

    started = time.perf_counter()
    for answer in (deep, quotes, numbers, data, "{" * 100_000, '{"' * 100_000):
        with pytest.raises(OutputParseError):
            parse(Tree, answer)
    assert time.perf_counter() - started < 5


def test_arguments_of_a_tool_are_refused_with_the_same_words():
    with pytest.raises(ToolValidationError) as caught:
        parse_arguments(Step, '{"title": ""}', "add_step")

    assert str(caught.value) == (
        "Invalid arguments for add_step; fix these and call it again:\n- title: has 0 characters; expected at least 1"
    )
    with pytest.raises(ToolValidationError, match="the value: is not JSON: Expecting"):
        parse_arguments(Step, "title: a", "add_step")
    with pytest.raises(ToolValidationError, match="the value: is a list of 0 items; expected an object"):
        parse_arguments(Step, "[]", "add_step")


def test_a_set_is_written_in_one_order_whatever_order_it_has():
    assert json_data({"pear", "apple", "fig", "lime", "kiwi"}) == ["apple", "fig", "kiwi", "lime", "pear"]


def test_what_has_no_json_form_is_not_written():
    with pytest.raises(UnsupportedType, match="has type object, which has no JSON schema"):
        json_data([object()])
    with pytest.raises(UnsupportedType, match="the key 1 has type int"):
        json_data({1: 2})
    with pytest.raises(ValueError, match="value=nan: expected a finite number"):
        json_data(float("nan"))
