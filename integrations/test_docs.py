"""Code blocks in the docs that need the local model run and print the documented output.

They start with ```` ```python local ````: the second word names the extra, and `tests/test_docs.py` skips them.
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
def test_every_block_with_the_local_model_runs_and_prints_its_output(page):
    namespace = {"__name__": "docs"}
    page_blocks = blocks(page)
    for index, (language, code) in enumerate(page_blocks):
        if language == "text":
            continue
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            exec(compile(code, name_of(page), "exec"), namespace)
        output = (
            page_blocks[index + 1][1] if index + 1 < len(page_blocks) and page_blocks[index + 1][0] == "text" else ""
        )
        assert alike(stdout.getvalue(), output), stdout.getvalue()
