"""SVG elements as escaped text. Colours are attributes, so a picture needs no style; the style of a page overrides them by class."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup, escape

from minutebook.service.inspector.heads import visible

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
INK, INK_2, INK_3, LINE, PANEL = "#1B1C20", "#4E5058", "#686B74", "#CFCDC6", "#FFFFFF"


def element(name: str, *children: Markup, text: str = "", **attributes: object) -> Markup:
    """An element. Names of attributes have `_` for `-`; a trailing one is removed, as in `class_`. None leaves one out."""
    parts = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(visible(_text_of(value)))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    content = Markup("").join(children) + escape(visible(text))
    return Markup(f"<{name}{''.join(parts)}>{content}</{name}>")  # noqa: S704 - every value is escaped above


def _text_of(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else str(value)


def picture(width: int, height: int, children: Sequence[Markup], label: str) -> Markup:
    """A whole picture, in a box of this size."""
    return element(
        "svg", *children, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=width, height=height,
        font_family=FONT, font_size=12, role="group", aria_label=label, class_="picture-svg",
    )  # fmt: skip


def short_number(value: float) -> str:
    """A number of at most four characters, such as 12k or 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def nice_ticks(top: float, count: int) -> list[float]:
    """Round values from 0 to at most `top`, about as many as `count`."""
    if top <= 0:
        return [0.0]
    step = 10.0 ** len(str(int(top)))
    while step > top:
        step /= 10
    for factor in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0):
        if top / (step * factor) <= count:
            step *= factor
            break
    return [index * step for index in range(int(top / step + 1e-9) + 1)]
