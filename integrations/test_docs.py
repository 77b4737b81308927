"""The blocks that need the local model run, and print what the page says they print.

They open with ```` ```python local ````: the second word names the extra, and `tests/test_docs.py` leaves them to us.
"""

import contextlib
import io
import re

import pytest

from tests.test_docs import PAGES, alike, name_of

BLOCK = re.compile(r"^```(python local|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [page for page in PAGES if "```python local" in page.read_text()], ids=name_of)
def test_every_block_with_the_local_model_runs_and_prints_what_it_says(page):
    namespace = {"__name__": "docs"}
    found = blocks(page)
    for place, (language, code) in enumerate(found):
        if language == "text":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name_of(page), "exec"), namespace)
        shown = found[place + 1][1] if place + 1 < len(found) and found[place + 1][0] == "text" else ""
        assert alike(printed.getvalue(), shown), printed.getvalue()
