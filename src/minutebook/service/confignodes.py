"""A YAML file as values that know their lines."""

from typing import Any, Final

from minutebook.errors import MissingExtra
from minutebook.service.settings import Given, Origin, Reader

_DEEPEST: Final = 32
"""No configuration is nested deeper; an alias within what it stands for is."""


def given_in(data: bytes, name: str, reader: Reader) -> Given:
    """What a file says; what is wrong with it as YAML is the reader's problem.

    Raises:
        MissingExtra: there is nothing that reads YAML.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra("pyyaml", "service") from error
    whole = Origin("file", name)
    try:
        loader = yaml.SafeLoader(data.decode("utf-8-sig"))
        node = loader.get_single_node()
        if node is None:
            return Given({}, whole)
        found = _Nodes(loader, name, reader).given(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = whole if mark is None else Origin("file", name, mark.line + 1, mark.column + 1)
        reader.problem(at, "", f"is not YAML: {error.problem or error.context}")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reader.problem(whole, "", f"is not YAML: {' '.join(str(error).split())}")
    else:
        if isinstance(found.value, dict):
            return found
        reader.problem(found.origin, "", "is not a mapping", "give sections with keys: server, conversation, …")
    return Given({}, whole)


class _Nodes:
    """The nodes of one file."""

    def __init__(self, loader: Any, name: str, reader: Reader) -> None:
        self._loader, self._name, self._reader = loader, name, reader

    def given(self, node: Any, key: Origin | None = None, depth: int = 0) -> Given:
        """The value of a node, and of all that is in it."""
        from yaml import MappingNode, SequenceNode
        from yaml.constructor import ConstructorError

        at = self._at(node)
        if depth > _DEEPEST:
            raise ConstructorError(None, None, "it is nested too deep", node.start_mark)
        if isinstance(node, MappingNode):
            return Given(self._members(node, depth), at, key=key)
        if isinstance(node, SequenceNode):
            return Given([self.given(each, depth=depth + 1) for each in node.value], at, key=key)
        try:
            value = self._loader.construct_object(node)
        except ValueError as error:  # 2026-13-45 looks like a date, and is none
            raise ConstructorError(None, None, str(error), node.start_mark) from error
        return Given(value, at, node.value, key)

    def _members(self, node: Any, depth: int) -> dict[str, Given]:
        members: dict[str, Given] = {}
        for name, value in node.value:
            said, at = str(name.value), self._at(name)
            if said in members:
                first = members[said].key or members[said].origin
                self._reader.problem(at, said, f"is there twice, first in line {first.line}", "keep one of them")
            else:
                members[said] = self.given(value, at, depth + 1)
        return members

    def _at(self, node: Any) -> Origin:
        return Origin("file", self._name, node.start_mark.line + 1, node.start_mark.column + 1)
