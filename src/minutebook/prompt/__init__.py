"""Prompts: templates, sections, visibility, tools, and answers parsed into dataclasses.

Nothing here calls a model. Start with `template`, then `section`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "markdown": ("MarkdownSection",),
    "section": ("Section",),
    "template": ("Prompt", "PromptTemplate", "RenderedPrompt", "RenderedSection"),
    "tools": ("RenderContext", "Tool", "ToolContext", "ToolExample", "ToolResult", "tool"),
    "visibility": ("SectionPath", "SectionVisibility"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
