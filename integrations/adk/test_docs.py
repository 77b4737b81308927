"""The blocks that need google-adk run, and print what the page says they print.

They open with ```` ```python adk ````: the second word names the extra, and `tests/test_docs.py` leaves them to us.
"""

import re
import subprocess
import sys

import pytest

from tests.test_docs import PAGES, ROOT, alike, name_of

BLOCK = re.compile(r"^```python adk\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if "```python adk" in page.read_text()], ids=name_of)
def test_every_block_with_google_adk_runs_and_prints_what_it_says(page):
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert found
    for code, shown in found:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert alike(done.stdout, shown), done.stdout
