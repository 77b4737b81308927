"""A generated session of a coding agent. The seed determines every byte.

A generated project has real bugs in real code. In each turn the user reports one, asks a question or requests a feature;
the agent searches, reads, writes a failing test, fixes the code and runs the tests again. Every path and name in a message
was shown before, and every call has a result, so any provider accepts the session.
"""

import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from minutebook.errors import InvalidSetting
from minutebook.testing.simulator.code_samples import Feature, SampleFunction
from minutebook.testing.simulator.project import Module, Project
from minutebook.testing.simulator.tools import Call, SimulatedTools
from minutebook.testing.simulator.words import (
    COMMIT,
    COMMIT_TITLE,
    DONE,
    FEATURE,
    FIXING,
    LOOKING,
    OPENING,
    QUESTION,
    READING,
    REPORT,
    RETRYING,
    REVIEW,
    SUITE,
    SYSTEM,
    TESTING,
    VERIFY,
)

ID_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def coding_session(seed: int = 0, turns: int = 16) -> list[dict[str, Any]]:
    """A generated session as chat-completions messages: a system prompt, then `turns` turns.

    The same seed gives the same bytes. A session with fewer turns is a prefix of one with more.

    Raises:
        InvalidSetting: `turns` is negative.
    """
    if turns < 0:
        raise InvalidSetting("turns", turns, "0 or more")
    return [message for turn in islice(coding_turns(seed), turns + 1) for message in turn]


def coding_turns(seed: int = 0) -> Iterator[list[dict[str, Any]]]:
    """The same session, endless: first the system prompt, then one list of messages per turn."""
    session = CodingSession(seed)
    yield session.take_messages()
    while True:
        session.add_turn()
        yield session.take_messages()


class CodingSession:
    """The state of a session: project, tools and messages that were not taken yet.

    Each `add_…` method adds the messages of one turn.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"minutebook coding session {seed}")  # noqa: S311 - not for cryptography
        self.project = Project(self.rng)
        self.tools = SimulatedTools(self.project, self.rng)
        self.area = self.project.next_area()
        self.module = self.project.modules[self.area][0]
        self.messages: list[dict[str, Any]] = []
        self.call_count = 0
        self.turn_count = 0
        theme = self.project.theme
        self.add_message("system", SYSTEM.format(package=theme.package, about=theme.about, ticket=theme.ticket))

    def take_messages(self) -> list[dict[str, Any]]:
        """Remove and return the messages added since the last call."""
        messages, self.messages = self.messages, []
        return messages

    def add_turn(self) -> None:
        """Add a turn: a commit, a question, a feature or a bug. The first turn is always a bug."""
        self.turn_count += 1
        if (
            self.turn_count > 1
            and self.project.changed_files
            and self.rng.random() < 0.15 + 0.1 * len(self.project.changed_files)
        ):
            return self.add_commit()
        random_number = self.rng.random()
        self._choose_module()
        if random_number < 0.14 and self.turn_count > 1:
            return self.add_question(self.rng.choice(self.module.correct_functions))
        if random_number < 0.34 and self.module.open_features and self.turn_count > 1:
            return self.add_feature(self.module.open_features.pop())
        if self.module.buggy_functions:
            return self.add_bug(self.module.buggy_functions.pop())
        return self.add_feature(self.module.open_features.pop())

    def _choose_module(self) -> None:
        """Set `module` to one that has bugs or features left, in this area or the next. It is often the same one."""
        unfinished = [
            module for module in self.project.modules[self.area] if module.buggy_functions or module.open_features
        ]
        if not unfinished:
            # Free the memory: a finished area is not used again.
            self.project.modules.pop(self.area)
            self.area = self.project.next_area()
            unfinished = self.project.modules[self.area]
        if self.module not in unfinished or self.rng.random() < 0.4:
            self.module = self.rng.choice(unfinished)

    def add_bug(self, sample: SampleFunction) -> None:
        module, tools, rng = self.module, self.tools, self.rng
        name = module.fill(sample.name)
        ticket = self.project.new_ticket()
        folder = f"src/{self.project.theme.package}/{module.area}"
        report = self.choose(REPORT).format(ticket=ticket, symptom=module.fill(sample.symptom), area=module.area)
        self.add_message("user", self._greeting() + report)
        first_calls = [tools.issue(ticket, module, sample), tools.search(module.noun, folder)]
        if self.turn_count == 1:
            first_calls.append(tools.list_files(f"src/{self.project.theme.package}"))
        if rng.random() < 0.5:
            first_calls.append(tools.list_files(folder))
        if rng.random() < 0.5:
            first_calls.append(tools.logs(module, sample))
        self.add_calls(self.choose(LOOKING).format(ticket=ticket, noun=module.noun, area=module.area), *first_calls)
        self.add_calls(
            self.choose(READING).format(path=module.path, name=name),
            tools.read_file(module.path),
            tools.read_file(module.test_path),
        )
        if rng.random() < 0.4:
            self.add_calls(None, tools.search(f"{name}(", folder), self._git_log(module))
        self.add_calls(
            self.choose(TESTING).format(cause=module.fill(sample.cause), name=name), self._add_test(module, sample.test)
        )
        self.add_calls(None, tools.run_tests([module.test_path], (module, sample)))
        old, new = module.fill(sample.bad), module.fill(sample.good)
        if rng.random() < 0.2:
            self.add_calls(
                self.choose(FIXING).format(name=name), tools.failed_edit(module.path, old.replace("    ", "  ", 1), new)
            )
            line = self._line_number(module.path, old)
            self.add_calls(self.choose(RETRYING), tools.read_file(module.path, (max(1, line - 6), line + 6)))
            self.add_calls(None, tools.edit_file(module.path, (old, new)))
        else:
            self.add_calls(self.choose(FIXING).format(name=name), tools.edit_file(module.path, (old, new)))
        self._verify(module)
        self.add_message(
            "assistant",
            self.choose(DONE).format(**self._report_fields(module, name, module.fill(sample.cause), ticket)),
        )

    def add_feature(self, feature: Feature) -> None:
        module, tools = self.module, self.tools
        name = module.fill(feature.name)
        request = self.choose(FEATURE).format(wish=module.fill(feature.wish), name=name, path=module.path)
        self.add_message("user", self._greeting() + request)
        self.add_calls(
            self.choose(READING).format(path=module.path, name=name),
            tools.read_file(module.path),
            tools.read_file(module.test_path),
            tools.search("Iterable[", f"src/{self.project.theme.package}/{module.area}"),
        )
        last_function = self.project.text(module.path).rsplit("\n\n\n", 1)[1]
        self.add_calls(
            f"I add `{name}` at the end of the module, and its test beside the others.",
            tools.edit_file(module.path, (last_function, f"{last_function}\n\n{module.fill(feature.code)}")),
            self._add_test(module, feature.test, name),
        )
        self._verify(module)
        self.add_message(
            "assistant",
            f"`{name}` is in `{module.path}` now, with a test in `{module.test_path}`. It follows the other functions "
            f"there: it takes any iterable of {module.words['nouns']} and changes none of them. All tests of "
            f"`{module.area}` pass.",
        )

    def add_question(self, sample: SampleFunction) -> None:
        module, tools = self.module, self.tools
        name, folder = module.fill(sample.name), f"src/{self.project.theme.package}/{module.area}"
        self.add_message("user", self._greeting() + self.choose(QUESTION).format(name=name, area=module.area))
        search, tests = tools.search(name, folder), tools.search(name, f"tests/{module.area}")
        self.add_calls(f"Let me see where `{name}` is and what its tests say.", search, tests)
        line = self._line_number(module.path, f"def {name}(")
        self.add_calls(None, tools.read_file(module.path, (max(1, line - 4), line + 16)))
        text = module.fill(sample.code).split('"""')[1]
        self.add_message(
            "assistant",
            f'`{name}` is defined in `{module.path}:{line}`. What it promises is in its docstring: "{text}" '
            f"It is covered by `{module.fill(sample.test).partition('(')[0].removeprefix('def ')}` in "
            f"`{module.test_path}`. Nothing else in `{module.area}` calls it, so a change would be safe as long as that "
            "test still passes.",
        )

    def add_commit(self) -> None:
        tools, changed = self.tools, sorted(self.project.changed_files)
        area = self.project.area_of(changed[0])
        status = "\n".join(
            ["On branch main", "Changes not staged for commit:", *(f"\tmodified:   {p}" for p in changed)]
        )
        module_name = changed[0].rpartition("/")[2].removesuffix(".py")
        title = COMMIT_TITLE.format(area=area.replace("_", " ").capitalize(), module=module_name)
        self.add_message("user", self.choose(COMMIT))
        diff = tools.shell("git diff", self.project.diff(changed))
        self.add_calls("I look at what would go in first.", tools.shell("git status", status), diff)
        commit = self.project.commit(title)
        output = f"[main {commit.id}] {title}\n {len(changed)} files changed"
        self.add_calls(None, tools.shell(f'git commit -am "{title}"', output))
        self.add_message(
            "assistant", f"Committed as `{commit.id}` on main: {title}. {len(changed)} files, nothing else was changed."
        )

    def _verify(self, module: Module) -> None:
        tools, rng = self.tools, self.rng
        checks = [tools.run_tests([module.test_path])]
        if rng.random() < 0.5:
            checks.append(tools.shell(f"ruff check {module.path} {module.test_path}", "All checks passed!"))
        if rng.random() < 0.3:
            checks.append(tools.shell(f"mypy {module.path}", "Success: no issues found in 1 source file"))
        self.add_calls(self.choose(VERIFY), *checks)
        test_paths = [area_module.test_path for area_module in self.project.modules[module.area]]
        self.add_calls(self.choose(SUITE).format(area=module.area), tools.run_tests(test_paths))
        if rng.random() < 0.5:
            paths = [module.path, module.test_path]
            self.add_calls(self.choose(REVIEW), tools.shell(f"git diff -- {' '.join(paths)}", self.project.diff(paths)))

    def _add_test(self, module: Module, test: str, name: str | None = None) -> Call:
        text = self.project.text(module.test_path)
        last_test = text.rsplit("\n\n\n", 1)[1]
        edits = [(last_test, f"{last_test}\n\n{module.fill(test)}")]
        if name:
            edits.insert(0, ("import (\n", f"import (\n    {name},\n"))
        return self.tools.edit_file(module.test_path, *edits)

    def _git_log(self, module: Module) -> Call:
        output = "\n".join(f"{commit.id} {commit.title}" for commit in self.project.log)
        return self.tools.shell(f"git log --oneline -12 -- src/{self.project.theme.package}/{module.area}", output)

    def _line_number(self, path: str, text: str) -> int:
        source = self.project.text(path)
        return source[: source.index(text)].count("\n") + 1

    def _report_fields(self, module: Module, name: str, cause: str, ticket: str) -> dict[str, str]:
        return {
            "name": name,
            "cause": cause,
            "path": module.path,
            "tests": module.test_path,
            "ticket": ticket,
            "area": module.area,
        }

    def _greeting(self) -> str:
        return self.choose(OPENING) if self.turn_count > 1 else ""

    def choose(self, phrases: tuple[str, ...]) -> str:
        return self.rng.choice(phrases)

    def add_message(self, role: str, text: str) -> None:
        self.messages.append({"role": role, "content": text})

    def add_calls(self, text: str | None, *calls: Call) -> None:
        """Add an assistant message with these calls, then their results, sometimes in another order than the calls."""
        message, results = call_messages(text, calls, [self._call_id() for _ in calls])
        if self.rng.random() < 0.3:
            self.rng.shuffle(results)
        self.messages += [message, *results]

    def _call_id(self) -> str:
        """A random-looking id that is unique, because it contains a counter."""
        self.call_count += 1
        return "call_" + "".join(self.rng.choices(ID_LETTERS, k=16)) + f"{self.call_count:06x}"


def call_messages(
    text: str | None, calls: Sequence[Call], ids: Sequence[str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The assistant message with these calls, and their results."""
    functions = [{"name": call.tool, "arguments": json.dumps(call.arguments)} for call in calls]
    tool_calls = [
        {"id": call_id, "type": "function", "function": function}
        for call_id, function in zip(ids, functions, strict=True)
    ]
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": call.result}
        for call_id, call in zip(ids, calls, strict=True)
    ]
    return {"role": "assistant", "content": text, "tool_calls": tool_calls}, results
