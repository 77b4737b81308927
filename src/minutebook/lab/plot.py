"""A plot of cost against recall as SVG, for light and dark backgrounds. Standard library only."""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Final

WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 70, 28, 76, 60
_CHARACTER: Final = 7.4
"""Approximate width of a character of a label."""
STYLE: Final = """
.lab-plot{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;--ink:#1f2328;--soft:#59636e;--grid:#e3e6ea;
--paper:#ffffff;--ours:#0b6e4f;--theirs:#b5532a}
@media (prefers-color-scheme:dark){.lab-plot{--ink:#e6edf3;--soft:#9aa4af;--grid:#2b323b;--paper:#0d1117;--ours:#4cc38a;--theirs:#f0986b}}
.lab-plot .paper{fill:var(--paper)}.lab-plot text{fill:var(--ink);paint-order:stroke;stroke:var(--paper);stroke-width:3px}
.lab-plot .title{font-size:18px;font-weight:600}.lab-plot .soft{fill:var(--soft)}.lab-plot .grid{stroke:var(--grid)}
.lab-plot .limit{stroke:var(--soft);stroke-dasharray:5 4}.lab-plot .frontier{stroke:var(--ours);fill:none;stroke-width:1.5;opacity:.45}
.lab-plot .ours{fill:var(--ours)}.lab-plot .theirs{fill:var(--theirs)}.lab-plot line.ours{stroke:var(--ours)}
.lab-plot line.theirs{stroke:var(--theirs)}
""".strip()

Points = Mapping[str, tuple[float, float]]
"""Name → (cost relative to the full history, recall from 0 to 1)."""


def save(path: Path, ours: Points, theirs: Points) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(ours, theirs), encoding="utf-8")
    return path


def svg(
    ours: Points,
    theirs: Points,
    *,
    title: str = "Cost and recall of history policies",
    recall: str = "names in view when the answer uses them",
    frontier: bool = False,
) -> str:
    """The plot. `frontier` connects the policies for which no other one is both cheaper and higher in this plot."""
    scale = _Scale([*ours.values(), *theirs.values()])
    root = (
        f'<svg class="lab-plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><style>{STYLE}</style>'
    )
    parts = [
        root,
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        _text(LEFT, 32, title, style="title"),
        _text(LEFT, 54, "up and to the left is better", style="soft"),
    ]
    if theirs:
        parts.append(_text(WIDTH - RIGHT - 170, 54, "● minutebook", "end", "ours"))
        parts.append(_text(WIDTH - RIGHT, 54, "● other libraries", "end", "theirs"))
    parts += _axes(scale, recall)
    if frontier:
        line = _frontier([*ours.values(), *theirs.values()])
        path = " ".join(f"{scale.x(cost):.1f},{scale.y(share):.1f}" for cost, share in line)
        parts.append(f'<polyline class="frontier" points="{path}"/>')
    dots = [(scale.x(cost), scale.y(share), name, "ours") for name, (cost, share) in ours.items()]
    dots += [(scale.x(cost), scale.y(share), name, "theirs") for name, (cost, share) in theirs.items()]
    return "\n".join([*parts, *_dots_with_labels(dots), "</svg>", ""])


def _frontier(points: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The points for which no other one is cheaper and at least as high, the cheapest first."""
    highest = -1.0
    for cost, recall in sorted(points, key=lambda point: (point[0], -point[1])):
        if recall > highest:
            yield cost, recall
            highest = recall


class _Scale:
    """Positions of costs and recalls in the picture."""

    def __init__(self, points: list[tuple[float, float]]) -> None:
        self.max_cost = max(1.08, *(cost for cost, _ in points)) * 1.04
        lowest = min(recall for _, recall in points)
        step = next(size for size in (0.01, 0.02, 0.05, 0.1) if (1 - lowest) / size <= 8 or size == 0.1)
        self.step = step
        self.min_recall = max(0.0, int((lowest - step / 2) / step) * step)

    def x(self, cost: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * cost / self.max_cost

    def y(self, recall: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (recall - self.min_recall) / (1.0 - self.min_recall)


def _axes(scale: _Scale, recall: str) -> list[str]:
    parts = []
    for number in range(round((1 - scale.min_recall) / scale.step) + 1):
        level = min(1.0, scale.min_recall + number * scale.step)
        parts.append(_line(LEFT, scale.y(level), WIDTH - RIGHT, scale.y(level), "grid"))
        parts.append(_text(LEFT - 8, scale.y(level) + 4, f"{level:.0%}", "end", "soft"))
    step = 0.25 if scale.max_cost < 2.5 else 0.5
    costs = (number * step for number in range(int(scale.max_cost / step) + 1))
    parts += [_text(scale.x(cost), HEIGHT - BOTTOM + 20, f"{cost:g}", "middle", "soft") for cost in costs]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return [
        *parts,
        _line(scale.x(1.0), TOP, scale.x(1.0), HEIGHT - BOTTOM, "limit"),
        _text(scale.x(1.0) - 8, HEIGHT - BOTTOM - 8, "cost of the full history →", "end", "soft"),
        _text(
            (LEFT + WIDTH - RIGHT) / 2,
            HEIGHT - 16,
            "cost with the prompt cache, relative to the full history",
            "middle",
        ),
        f'<g transform="rotate(-90 20 {middle:.0f})">{_text(20, middle, f"recall: {recall}", "middle")}</g>',
    ]


def _dots_with_labels(dots: list[tuple[float, float, str, str]]) -> list[str]:
    """The dots and their names, placed so that no name covers another name or dot."""
    lines, circles, names = [], [], []
    boxes = [(across - 6, across + 6, down - 6, down + 6) for across, down, _, _ in dots]
    for across, down, name, style in sorted(dots, key=lambda dot: dot[1]):
        circles.append(f'<circle class="{style}" cx="{across:.1f}" cy="{down:.1f}" r="6"/>')
        side, shift, box = _label_place(across, down, _CHARACTER * len(name), boxes)
        boxes.append(box)
        near = box[0] if side == "start" else box[1]
        if shift:
            lines.append(_line(across, down, near, down + shift, style))
        names.append(_text(near, down + shift + 4, name, side, style))
    return [*lines, *circles, *names]


Box = tuple[float, float, float, float]


def _label_place(across: float, down: float, width: float, boxes: list[Box]) -> tuple[str, int, Box]:
    """The side of the dot, the vertical shift, and the rectangle of a label; the last candidate if none is free."""
    for shift in (0, *(sign * step * 16 for step in range(1, 9) for sign in (1, -1))):
        for side in ("start", "end"):
            left = across + 11 if side == "start" else across - 11 - width
            box = (left, left + width, down + shift - 8, down + shift + 8)
            is_inside = box[0] >= LEFT and box[1] <= WIDTH - 4 and box[2] >= TOP - 16 and box[3] <= HEIGHT - BOTTOM - 2
            if is_inside and not any(_overlap(box, other) for other in boxes):
                return side, shift, box
    return side, shift, box


def _overlap(box: Box, other: Box) -> bool:
    return box[0] < other[1] and other[0] < box[1] and box[2] < other[3] and other[2] < box[3]


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    names = f' class="{style}"' if style else ""
    return f'<text{names} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
