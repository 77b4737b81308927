from minutebook.prompt.markdown import (
    MarkdownSection as MarkdownSection,
)
from minutebook.prompt.section import (
    Section as Section,
)
from minutebook.prompt.template import (
    Prompt as Prompt,
    PromptTemplate as PromptTemplate,
    RenderedPrompt as RenderedPrompt,
    RenderedSection as RenderedSection,
)
from minutebook.prompt.tools import (
    RenderContext as RenderContext,
    Tool as Tool,
    ToolContext as ToolContext,
    ToolExample as ToolExample,
    ToolResult as ToolResult,
    tool as tool,
)
from minutebook.prompt.visibility import (
    SectionPath as SectionPath,
    SectionVisibility as SectionVisibility,
)

__all__ = [
    "MarkdownSection",
    "Prompt",
    "PromptTemplate",
    "RenderContext",
    "RenderedPrompt",
    "RenderedSection",
    "Section",
    "SectionPath",
    "SectionVisibility",
    "Tool",
    "ToolContext",
    "ToolExample",
    "ToolResult",
    "tool",
]
