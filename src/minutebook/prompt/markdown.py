"""Sections written as Markdown with placeholders for values, `${name}`.

Only `${name}` is a placeholder, so prices and shell variables need no escaping; `$${name}` is the literal text `${name}`.
Placeholders in the values are not replaced.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import Enum
from textwrap import dedent
from typing import Any, Final, TypeVar

from minutebook.errors import InvalidPrompt, InvalidSetting
from minutebook.prompt.schema import json_text
from minutebook.prompt.section import AnySection, Section
from minutebook.prompt.tools import AnyTool, RenderContext
from minutebook.prompt.visibility import SectionPath, SectionVisibility

Params = TypeVar("Params")


_PLACEHOLDER: Final = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<name>[^}]*)\}")


class MarkdownSection(Section[Params]):
    """A section whose text is a template: `MarkdownSection[Params](title=…, key=…, template="… ${field} …")`."""

    def __init__(
        self,
        *,
        title: str,
        key: str,
        template: str,
        summary: str | None = None,
        default_params: Params | None = None,
        tools: Sequence[AnyTool] = (),
        children: Sequence[AnySection] = (),
        enabled: Callable[[Params, RenderContext], bool] | None = None,
        visibility: SectionVisibility | Callable[[Params, RenderContext], SectionVisibility] = SectionVisibility.FULL,
        accepts_overrides: bool = True,
    ) -> None:
        self.template = template
        super().__init__(
            title=title,
            key=key,
            summary=summary,
            default_params=default_params,
            tools=tools,
            children=children,
            enabled=enabled,
            visibility=visibility,
            accepts_overrides=accepts_overrides,
        )

    def check(self) -> None:
        super().check()
        if not isinstance(self.template, str):
            raise InvalidSetting(f"the template of section {self.key!r}", self.template, "a str")
        params_type = self.params_type
        field_names = () if params_type is None else tuple(field.name for field in fields(params_type))
        for text in (self.template, self.summary or ""):
            for match in _PLACEHOLDER.finditer(text):
                name = match["name"]
                if name is None or name in field_names:
                    continue
                if params_type is None:
                    problem = f"has ${{{name}}} but no params; use MarkdownSection[Params](…), or"
                else:
                    existing = ", ".join(field_names) or "none"
                    problem = f"has ${{{name}}}, but {params_type.__name__} has no such field (it has {existing});"
                raise InvalidPrompt(
                    f"the template of section {self.key!r}", f"{problem} write $${{{name}}} for plain text"
                )

    def body(self, params: Params, depth: int, number: str, *, path: SectionPath, context: RenderContext) -> str:  # noqa: ARG002
        return _with_values(self.template, params)

    def outline(self, params: Params, *, path: SectionPath, context: RenderContext) -> str:
        return _with_values(super().outline(params, path=path, context=context), params)


def _with_values(template: str, params: Any) -> str:
    values = {}
    if params is not None:
        values = {field.name: text_in_prompt(getattr(params, field.name)) for field in fields(params)}
    return _PLACEHOLDER.sub(lambda match: match["escaped"] or values[match["name"]], dedent(template).strip())


def text_in_prompt(value: Any) -> str:
    """The text of a value in a prompt: "" for None, a str unchanged, the result of its `render()`, or JSON."""
    if value is None:
        return ""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return value
    render = getattr(value, "render", None)
    return str(render()) if callable(render) else json_text(value)
