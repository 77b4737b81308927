"""Functions that the example agents call as tools: `tool grade = python examples.tools:grade`."""

import ast
import operator
from collections.abc import Callable
from typing import Annotated, Final

STOCK: Final = {"lamp": 12, "chair": 0, "desk": 3}
WEATHER: Final = {"oslo": "snow, -4 °C", "lima": "clouds, 19 °C", "cairo": "sun, 31 °C"}
ORDERS: Final = {"48213": "desk, shipped on Monday", "48214": "chair, waiting for stock"}

_OPERATORS: Final[dict[type, Callable[..., float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def in_stock(item: Annotated[str, "such as lamp"]) -> int:
    """How many of an item are in stock."""
    return STOCK.get(item.lower(), 0)


def order_status(order: Annotated[str, "the number of the order"]) -> str:
    """The status of an order."""
    return ORDERS.get(order, f"There is no order {order}.")


def weather(city: str) -> str:
    """The weather in a city now."""
    return WEATHER.get(city.lower(), f"There is no weather report for {city}.")


def calculate(expression: Annotated[str, "numbers with + - * / and brackets"]) -> float:
    """Evaluate an arithmetic expression."""
    return _value(ast.parse(expression, mode="eval").body)


def count_words(text: str) -> int:
    """How many words a text has."""
    return len(text.split())


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op, operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
    raise ValueError("only numbers, + - * / and brackets")
