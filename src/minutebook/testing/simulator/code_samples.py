"""The functions of a generated project, each with a possible bug.

They are templates of real Python code: with `good` a function passes its test, with `bad` it fails with `report`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SampleFunction:
    """A function, its test and its possible bug."""

    name: str
    code: str
    good: str
    """The part of `code` in which the bug may be."""
    bad: str
    """The same part with the bug."""
    test: str
    report: str
    """The last lines of the failing test's report."""
    at: str
    """The start of the line that the report points at, in the test or in the code."""
    symptom: str
    """What the user reports."""
    cause: str
    """What the agent finds out."""
    fails_in_code: bool = False
    """Whether the line `at` is in the code, not in the test."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A function that the user may request."""

    name: str
    code: str
    test: str
    wish: str


FUNCTIONS = (
    SampleFunction(
        name="page_of_$nouns",
        code='''\
def page_of_$nouns($nouns: list[$Noun], page: int, size: int = PAGE_SIZE) -> list[$Noun]:
    """One page of a listing; pages are counted from 1, as in the public API."""
    if page < 1 or size < 1:
        raise ${Noun}Error(f"there is no page {page} of size {size}")
    start = (page - 1) * size
    return $nouns[start : start + size]
''',
        good="    start = (page - 1) * size\n",
        bad="    start = page * size\n",
        test="""\
def test_the_first_page_begins_with_the_first_$noun():
    $nouns = [make(number) for number in range(1, 6)]

    assert page_of_$nouns($nouns, page=1, size=2) == $nouns[:2]
""",
        at="    assert page_of_$nouns(",
        report="assert [$Noun(id='$prefix-3', ...), $Noun(id='$prefix-4', ...)] == [$Noun(id='$prefix-1', ...), $Noun(id='$prefix-2', ...)]\n"
        "\n  At index 0 diff: $Noun(id='$prefix-3', ...) != $Noun(id='$prefix-1', ...)\n  Use -v to get more diff",
        symptom="The first page of $nouns in the dashboard starts with the 51st entry; the newest fifty never show up.",
        cause="pages are counted from 1 in the API, but the offset was computed as if they were counted from 0",
    ),
    SampleFunction(
        name="split_$amount",
        code='''\
def split_$amount(total: int, ways: int) -> list[int]:
    """Shares of a total that add up to it again; the first ones take what is left over."""
    if ways < 1:
        raise ${Noun}Error(f"cannot split {total} {ways} ways")
    share, rest = divmod(total, ways)
    return [share + 1] * rest + [share] * (ways - rest)
''',
        good="    share, rest = divmod(total, ways)\n    return [share + 1] * rest + [share] * (ways - rest)\n",
        bad="    share = total // ways\n    return [share] * ways\n",
        test="""\
def test_shares_add_up_to_the_total():
    shares = split_$amount(100, 3)

    assert sum(shares) == 100
    assert shares == [34, 33, 33]
""",
        at="    assert sum(shares)",
        report="assert 99 == 100\n +  where 99 = sum([33, 33, 33])",
        symptom="When one $noun is split three ways the shares are one short of the total. Finance sees it in every export.",
        cause="the remainder of the integer division was thrown away, so the shares added up to less than the total",
    ),
    SampleFunction(
        name="latest_$nouns",
        code='''\
def latest_$nouns(updates: Iterable[$Noun]) -> list[$Noun]:
    """The last word on every $noun, in the order in which they were first heard of."""
    latest: dict[str, $Noun] = {}
    for update in updates:
        latest[update.id] = update
    return list(latest.values())
''',
        good="        latest[update.id] = update\n",
        bad="        latest.setdefault(update.id, update)\n",
        test="""\
def test_a_later_update_replaces_an_earlier_one():
    updates = [make(1), make(2), make(1, status="$closed")]

    latest = latest_$nouns(updates)

    assert [$noun.status for $noun in latest] == ["$closed", "$open"]
""",
        at="    assert [$noun.status",
        report="AssertionError: assert ['$open', '$open'] == ['$closed', '$open']\n\n"
        "  At index 0 diff: '$open' != '$closed'\n  Use -v to get more diff",
        symptom="A $noun that was set to $closed an hour ago still shows as $open after the nightly sync.",
        cause="`setdefault` keeps the first version it sees, so every later update of the same id was ignored",
    ),
    SampleFunction(
        name="overdue_$nouns",
        code='''\
def overdue_$nouns($nouns: Iterable[$Noun], days: int, now: datetime | None = None) -> list[$Noun]:
    """The $nouns that have been $open for longer than `days`."""
    limit = (now or datetime.now(UTC)) - timedelta(days=days)
    return [$noun for $noun in $nouns if $noun.status == "$open" and $noun.created_at < limit]
''',
        good="    limit = (now or datetime.now(UTC)) - timedelta(days=days)\n",
        bad="    limit = (now or datetime.now()) - timedelta(days=days)\n",
        test="""\
def test_overdue_works_without_being_told_the_time():
    old = make(1, created_at=datetime(2020, 1, 1, tzinfo=UTC))

    assert overdue_$nouns([old, make(2, status="$closed")], days=30) == [old]
""",
        at="    return [$noun for $noun in $nouns if $noun.status",
        fails_in_code=True,
        report="TypeError: can't compare offset-naive and offset-aware datetimes",
        symptom="The nightly reminder job dies with `TypeError: can't compare offset-naive and offset-aware datetimes`.",
        cause="`datetime.now()` without a zone is naive, while every `created_at` we store is in UTC",
    ),
    SampleFunction(
        name="${noun}_from_row",
        code='''\
def ${noun}_from_row(row: dict[str, Any]) -> $Noun:
    """A $noun as the database holds it; every column but the keys may be NULL."""
    return $Noun(
        id=row["id"],
        $owner=row["$owner"],
        $amount=int(row.get("$amount") or 0),
        status=row.get("status") or "$open",
        tags=tuple(tag for tag in (row.get("tags") or "").split(",") if tag),
    )
''',
        good='        tags=tuple(tag for tag in (row.get("tags") or "").split(",") if tag),\n',
        bad='        tags=tuple(row["tags"].split(",")),\n',
        test="""\
def test_a_row_without_tags_is_a_${noun}_without_tags():
    row = {"id": "$prefix-7", "$owner": "$first", "$amount": None, "status": None, "tags": None}

    assert ${noun}_from_row(row).tags == ()
""",
        at='        tags=tuple(row["tags"].split(',
        fails_in_code=True,
        report="AttributeError: 'NoneType' object has no attribute 'split'",
        symptom="Loading old $nouns fails with `AttributeError: 'NoneType' object has no attribute 'split'`.",
        cause="rows written before tags existed have NULL in that column, and the loader split it without looking",
    ),
    SampleFunction(
        name="${noun}_cache_key",
        code='''\
def ${noun}_cache_key($noun: $Noun, locale: str = "en") -> str:
    """Where the rendered $noun is cached; ids are unique only within one $owner."""
    return f"$area:$noun:{$noun.$owner}:{$noun.id}:{locale}"
''',
        good='    return f"$area:$noun:{$noun.$owner}:{$noun.id}:{locale}"\n',
        bad='    return f"$area:$noun:{$noun.id}:{locale}"\n',
        test="""\
def test_two_owners_never_share_a_cache_entry():
    ours, theirs = make(1), make(1, $owner="$second")

    assert ${noun}_cache_key(ours) != ${noun}_cache_key(theirs)
""",
        at="    assert ${noun}_cache_key(ours)",
        report="AssertionError: assert '$area:$noun:$prefix-1:en' != '$area:$noun:$prefix-1:en'\n"
        " +  where '$area:$noun:$prefix-1:en' = ${noun}_cache_key($Noun(id='$prefix-1', $owner='$first', ...))",
        symptom="$second was shown a $noun that belongs to $first. Same id, different $owner. This one is urgent.",
        cause="the cache key left out `$owner`, and ids are unique only within one of them",
    ),
    SampleFunction(
        name="fetch_$noun",
        code='''\
def fetch_$noun(client: Any, key: str, attempts: int = 3) -> $Noun:
    """Ask the upstream for a $noun, again after a timeout, `attempts` times in all."""
    for attempt in range(1, attempts + 1):
        try:
            return client.get("$noun", key)
        except TimeoutError:
            logger.warning("$area.$noun: attempt %d of %d for %s timed out", attempt, attempts, key)
    raise ${Noun}Error(f"{key}: no answer after {attempts} attempts")
''',
        good="    for attempt in range(1, attempts + 1):\n",
        bad="    for attempt in range(1, attempts):\n",
        test="""\
def test_the_last_attempt_counts():
    class Slow:
        left = 2

        def get(self, kind, key):
            if self.left:
                self.left -= 1
                raise TimeoutError
            return make(1)

    assert fetch_$noun(Slow(), "$prefix-1", attempts=3) == make(1)
""",
        at='    raise ${Noun}Error(f"{key}: no answer after',
        fails_in_code=True,
        report="$package.$area.$noun.${Noun}Error: $prefix-1: no answer after 3 attempts",
        symptom="We configured 3 attempts for the upstream but the logs show only two before it gives up on a $noun.",
        cause="`range(1, attempts)` stops one short, so the last attempt was never made",
    ),
    SampleFunction(
        name="batches_of_$nouns",
        code='''\
def batches_of_$nouns($nouns: list[$Noun], size: int = BATCH_SIZE) -> Iterator[list[$Noun]]:
    """The $nouns in batches of `size`; the last one may be smaller."""
    if size < 1:
        raise ${Noun}Error(f"a batch of {size} is no batch")
    for start in range(0, len($nouns), size):
        yield $nouns[start : start + size]
''',
        good="    for start in range(0, len($nouns), size):\n",
        bad="    for start in range(0, len($nouns) - size + 1, size):\n",
        test="""\
def test_the_last_batch_may_be_smaller():
    $nouns = [make(number) for number in range(5)]

    assert [len(batch) for batch in batches_of_$nouns($nouns, size=2)] == [2, 2, 1]
""",
        at="    assert [len(batch)",
        report="assert [2, 2] == [2, 2, 1]\n\n  Right contains one more item: 1\n  Use -v to get more diff",
        symptom="The export is missing a few $nouns at the end, unless their number happens to divide by the batch size.",
        cause="the range stopped at the last full batch, so a smaller one at the end was never sent",
    ),
    SampleFunction(
        name="parse_$amount",
        code='''\
def parse_$amount(text: str) -> int:
    """The amount in a line of an import file, in hundredths: '1,234.50' is 123450."""
    whole, _, rest = text.strip().replace(",", "").partition(".")
    try:
        return int(whole or 0) * 100 + int(rest[:2].ljust(2, "0"))
    except ValueError:
        raise ${Noun}Error(f"not an amount: {text!r}") from None
''',
        good='    whole, _, rest = text.strip().replace(",", "").partition(".")\n',
        bad='    whole, _, rest = text.strip().partition(".")\n',
        test="""\
def test_amounts_may_have_thousands_separators():
    assert parse_$amount("1,234.50") == 123450
    assert parse_$amount(" 7 ") == 700
""",
        at='        raise ${Noun}Error(f"not an amount',
        fails_in_code=True,
        report="$package.$area.$noun.${Noun}Error: not an amount: '1,234.50'",
        symptom="The import rejects every line above a thousand: `${Noun}Error: not an amount: '1,234.50'`.",
        cause="thousands separators were never removed before the text was turned into a number",
    ),
    SampleFunction(
        name="close_$noun",
        code='''\
def close_$noun($noun: $Noun, closed: Iterable[str] = ("$closed", "cancelled")) -> $Noun:
    """The $noun as $closed; one that is closed already is left alone and that is an error."""
    if $noun.status in tuple(closed):
        raise ${Noun}Error(f"{$noun.id} is {$noun.status} already")
    return replace($noun, status="$closed")
''',
        good='    if $noun.status in tuple(closed):\n        raise ${Noun}Error(f"{$noun.id} is {$noun.status} already")\n',
        bad='    if $noun.status == "$closed":\n        raise ${Noun}Error(f"{$noun.id} is {$noun.status} already")\n',
        test="""\
def test_a_cancelled_${noun}_cannot_be_closed():
    with pytest.raises(${Noun}Error, match="already"):
        close_$noun(make(1, status="cancelled"))
""",
        at="    with pytest.raises(${Noun}Error, match",
        report="Failed: DID NOT RAISE <class '$package.$area.$noun.${Noun}Error'>",
        symptom="A cancelled $noun can still be set to $closed from the API. It must answer with an error instead.",
        cause="only one of the two final states was checked, so a cancelled one went through",
    ),
    SampleFunction(
        name="mean_$amount",
        code='''\
def mean_$amount($nouns: Iterable[$Noun]) -> float:
    """The mean of all amounts, 0 when there is none."""
    amounts = [$noun.$amount for $noun in $nouns]
    return sum(amounts) / len(amounts) if amounts else 0.0
''',
        good="    return sum(amounts) / len(amounts) if amounts else 0.0\n",
        bad="    return sum(amounts) / len(amounts)\n",
        test="""\
def test_the_mean_of_nothing_is_zero():
    assert mean_$amount([]) == 0.0
    assert mean_$amount([make(1, $amount=10), make(2, $amount=20)]) == 15
""",
        at="    return sum(amounts) / len(amounts)",
        fails_in_code=True,
        report="ZeroDivisionError: division by zero",
        symptom="The summary page is a 500 for every new account: `ZeroDivisionError: division by zero`.",
        cause="an account without a single $noun divides by the length of an empty list",
    ),
    SampleFunction(
        name="${nouns}_between",
        code='''\
def ${nouns}_between($nouns: Iterable[$Noun], start: datetime, end: datetime) -> list[$Noun]:
    """The $nouns created from `start` up to, and not including, `end`."""
    return [$noun for $noun in $nouns if start <= $noun.created_at < end]
''',
        good="    return [$noun for $noun in $nouns if start <= $noun.created_at < end]\n",
        bad="    return [$noun for $noun in $nouns if start <= $noun.created_at <= end]\n",
        test="""\
def test_midnight_belongs_to_one_day_only():
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 3)]
    midnight = make(1, created_at=days[1])

    found = [${nouns}_between([midnight], start, end) for start, end in zip(days, days[1:])]

    assert found == [[], [midnight]]
""",
        at="    assert found == [[], [midnight]]",
        report="assert [[$Noun(id='$prefix-1', ...)], [$Noun(id='$prefix-1', ...)]] == [[], [$Noun(id='$prefix-1', ...)]]\n\n"
        "  At index 0 diff: [$Noun(id='$prefix-1', ...)] != []\n  Use -v to get more diff",
        symptom="A $noun created exactly at midnight is counted on both days, so the monthly total is off by a few.",
        cause="the end of the interval was included, so midnight belonged to two days",
    ),
    SampleFunction(
        name="sorted_$nouns",
        code='''\
def sorted_$nouns($nouns: Iterable[$Noun]) -> list[$Noun]:
    """By id as people read it: $prefix-9 comes before $prefix-10."""
    return sorted($nouns, key=lambda $noun: (len($noun.id), $noun.id))
''',
        good="    return sorted($nouns, key=lambda $noun: (len($noun.id), $noun.id))\n",
        bad="    return sorted($nouns, key=lambda $noun: $noun.id)\n",
        test="""\
def test_nine_comes_before_ten():
    assert [$noun.id for $noun in sorted_$nouns([make(10), make(9)])] == ["$prefix-9", "$prefix-10"]
""",
        at="    assert [$noun.id for $noun in sorted_$nouns(",
        report="AssertionError: assert ['$prefix-10', '$prefix-9'] == ['$prefix-9', '$prefix-10']\n\n"
        "  At index 0 diff: '$prefix-10' != '$prefix-9'\n  Use -v to get more diff",
        symptom="In the list $prefix-10 comes before $prefix-9, which confuses everybody who looks for a $noun by number.",
        cause="ids were compared as text, and as text '10' is less than '9'",
    ),
    SampleFunction(
        name="csv_of_$nouns",
        code='''\
def csv_of_$nouns($nouns: Iterable[$Noun]) -> str:
    """The $nouns as CSV with a header line; tags may hold commas and quotes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\\n")
    writer.writerow(("id", "$owner", "$amount", "status", "tags"))
    for $noun in $nouns:
        writer.writerow(($noun.id, $noun.$owner, $noun.$amount, $noun.status, ",".join($noun.tags)))
    return out.getvalue()
''',
        good='        writer.writerow(($noun.id, $noun.$owner, $noun.$amount, $noun.status, ",".join($noun.tags)))\n',
        bad="        out.write(f\"{$noun.id},{$noun.$owner},{$noun.$amount},{$noun.status},{','.join($noun.tags)}\\n\")\n",
        test="""\
def test_tags_stay_in_one_column():
    text = csv_of_$nouns([make(1, tags=("fragile", "express"))])

    rows = list(csv.reader(io.StringIO(text)))
    assert [len(row) for row in rows] == [5, 5]
""",
        at="    assert [len(row) for row in rows]",
        report="assert [5, 6] == [5, 5]\n\n  At index 1 diff: 6 != 5\n  Use -v to get more diff",
        symptom="The CSV of $nouns has a column too many whenever a $noun has two tags; the warehouse cannot load it.",
        cause="rows were joined by hand, so a comma inside the tags was taken for a new column",
    ),
)

FEATURES = (
    Feature(
        name="${nouns}_by_status",
        code='''\
def ${nouns}_by_status($nouns: Iterable[$Noun]) -> dict[str, list[$Noun]]:
    """The $nouns in groups, one for each status that occurs."""
    groups: dict[str, list[$Noun]] = {}
    for $noun in $nouns:
        groups.setdefault($noun.status, []).append($noun)
    return groups
''',
        test="""\
def test_groups_by_status():
    first, second = make(1), make(2, status="$closed")

    assert ${nouns}_by_status([first, second]) == {"$open": [first], "$closed": [second]}
""",
        wish="group $nouns by their status",
    ),
    Feature(
        name="oldest_$noun",
        code='''\
def oldest_$noun($nouns: Iterable[$Noun]) -> $Noun | None:
    """The $noun that has waited longest, or None when none waits."""
    waiting = [$noun for $noun in $nouns if $noun.status == "$open"]
    return min(waiting, key=lambda $noun: $noun.created_at, default=None)
''',
        test="""\
def test_the_oldest_is_the_one_that_waited_longest():
    old, new = (make(year, created_at=datetime(year, 1, 1, tzinfo=UTC)) for year in (2020, 2024))

    assert oldest_$noun([new, old]) == old
    assert oldest_$noun([]) is None
""",
        wish="find the $noun that has been waiting longest",
    ),
    Feature(
        name="total_by_$owner",
        code='''\
def total_by_$owner($nouns: Iterable[$Noun]) -> dict[str, int]:
    """The sum of `$amount` for each $owner."""
    totals: dict[str, int] = {}
    for $noun in $nouns:
        totals[$noun.$owner] = totals.get($noun.$owner, 0) + $noun.$amount
    return totals
''',
        test="""\
def test_totals_are_kept_apart():
    ours, theirs = make(1, $amount=5), make(2, $amount=7, $owner="$second")

    assert total_by_$owner([ours, theirs, ours]) == {"$first": 10, "$second": 7}
""",
        wish="add up `$amount` for each `$owner`, for the monthly report",
    ),
    Feature(
        name="tagged_$nouns",
        code='''\
def tagged_$nouns($nouns: Iterable[$Noun], *tags: str) -> list[$Noun]:
    """The $nouns that have every one of these tags."""
    return [$noun for $noun in $nouns if set(tags) <= set($noun.tags)]
''',
        test="""\
def test_every_tag_is_needed():
    both, one = make(1, tags=("express", "fragile")), make(2, tags=("express",))

    assert tagged_$nouns([both, one], "express", "fragile") == [both]
""",
        wish="filter $nouns by tags, where all of the given tags must be there",
    ),
)

MODULE = '''\
"""Everything $package knows about $nouns in $area.

A $noun is a value: functions here return a changed copy and never touch the one they were given. Storage lives in
`$package.$area.store`, the HTTP handlers in `$package.api`.
"""

{imports}
logger = logging.getLogger(__name__)

PAGE_SIZE = 50
BATCH_SIZE = 200


class ${Noun}Error(Exception):
    """Something was asked of a $noun that it cannot do."""


@dataclass(frozen=True)
class $Noun:
    """One $noun of one $owner."""

    id: str
    $owner: str
    $amount: int = 0
    status: str = "$open"
    created_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    tags: tuple[str, ...] = ()
'''

TESTS = '''\
"""$Noun, as the rest of $package sees it."""

import csv
import io
from datetime import UTC, datetime

import pytest

from $package.$area.$noun import (
{names}
)


def make(number, **changes):
    facts = {"id": f"$prefix-{number}", "$owner": "$first", **changes}
    return $Noun(**facts)
'''

IMPORTS = (
    ("csv.", "import csv"),
    ("io.", "import io"),
    ("logging.", "import logging"),
    ("Iterable|Iterator", "from collections.abc import Iterable, Iterator"),
    ("@dataclass|replace(", "from dataclasses import dataclass, replace"),
    ("datetime", "from datetime import UTC, datetime, timedelta"),
    ("Any", "from typing import Any"),
)
"""What a module imports when one of the words before it occurs in its text."""
