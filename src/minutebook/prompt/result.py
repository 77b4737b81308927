"""What a tool gives back."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from minutebook.errors import InvalidSetting, UnsupportedType
from minutebook.prompt.dump import dump_text

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True)
class ToolResult(Generic[Result_co]):
    """A message for the model, and the value behind it for the session."""

    message: str
    value: Result_co | None = None
    success: bool = True
    show_value: bool = True
    """Whether the model reads the value too; False where it would only hear its own words again."""

    @staticmethod
    def ok(message: str, value: Result | None = None, *, show_value: bool = True) -> "ToolResult[Result]":
        """It worked."""
        return ToolResult(message, value, success=True, show_value=show_value)

    @staticmethod
    def error(message: str, value: Result | None = None, *, show_value: bool = True) -> "ToolResult[Result]":
        """It did not; the message says why, and what the model can do."""
        return ToolResult(message, value, success=False, show_value=show_value)

    def render(self) -> str:
        """The text of the tool message: the message, then the value.

        A value that has a `render()` shows itself by it, text is shown as it is, and anything else as JSON. What has
        no JSON form is for the session only.
        """
        shown = _text(self.value) if self.show_value else ""
        return "\n\n".join(part for part in (self.message, shown) if part)


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    render = getattr(value, "render", None)
    if callable(render):
        return str(render())
    try:
        return dump_text(value)
    except (UnsupportedType, InvalidSetting):
        return ""
