"""Every block in README and docs runs, and prints what the page says it prints."""

import ast
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from bench import tasks
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from tests.formats.samples import SAMPLES

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PUBLIC_MODULES = {line.partition(":")[0] for line in (ROOT / "tests/public_names.txt").read_text().splitlines()}
PUBLIC_MODULES |= {"minutebook.errors"}
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def support_answer(request):
    """The answer of a support agent that is asked about an order."""
    order = re.search(r"order (\d+)", str(request.messages[-1].get("content")))
    text = f"Order {order[1]} left the depot on Monday." if order else "You are welcome."
    return say(text + " It arrives within three days, between 9 and 17." * 2)


SCRIPTS = {
    "run-an-agent": (
        call("find_order", number=17),
        "Order 17 is packed and leaves today.",
        call("find_order", number=18),
        "It is packed, too.",
    ),
    "with-the-openai-client": (call("find_order", number=17), "Order 17 is packed and leaves today."),
    "with-the-anthropic-client": (call("find_order", number=17), "Order 17 is packed and leaves today."),
}
"""The first answers that a page's provider gives. After them it is `support_answer`."""


@pytest.fixture
def provider(page, tmp_path, monkeypatch):
    """The provider that the official clients of a page call. The page runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    with LoopbackProvider(ScriptedModel(*SCRIPTS.get(page.stem, ()), otherwise=support_answer)) as provider:
        for client, url in (("OPENAI", provider.base_url), ("ANTHROPIC", provider.anthropic_url)):
            monkeypatch.setenv(f"{client}_BASE_URL", url)
            monkeypatch.setenv(f"{client}_API_KEY", "any")
        yield provider
        assert [request for request in provider.requests if request.status != 200] == []


def blocks(page):
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def name_of(page):
    return str(page.relative_to(ROOT))


def alike(said, expected):
    """Equal line by line, where `...` stands for any lines and trailing blanks do not count."""
    pattern = re.escape("\n".join(line.rstrip() for line in expected.strip().splitlines())).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in said.strip().splitlines()), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_runs_and_prints_what_it_says(page, provider):
    namespace = {"__name__": "docs"}
    found = blocks(page)
    for place, (language, code) in enumerate(found):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name_of(page), "exec"), namespace)
        if place + 1 < len(found) and found[place + 1][0] == "text":
            assert alike(printed.getvalue(), found[place + 1][1]), printed.getvalue()
        else:
            assert printed.getvalue() == "", f"the page does not show what this block prints: {printed.getvalue()}"


@pytest.mark.parametrize("page", [page for page in PAGES if "```console" in page.read_text()], ids=name_of)
def test_every_command_runs_and_prints_what_it_says(page, tmp_path):
    """`$ command` lines, each followed by its output; a command may end with `# exit N`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "HOME": str(tmp_path)}
    if "~/.claude" in page.read_text():
        session = tmp_path / ".claude" / "projects" / "-work" / "s-1.jsonl"
        session.parent.mkdir(parents=True)
        session.write_bytes(SAMPLES["claude code session"][1])
    for language, block in blocks(page):
        if language == "json":
            (tmp_path / "chat.json").write_text(block, encoding="utf-8")
        if language != "console":
            continue
        for command, _, expected in (part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]):
            wanted = re.search(r"# exit (\d+)$", command)
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == int(wanted[1] if wanted else 0), f"{command}\n{done.stdout}{done.stderr}"
            assert alike(done.stdout + done.stderr, expected), f"{command}\n{done.stdout}{done.stderr}"


def test_every_python_block_passes_the_type_checker(tmp_path, monkeypatch):
    """mypy strict, once over all pages: a module per page, with the line numbers of the page."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    modules = import_module("blocks").write_modules(tmp_path)
    command = [sys.executable, "-m", "mypy", *map(str, modules)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert len(modules) > 20
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_imports_public_names_only(page):
    imports = [
        node
        for language, code in blocks(page)
        if language == "python"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    modules = [node.module or "" for node in imports if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
    ours = {module for module in modules if module.partition(".")[0] == "minutebook"}

    assert ours <= PUBLIC_MODULES


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_generated_pages_are_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = import_module("generate")

    for page, make in generate.PAGES.items():
        assert page.read_text(encoding="utf-8") == make(), f"run `make docs`: {page.name} is stale"


def test_the_site_builds_without_warnings_and_loads_nothing_from_other_servers(tmp_path):
    """Warnings are, among others, links to missing pages or headings, and pages that the navigation leaves out."""
    pytest.importorskip("material", reason="mkdocs-material is not installed; it is part of minutebook[dev]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    html = {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    loaded = {
        url
        for text in html.values()
        for url in re.findall(r"""(?:src|<link[^>]* href)=["']?(https?://[^"' >]+)""", text)
    }

    assert done.returncode == 0, done.stderr  # with --quiet, mkdocs would not count warnings
    assert "WARNING" not in done.stderr
    assert len(html) > len(PAGES) // 2
    assert loaded == set()


@pytest.mark.parametrize(
    ("page", "files"), [("architecture.md", r"`([\w.-]+/[\w./-]*)`"), ("coverage.md", r"`([\w/]+\.py)")]
)
def test_the_pages_that_name_files_name_files_that_exist(page, files):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = {name for name in re.findall(files, text) if "/" in name and "NAME" not in name}
    homes = (ROOT, ROOT / "src" / "minutebook", ROOT / "tests")
    planned = {"formats/"}
    gone = sorted(name for name in named - planned if not any((home / name).exists() for home in homes))

    assert named
    assert gone == [], f"docs/{page} names files that are gone: {gone}"


def test_every_test_that_the_coverage_page_names_exists():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8"))
    gone = [
        f"{file}::{name}"
        for file, name in named
        if f"def {name}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8")
    ]

    assert named
    assert gone == []


@pytest.mark.parametrize("operation", ["`view_of` with", "a streamed chat completion"])
def test_the_architecture_page_describes_the_files_of_each_main_path(operation, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    architecture = import_module("architecture")
    title = operation.removesuffix(" with")
    page = architecture.PAGE.read_text(encoding="utf-8")
    section = page.partition(f"\n## Main path: {title}\n")[2].partition("\n## ")[0]
    described = set(re.findall(r"`([\w/]+\.py)`", section))
    passed = set(architecture.traced(next(name for name in architecture.PATHS if name.startswith(operation))).files)

    assert len(passed ^ described) <= architecture.FILES_MAY_DIFFER, (
        f"add to {title}: {sorted(passed - described)}; remove: {sorted(described - passed)}"
    )


def test_the_readme_names_the_two_commands_and_fits_a_screen_or_so():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "`make demo`" in readme
    assert "`make test`" in readme
    assert len(readme.splitlines()) <= 80
    assert shutil.which("make") is not None


def test_the_costs_in_the_readme_are_those_that_the_lab_prints(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    rows = re.findall(
        r"^\| `(?:token_budget|sliding_window).*", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )

    assert len(rows) >= 2
    assert set(rows) <= set(import_module("lab_example").table_rows())


def test_the_comparison_in_the_readme_has_the_figures_of_the_benchmark():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = []
    for number, task in tasks.TASKS.items():
        remark = f" ({task.peer.remark})" if task.peer.remark else ""
        lines = tasks.size_of(tasks.path_of(number)).lines
        rows.append(f"| {task.title} | {lines} | {task.peer.lines}: {task.peer.name}{remark} |")

    table = readme[readme.index("| task |") :].partition("\n\n")[0].splitlines()[2:]
    assert len(table) >= 4
    assert set(table) <= set(rows)
