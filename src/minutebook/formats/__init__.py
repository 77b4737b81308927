"""Files of other programs: detect their format, read their conversations, write them in another format.

Start with `read(path)`. A format is one module: a test whether a value belongs to it, a reader, and a writer if another
program can read the result.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "conversation": ("Format", "SourceConversation", "SourceMessage"),
    "registry": ("Converted", "convert", "detect", "format_named", "formats", "read"),
    "source": ("Skipped", "Source", "Value"),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
