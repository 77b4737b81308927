"""Changes that the site needs and the pages on their own do not."""

import re
from pathlib import Path
from typing import Any

SHIM = "https://unpkg.com/iframe-worker/shim"
"""A script that the offline plugin loads from another server: it makes the search work in pages opened from files."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Remove the word after a fence's language, which says in which environment a test runs the block."""
    return re.sub(r"^```python \w+$", "```python", markdown, flags=re.MULTILINE)


def on_post_build(config: Any, **_: Any) -> None:
    """Load the script from the site itself."""
    site = Path(config.site_dir)
    for page in site.rglob("*.html"):
        above = "../" * (len(page.relative_to(site).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(SHIM, f"{above}assets/iframe-worker.js"), encoding="utf-8")
