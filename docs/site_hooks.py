"""Changes that the site needs and the pages on their own do not."""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Remove the word after a fence's language, which says in which environment a test runs the block."""
    return re.sub(r"^```python \w+$", "```python", markdown, flags=re.MULTILINE)
