"""The tools of a simulated agent. Each works on the generated project and returns output like that of the real tool."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minutebook.testing.simulator.code_samples import SampleFunction
from minutebook.testing.simulator.project import Module, Project

WIDTH = 80
"""Characters per line of a test report."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with its result."""

    tool: str
    arguments: dict[str, Any]
    result: str


class SimulatedTools:
    """Reads, searches, edits and tests a project."""

    def __init__(self, project: Project, rng: random.Random) -> None:
        self.project = project
        self._rng = rng

    def list_files(self, path: str) -> Call:
        area = next((part for part in path.split("/") if part in self.project.files), None)
        if area is None:
            package = self.project.theme.package
            names = [f"src/{package}/{name}/" for name in self.project.area_names()]
            lines = [
                *names,
                f"src/{package}/api.py",
                f"src/{package}/settings.py",
                "tests/",
                "pyproject.toml",
                "README.md",
            ]
        else:
            files = self.project.files[area]
            lines = [f"{len(text):>7}  {name}" for name, text in sorted(files.items()) if name.startswith(path)]
        return Call("list_files", {"path": path}, "\n".join(lines))

    def read_file(self, path: str, lines: tuple[int, int] | None = None) -> Call:
        text = self.project.text(path).splitlines()
        start, stop = lines or (1, len(text))
        numbered = [f"{number:>6}\t{line}" for number, line in enumerate(text, 1) if start <= number <= stop]
        arguments: dict[str, Any] = {"path": path}
        if lines:
            arguments |= {"start_line": start, "end_line": stop}
        return Call("read_file", arguments, "\n".join(numbered))

    def search(self, pattern: str, path: str) -> Call:
        hits = self.project.search_lines(self.project.area_of(path), pattern, below=path)
        return Call(
            "search", {"pattern": pattern, "path": path}, "\n".join(hits) or f"No matches for {pattern!r} in {path}"
        )

    def edit_file(self, path: str, *edits: tuple[str, str]) -> Call:
        text = self.project.text(path)
        for old, new in edits:
            assert text.count(old) == 1, (path, old)
            text = text.replace(old, new)
        arguments = {"path": path, "edits": [{"old_text": old, "new_text": new} for old, new in edits]}
        self.project.write(path, text)
        line_number = text.splitlines().index(edits[-1][1].strip("\n").splitlines()[0]) + 1
        context_lines = self.read_file(
            path, (max(1, line_number - 3), line_number + edits[-1][1].count("\n") + 3)
        ).result
        plural = "s" if len(edits) > 1 else ""
        return Call("edit_file", arguments, f"Applied {len(edits)} edit{plural} to {path}:\n{context_lines}")

    def failed_edit(self, path: str, old: str, new: str) -> Call:
        """An edit that fails because the old text does not match. Nothing changes."""
        arguments = {"path": path, "edits": [{"old_text": old, "new_text": new}]}
        return Call(
            "edit_file",
            arguments,
            f"Error: old_text was not found in {path}. The file is unchanged. "
            "It must match exactly, whitespace included; read the lines again and retry.",
        )

    def run_tests(self, paths: Sequence[str], failing: tuple[Module, SampleFunction] | None = None) -> Call:
        command = f"pytest {' '.join(paths)}{' -v' if len(paths) > 1 else ''}"
        return Call("run_tests", {"command": command}, self._test_report(paths, failing))

    def shell(self, command: str, output: str) -> Call:
        return Call("shell", {"command": command}, output)

    def issue(self, ticket: str, module: Module, sample: SampleFunction) -> Call:
        """A ticket as JSON from the issue tracker."""
        people = self._rng.sample(self.project.theme.people, 2)
        day = self._rng.randrange(1, 28)
        number = self._rng.randrange(1000, 9999)
        data = {
            "id": ticket,
            "title": module.fill(sample.symptom).split(". ")[0],
            "state": "open",
            "component": module.area,
            "reporter": people[0],
            "created_at": f"2026-04-{day:02}T09:{self._rng.randrange(60):02}:00Z",
            "comments": [
                {"author": people[0], "text": f"Seen again today, this time with {module.words['prefix']}-{number}."},
                {
                    "author": people[1],
                    "text": f"I think this is `{module.fill(sample.name)}`, but I did not dig further.",
                },
            ],
        }
        return Call("get_issue", {"id": ticket}, json.dumps(data, indent=2))

    def logs(self, module: Module, sample: SampleFunction) -> Call:
        """The service's log up to the error."""
        hour, second, lines = self._rng.randrange(24), 0, []
        owners = self.project.theme.owners
        for number in range(line_count := self._rng.randrange(16, 40)):
            second += self._rng.randrange(1, 20)
            entry = {
                "ts": f"2026-04-{9 + second // 3600:02}T{hour:02}:{second // 60 % 60:02}:{second % 60:02}Z",
                "level": "ERROR" if number == line_count - 1 else "INFO",
                "logger": f"{self.project.theme.package}.{module.area}.{module.noun}",
                "request_id": f"{self._rng.getrandbits(48):012x}",
                module.words["owner"]: owners[self._rng.randrange(2)],
                "msg": self._log_line(module, sample, last=number == line_count - 1),
            }
            lines.append(json.dumps(entry))
        command = f"tail -n {len(lines)} var/log/{module.area}.jsonl"
        return self.shell(command, "\n".join(lines))

    def _log_line(self, module: Module, sample: SampleFunction, *, last: bool) -> str:
        prefix = module.words["prefix"]
        if last:
            error = (
                module.fill(sample.report).splitlines()[0]
                if sample.fails_in_code
                else "response did not match the request"
            )
            return f"{module.fill(sample.name)} failed: {error}"
        verb = self._rng.choice(("loaded", "stored", "queued", "rendered"))
        return f"{verb} {prefix}-{self._rng.randrange(1000, 9999)} in {self._rng.randrange(3, 90)} ms"

    def _test_report(self, paths: Sequence[str], failing: tuple[Module, SampleFunction] | None) -> str:
        tests = [(path, name) for path in paths for name in self.project.tests(path)]
        failed_name = _test_name(*failing) if failing else None
        lines = [_heading("test session starts"), "platform linux -- Python 3.11.9, pytest-8.3.3, pluggy-1.5.0"]
        lines += [
            f"rootdir: /src/{self.project.theme.package}",
            "configfile: pyproject.toml",
            f"collected {len(tests)} items",
            "",
        ]
        for number, (path, name) in enumerate(tests, 1):
            outcome = "FAILED" if name == failed_name else "PASSED"
            lines.append(f"{f'{path}::{name} {outcome}':<{WIDTH - 7}} [{100 * number // len(tests):>3}%]")
        seconds = 0.02 * len(tests) + self._rng.random()
        if failing and failed_name:
            module, sample = failing
            lines += [
                "",
                _heading("FAILURES"),
                _heading(failed_name, "_"),
                "",
                *self._traceback(module, sample, failed_name),
            ]
            lines += [_heading("short test summary info")]
            lines += [f"FAILED {module.test_path}::{failed_name} - {module.fill(sample.report).splitlines()[0][:90]}"]
            return "\n".join([*lines, _heading(f"1 failed, {len(tests) - 1} passed in {seconds:.2f}s")])
        return "\n".join([*lines, "", _heading(f"{len(tests)} passed in {seconds:.2f}s")])

    def _traceback(self, module: Module, sample: SampleFunction, test_name: str) -> list[str]:
        error_lines = [f"E   {line}" for line in module.fill(sample.report).split("\n")]
        error_type = (
            module.fill(sample.report).partition(":")[0]
            if sample.fails_in_code or "Error:" in sample.report
            else "AssertionError"
        )
        error_line = module.fill(sample.at)
        test_text = self.project.text(module.test_path)
        body = test_text[test_text.index(f"def {test_name}(") :].split("\n\n\n")[0].rstrip("\n")
        if not sample.fails_in_code:
            marked_test = [f">{line[1:]}" if line.startswith(error_line) else line for line in body.splitlines()]
            test_stop = next(number for number, line in enumerate(marked_test) if line.startswith(">"))
            return [
                *marked_test[: test_stop + 1],
                *error_lines,
                "",
                f"{module.test_path}:{_line_of(test_text, error_line)}: {error_type}",
            ]
        call_line = next(line for line in body.splitlines()[1:] if module.fill(sample.name) in line)
        marked_test = [f">{line[1:]}" if line == call_line else line for line in body.splitlines()]
        test_stop = next(number for number, line in enumerate(marked_test) if line.startswith(">"))
        code = self.project.text(module.path)
        function = code[code.index(f"def {module.fill(sample.name)}(") :].split("\n\n\n")[0].rstrip("\n")
        marked_code = [f">{line[1:]}" if line.startswith(error_line) else line for line in function.splitlines()]
        code_stop = next(number for number, line in enumerate(marked_code) if line.startswith(">"))
        separator = "_ " * (WIDTH // 2)
        return [
            *marked_test[: test_stop + 1],
            "",
            f"{module.test_path}:{_line_of(test_text, call_line)}: ",
            separator,
            "",
            *marked_code[: code_stop + 1],
            *error_lines,
            "",
            f"{module.path}:{_line_of(code, error_line)}: {error_type.rpartition('.')[2]}",
        ]


def _test_name(module: Module, sample: SampleFunction) -> str:
    return module.fill(sample.test).partition("(")[0].removeprefix("def ")


def _line_of(text: str, beginning: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith(beginning))


def _heading(text: str, mark: str = "=") -> str:
    return f" {text} ".center(WIDTH, mark)
