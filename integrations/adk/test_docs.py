"""Code blocks in the docs that need google-adk run and print the documented output.

They start with ```` ```python adk ````: the second word names the extra, and `tests/test_docs.py` skips them.
"""

import re
import subprocess
import sys

import pytest

from tests.test_docs import PAGES, ROOT, alike, name_of

BLOCK = re.compile(r"^```python adk\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if "```python adk" in page.read_text()], ids=name_of)
def test_every_block_with_google_adk_runs_and_prints_its_output(page):
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks
    for code, output in blocks:
        process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        assert alike(process.stdout, output), process.stdout
