"""The values of a flow: what expressions come to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from minutebook.dsl import tree as t
from minutebook.prompt.markdown import shown

_ORDER: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
}
_SUMS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
}


class Unusable(Exception):
    """An expression cannot be worked out with the values it has; whoever knows where it stands says so."""


def value_of(node: t.Expression, variables: Mapping[str, Any]) -> Any:
    """What an expression comes to.

    Raises:
        Unusable: with these values it comes to nothing.
    """
    match node:
        case t.Literally(value):
            return value
        case t.Variable(name):
            if name not in variables:
                raise Unusable(f"${name} has no value")
            return variables[name]
        case t.Member(of, name):
            return _member(value_of(of, variables), name.text)
        case t.Index(of, index):
            return _item(value_of(of, variables), value_of(index, variables))
        case t.ListOf(items):
            return [value_of(item, variables) for item in items]
        case t.Unary("not", operand):
            return not value_of(operand, variables)
        case t.Unary(_, operand):
            return -_number(value_of(operand, variables), "-")
        case t.Binary(operator, left, right):
            return _binary(operator, left, right, variables)


def items_of(value: Any) -> list[Any]:
    """What `for` goes through.

    Raises:
        Unusable: it is no list.
    """
    if isinstance(value, (list, tuple)):
        return list(value)
    raise Unusable(f"`for` goes through a list, and this is {kind(value)}")


def kind(value: Any) -> str:
    """What a value is, for messages."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", tuple: "a list"}
    return names.get(type(value), f"a {type(value).__name__}")


def _member(value: Any, name: str) -> Any:
    if is_dataclass(value):
        known = [each.name for each in fields(value)]
    elif isinstance(value, Mapping):
        known = list(map(str, value))
    else:
        raise Unusable(f"{kind(value)} has no field {name!r}")
    if name not in known:
        raise Unusable(f"{kind(value)} has no field {name!r}; it has {', '.join(known) or 'none'}")
    return value[name] if isinstance(value, Mapping) else getattr(value, name)


def _item(value: Any, index: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(index, str):
        return _member(value, index)
    if not isinstance(value, (list, tuple, str)):
        raise Unusable(f"{kind(value)} has no items")
    if type(index) is not int:
        raise Unusable(f"an index is a whole number, and this is {kind(index)}")
    if not -len(value) <= index < len(value):
        raise Unusable(f"there is no item {index}: there are {len(value)}")
    return value[index]


def _binary(operator: t.BinaryOperator, left: t.Expression, right: t.Expression, variables: Mapping[str, Any]) -> Any:
    one = value_of(left, variables)
    if operator == "or":
        return one or value_of(right, variables)
    if operator == "and":
        return one and value_of(right, variables)
    other = value_of(right, variables)
    match operator:
        case "==":
            return _plain(one) == _plain(other)
        case "!=":
            return _plain(one) != _plain(other)
        case "contains":
            return _contains(one, other)
        case "+":
            return _added(one, other)
        case "<" | ">" | "<=" | ">=":
            if not (isinstance(one, str) and isinstance(other, str)):
                one, other = _number(one, operator), _number(other, operator)
            return _ORDER[operator](one, other)
        case _:
            one, other = _number(one, operator), _number(other, operator)
            if operator == "/" and not other:
                raise Unusable("this divides by 0")
            return _SUMS[operator](one, other)


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return [*one, *other]
    if isinstance(one, str) or isinstance(other, str):
        return shown(one) + shown(other)
    return _number(one, "+") + _number(other, "+")


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return shown(part) in whole
    if isinstance(whole, (list, tuple)):
        return any(_plain(item) == _plain(part) for item in whole)
    raise Unusable(f"`contains` looks into a text or a list, and this is {kind(whole)}")


def _number(value: Any, operator: str) -> int | float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise Unusable(f"`{operator}` takes numbers, and this is {kind(value)}")


def _plain(value: Any) -> Any:
    """So that a list is equal to what holds the same, and true is not 1."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return (bool, value) if isinstance(value, bool) else value
