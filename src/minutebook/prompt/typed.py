"""Generic classes that know, while they are being made, what they are generic in.

`typing` tells an instance its type arguments only after `__init__`, which is too late to check a template's
placeholders or a tool's parameters. So `Tool[Params, Result]` is a subclass of `Tool` that carries them.
"""

from functools import lru_cache
from typing import Any, ClassVar


class Typed:
    """Comes before `Generic[…]` among the bases; `type_arguments` is empty where none were given."""

    type_arguments: ClassVar[tuple[Any, ...]] = ()

    @classmethod
    def __class_getitem__(cls, item: Any) -> Any:
        alias = super().__class_getitem__(item)  # type: ignore[misc]  # Generic comes next, and checks their number
        made: Any = cls
        return alias if alias.__parameters__ else _with_arguments(made, alias.__args__)


@lru_cache(maxsize=1024)
def _with_arguments(cls: Any, arguments: tuple[Any, ...]) -> Any:
    names = ", ".join(getattr(argument, "__name__", str(argument)) for argument in arguments)
    space = {"type_arguments": arguments, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls)(f"{cls.__name__}[{names}]", (cls,), space)
