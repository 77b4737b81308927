"""The Python blocks of README and docs as modules, for type checkers: `python docs/blocks.py FOLDER`.

A page is one module, and each line of code has its line number in the page, so that errors point into the page.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python(?: \w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def module_text(page: str) -> str:
    """The blocks of a page. Every other line is empty."""
    lines = [""] * (page.count("\n") + 1)
    for block in BLOCK.finditer(page):
        first = page.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines)


def write_modules(folder: Path) -> list[Path]:
    """Write a module for every page that has Python blocks."""
    written = []
    for page in PAGES:
        text = module_text(page.read_text(encoding="utf-8"))
        if text.strip():
            name = "__".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
            written.append(folder / f"{name}.py")
    return written


PYRIGHT = {
    "extraPaths": [str(ROOT / "src")],
    "ignore": ["docs__how_to__use_with_google_adk.py"],  # google-adk is not installed with the development tools
    "reportPossiblyUnboundVariable": False,  # the loops on the pages are never empty
}

if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    (target / "pyrightconfig.json").write_text(json.dumps(PYRIGHT), encoding="utf-8")
    sys.stdout.write(f"wrote {len(write_modules(target))} modules to {target}\n")
