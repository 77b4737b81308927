"""What can go wrong in a prompt. These belong in `minutebook.errors` and stand here until they move there."""

from collections.abc import Mapping, Sequence
from typing import Any

from minutebook.errors import MinutebookError

_MOST_SHOWN = 20


class UnsupportedType(MinutebookError, TypeError):
    """A type has no JSON form that we know, so it can be neither described to a model nor read from its answer."""

    def __init__(self, where: str, what: str, advice: str) -> None:
        super().__init__(where, what, advice)
        self.where, self.what, self.advice = where, what, advice

    def _message(self) -> str:
        return f"{self.where} is {self.what}, which cannot be told to a model as JSON; {self.advice}"


class UnknownPlaceholder(MinutebookError, ValueError):
    """A template names something that the section's params do not have."""

    def __init__(self, section_key: str, placeholder: str, params: str | None, fields: Sequence[str]) -> None:
        super().__init__(section_key, placeholder, params, tuple(fields))
        self.section_key, self.placeholder, self.params, self.fields = section_key, placeholder, params, tuple(fields)

    def _message(self) -> str:
        said = f"the template of section {self.section_key!r} has ${{{self.placeholder}}}"
        if self.params is None:
            return f"{said} and no params; make it MarkdownSection[Params](…), or write $${{{self.placeholder}}} for plain text"
        known = ", ".join(self.fields) or "no fields"
        return f"{said}, which {self.params} lacks (it has {known}); write $${{{self.placeholder}}} for plain text"


class DuplicateName(MinutebookError, ValueError):
    """Two things in one prompt go by the same name."""

    def __init__(self, kind: str, name: str, places: Sequence[str]) -> None:
        super().__init__(kind, name, tuple(places))
        self.kind, self.name, self.places = kind, name, tuple(places)

    def _message(self) -> str:
        return f"the {self.kind} {self.name!r} is there more than once ({', '.join(self.places)}); give each its own"


class MissingParams(MinutebookError, LookupError):
    """A section cannot be rendered because nothing was bound for its params."""

    def __init__(self, section_key: str, params: str) -> None:
        super().__init__(section_key, params)
        self.section_key, self.params = section_key, params

    def _message(self) -> str:
        return (
            f"section {self.section_key!r} needs a {self.params}; bind one with prompt.bind({self.params}(…)), "
            "or give the section default_params"
        )


class ToolValidationError(MinutebookError, ValueError):
    """A tool was called in a way it cannot be; the message goes back to the model, which may try again.

    Handlers raise it with a message of their own. `problems` lists what is wrong with the arguments, place by place.
    """

    def __init__(self, message: str, problems: Sequence[Any] = ()) -> None:
        super().__init__(message, tuple(problems))
        self.message, self.problems = message, tuple(problems)

    def _message(self) -> str:
        return _with_problems(self.message, self.problems)


class OutputParseError(MinutebookError, ValueError):
    """The model's answer does not hold what was asked for; the message can be sent back to it as it is."""

    def __init__(self, expected: str, answer: str, problems: Sequence[Any]) -> None:
        super().__init__(expected, answer, tuple(problems))
        self.expected, self.answer, self.problems = expected, answer, tuple(problems)

    def _message(self) -> str:
        came = self.answer if len(self.answer) <= 200 else f"{self.answer[:200]}…"
        said = _with_problems(f"The answer is not a valid {self.expected}:", self.problems)
        return f"{said}\nIt was: {came}\nAnswer again with one JSON object for {self.expected} and nothing else."


class VisibilityExpansionRequired(MinutebookError):
    """The model asks for sections to be opened: merge `requested_overrides` into yours and render again."""

    def __init__(
        self, requested_overrides: Mapping[tuple[str, ...], Any], reason: str, section_keys: Sequence[str]
    ) -> None:
        super().__init__(dict(requested_overrides), reason, tuple(section_keys))
        self.requested_overrides = dict(requested_overrides)
        self.reason, self.section_keys = reason, tuple(section_keys)

    def _message(self) -> str:
        keys = ", ".join(self.section_keys)
        return (
            f"the model asks to open {keys} ({self.reason}); "
            "merge requested_overrides into visibility_overrides and render the prompt again"
        )


def _with_problems(message: str, problems: Sequence[Any]) -> str:
    lines = [message, *(f"- {problem}" for problem in problems[:_MOST_SHOWN])]
    if len(problems) > _MOST_SHOWN:
        lines.append(f"- and {len(problems) - _MOST_SHOWN} more")
    return "\n".join(lines)
