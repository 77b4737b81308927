"""A plot of the replay: cost and recall of each policy. Standard library only."""

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 960, 600
LEFT, RIGHT, TOP, BOTTOM = 80, 40, 80, 70
OURS, THEIRS, INK, FAINT = "#0b6e4f", "#b5532a", "#222222", "#d9d9d9"

Points = Mapping[str, tuple[float, float]]
"""Name → (cost relative to the full history, recall from 0 to 1)."""


def save(path: Path, ours: Points, theirs: Points) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg(ours, theirs), encoding="utf-8")
    return path


def svg(ours: Points, theirs: Points) -> str:
    points = [*ours.values(), *theirs.values()]
    max_cost = max(1.1, *(cost for cost, _ in points)) * 1.05
    min_recall = min(0.9, *(recall for _, recall in points)) - 0.03
    min_recall = int(max(0.0, min_recall) * 20) / 20

    def x(cost: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * cost / max_cost

    def y(recall: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (recall - min_recall) / (1.0 - min_recall)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="Helvetica, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 34, "Cost and recall of history policies", 20, weight="bold"),
        _text(LEFT, 58, "up and to the left is better", 13, colour="#666666"),
    ]
    if theirs:
        parts.append(_text(WIDTH - RIGHT - 250, 58, "● minutebook", 13, colour=OURS, weight="bold"))
        parts.append(_text(WIDTH - RIGHT, 58, "● other libraries", 13, "end", colour=THEIRS, weight="bold"))
    for step in range(round(min_recall * 20), 21):
        level = step / 20
        parts.append(_line(LEFT, y(level), WIDTH - RIGHT, y(level), FAINT))
        parts.append(_text(LEFT - 8, y(level) + 4, f"{level:.0%}", 12, anchor="end"))
    parts += [
        _text(x(step / 4), HEIGHT - BOTTOM + 20, f"{step / 4:.2f}x", 12, anchor="middle")
        for step in range(int(max_cost * 4) + 1)
    ]
    parts += [
        _line(x(1.0), TOP, x(1.0), HEIGHT - BOTTOM, "#888888", dashed=True),
        _text(x(1.0) + 8, HEIGHT - BOTTOM - 8, "more expensive than the full history →", 12, colour="#666666"),
        _text(
            (LEFT + WIDTH - RIGHT) / 2,
            HEIGHT - 18,
            "cost with prompt caching, relative to the full history",
            13,
            "middle",
        ),
        f'<g transform="rotate(-90 22 {HEIGHT / 2})">'
        + _text(22, HEIGHT / 2, "recall: identifiers in view when the answer uses them", 13, "middle")
        + "</g>",
    ]
    dots = [(x(c), y(r), name, OURS) for name, (c, r) in ours.items()]
    dots += [(x(c), y(r), name, THEIRS) for name, (c, r) in theirs.items()]
    return "\n".join([*parts, *_dots_with_labels(dots), "</svg>", ""])


def _dots_with_labels(dots: list[tuple[float, float, str, str]]) -> list[str]:
    """The dots and their names, placed so that no name covers another name or dot."""
    lines, circles, names = [], [], []
    boxes = [(across - 6, across + 6, down - 6, down + 6) for across, down, _, _ in dots]
    for across, down, name, colour in sorted(dots, key=lambda dot: dot[1]):
        circles.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="6" fill="{colour}"/>')
        width = 7.7 * len(name)
        candidates = [(side, shift) for shift in (0, -16, 16, -32, 32, -48, 48, -64, 64) for side in ("start", "end")]
        for side, shift in candidates:
            left = across + 11 if side == "start" else across - 11 - width
            box = (left, left + width, down + shift - 8, down + shift + 8)
            inside = box[0] >= LEFT and box[1] <= WIDTH - 4 and box[2] >= TOP - 20 and box[3] <= HEIGHT - BOTTOM - 2
            if inside and not any(_overlap(box, other) for other in boxes):
                break
        boxes.append(box)
        near = box[0] if side == "start" else box[1]
        if shift:
            lines.append(_line(across, down, near, down + shift, colour))
        names.append(_text(near, down + shift + 4, name, 13, side, colour))
    return [*lines, *circles, *names]


def _overlap(box: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return box[0] < other[1] and other[0] < box[1] and box[2] < other[3] and other[2] < box[3]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dash}/>'


def _text(
    x: float, y: float, text: str, size: int, anchor: str = "start", colour: str = INK, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}"'
        f' stroke="white" stroke-width="3" paint-order="stroke">{escape(text)}</text>'
    )
