"""The inspector from the wheel alone: every page and asset, from an environment without the source tree."""

import json
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import httpx2
import pytest

from minutebook.testing import coding_session
from tests.service.inspector.parts import write_sessions

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of an environment with the wheel. Its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    found = folder / "bin" / "python"
    packages = Path(subprocess.check_output([found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True).strip())  # fmt: skip
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return found


def crawled(http, start):
    """The responses of all addresses that the pages name."""
    waiting, seen = [start], {}
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        response = seen[address] = http.get(address)
        if response.headers.get("content-type", "").startswith("text/html"):
            names = re.findall(r'(?:href|src|hx-get|data-svg)="([^"#]+)', response.text)
            waiting += [urljoin(address, unescape(name)) for name in names if not name.startswith("data:")]
    return seen


def test_every_page_and_asset_is_in_the_wheel(wheel, python, tmp_path):
    where = subprocess.check_output([python, "-c", "import minutebook; print(minutebook.__file__)"], cwd=tmp_path, text=True)  # fmt: skip
    assert str(ROOT) not in where
    messages = coding_session(seed=0, turns=4)
    file = write_sessions(tmp_path / "session.jsonl", {"id": "a", "model": "gpt-4o", "messages": messages})
    command = [python, "-m", "minutebook", "inspect", str(file), "--max-tokens", "8000", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            url = json.loads(server.stdout.readline())["url"]
            with httpx2.Client(base_url=url.partition("/open")[0], trust_env=False, timeout=60) as http:
                assert http.get(url).status_code == 303
                while "still reading" in http.get("/").text:
                    pass
                responses = crawled(http, "/")
        finally:
            server.terminate()
    failed = [(address, response.status_code) for address, response in responses.items() if response.status_code != 200]
    assets = {address.rpartition("/")[2]: len(response.content) for address, response in responses.items() if "/static/" in address}  # fmt: skip
    pages = {re.sub(r"^/c/[^/?]+", "/c/a", address).partition("?")[0] for address in responses}
    print(f"\nwheel: {wheel.stat().st_size:,} bytes; assets: {sum(assets.values()):,} bytes {assets}")  # noqa: T201 - sizes are part of the report

    assert failed == []
    assert {"style.css", "pages.css", "app.js", "rows.js", "conversation.js", "timeline.js", "theme.js", "htmx-2.0.11.min.js", "icon.svg"} <= set(assets)  # fmt: skip
    assert {f"/c/a/{name}" for name in ("timeline", "timeline.svg", "treemap", "heaviest", "whatif", "folds", "branches", "diff", "share")} <= pages  # fmt: skip
    with zipfile.ZipFile(wheel) as archive:
        assert any("vendor" in name and "LICENSE" in name.upper() for name in archive.namelist())
