"""Pages of lists, in the form in which OpenAI's clients turn them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import Depends, Query

from minutebook.errors import RequestRefused

Order = Annotated[Literal["asc", "desc"], Query()]
Limit = Annotated[int, Query(ge=1, le=100)]
After = Annotated[str | None, Query(min_length=1, max_length=1_000)]


async def nothing_to_include(
    _include: Annotated[list[Literal["reasoning.encrypted_content"]] | None, Query(alias="include")] = None,
) -> None:
    """A provider of chat completions has nothing encrypted, so whoever asks for it gets what there is: none."""


async def nothing_to_hide(
    _obfuscation: Annotated[Literal["false"] | None, Query(alias="include_obfuscation")] = None,
) -> None:
    """Events are not padded; only `false` can be promised."""


INCLUDE: Any = Depends(nothing_to_include)
PLAIN: Any = Depends(nothing_to_hide)


def unknown_cursor() -> RequestRefused:
    """There is nothing that a page could begin after."""
    return RequestRefused(404, "There is nothing of that id to go on after.", "cursor_not_found", "after")


def page(data: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def paged(items: Sequence[Mapping[str, Any]], *, limit: int, order: str, after: str | None) -> dict[str, Any]:
    """A page of a list that is at hand.

    Raises:
        RequestRefused: it has nothing of the id to go on after.
    """
    items = list(items) if order == "asc" else list(reversed(items))
    start = 0
    if after is not None:
        start = next((place for place, item in enumerate(items, 1) if item["id"] == after), -1)
        if start < 0:
            raise unknown_cursor()
    return page(items[start : start + limit], has_more=start + limit < len(items))
