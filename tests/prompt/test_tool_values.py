"""Whatever a tool returns, its result has the value or the reason why it cannot be written."""

import json
from collections import deque
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from minutebook.errors import UnsupportedType
from minutebook.prompt.tools import ToolResult, tool
from tests.prompt.generated import Colour


@dataclass(frozen=True)
class Price:
    amount: Decimal
    count: int


class Order(BaseModel):
    price: Decimal
    day: date


class Unknown:
    def __str__(self):
        return "unknown to JSON"


def text_of_value(value):
    return tool(lambda: value, name="f", description="F.").call({}, context=SimpleNamespace()).render()


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Decimal("1.50"), "1.50"),
        ([{"order": 17, "price": Decimal("9.50")}], [{"order": 17, "price": "9.50"}]),
        (Price(Decimal(1), 2), {"amount": "1", "count": 2}),
        (Order(price=Decimal("2.5"), day=date(2026, 1, 2)), {"price": "2.5", "day": "2026-01-02"}),
        ({"data": b"text", "raw": b"\xff"}, {"data": "text", "raw": "/w=="}),
        (b"", ""),
        (float("nan"), "nan"),
        ({"mean": float("-inf")}, {"mean": "-inf"}),
        ({"error": ValueError("no row")}, {"error": "no row"}),
        ({1: 2, None: 3, (1, "a"): 4, Colour.RED: 5}, {"1": 2, "null": 3, '[1, "a"]': 4, "red": 5}),
        (Unknown(), "unknown to JSON"),
        ((number for number in range(3)), [0, 1, 2]),
        (deque([1]), [1]),
        ({"a": 1}.values(), [1]),
        ({Decimal(2), Decimal(1)}, ["1", "2"]),
        (timedelta(days=1), "1 day, 0:00:00"),
    ],
)
def test_a_value_that_json_does_not_know_is_written_as_text(value, data):
    assert json.loads(text_of_value(value)) == data


def test_a_value_that_cannot_be_written_is_an_error():
    itself = [Decimal(1)]
    itself.append(itself)

    with pytest.raises(UnsupportedType, match="cannot be written as JSON, because it contains itself"):
        text_of_value(itself)
    with pytest.raises(UnsupportedType, match="two keys are written as '1'"):
        text_of_value({1: "a", "1": "b"})


SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.decimals(), st.uuids()),
    *(st.datetimes(), st.times(), st.timedeltas(), st.complex_numbers(), st.builds(Unknown), st.builds(ValueError)),
    *(st.builds(Price, st.decimals(), st.integers()), st.just(PurePosixPath("a")), st.just(UUID(int=1)), st.just(int)),
)
KEYS = st.one_of(st.text(), st.integers(), st.decimals(allow_nan=False), st.binary(), st.dates())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner, inner), st.dictionaries(KEYS, inner, max_size=3), st.lists(inner).map(deque)
    ),
)


@pytest.mark.fuzz
@given(VALUES.filter(lambda value: value is not None and not isinstance(value, str)))
def test_no_value_is_lost(value):
    try:
        text = text_of_value(value)
    except UnsupportedType as error:
        assert "cannot be written as JSON" in str(error)
        return

    data = json.loads(text, parse_constant=pytest.fail)
    if isinstance(value, dict | list | tuple | deque):
        assert len(data) == len(value)
    assert text
    assert ToolResult("Found:", value).render() == f"Found:\n\n{text}"
