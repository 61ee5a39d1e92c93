"""A curve as an SVG inside a page: its colours follow the page's light or dark ground."""

from __future__ import annotations

from rlhf_studio.jobs.export.curves import Curve, tick_text
from rlhf_studio.jobs.export.html import Html, tag
from rlhf_studio.jobs.export.text import number
from rlhf_studio.language import _

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 24


def curve_svg(curve: Curve, marks: list[tuple[int, str]]) -> Html:
    """The picture of a curve. ``marks``: (step, text) where a setting was changed."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    grid = []
    for value in curve.ticks:
        y = round(TOP + (curve.high - value) / (curve.high - curve.low) * height, 1)
        grid.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        grid.append(tag("text", tick_text(value, curve.ticks), x=LEFT - 6, y=y + 3.5, text_anchor="end"))
    first, last = int(curve.steps[0]), int(curve.steps[-1])
    for step in sorted({first, last}):
        side = LEFT + (0 if step == first else width)
        grid.append(tag("text", str(step), x=side, y=HEIGHT - 6, text_anchor="start" if step == first else "end"))
    for step, text in marks:
        if first <= step <= last:
            x = round(LEFT + (step - first) / max(last - first, 1) * width, 1)
            grid.append(tag("line", tag("title", text), x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="mark"))
    lines = [_line(points, curve.colour) for points in curve.at(width, height)]
    finite = [float(value) for value in curve.values if value == value]
    label = _("{title} from step {first} to step {last}: first {number}, last {number2} {unit}").format(
        title=curve.title, first=first, last=last, number=number(finite[0]), number2=number(finite[-1]), unit=curve.unit
    )
    return tag("svg", grid, lines, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _line(points: list[tuple[float, float]], colour: str) -> Html:
    if len(points) == 1:
        ((x, y),) = points
        return tag("circle", cx=round(LEFT + x, 1), cy=round(TOP + y, 1), r=2.5, fill=colour)
    drawn = " ".join(f"{LEFT + x:.1f},{TOP + y:.1f}" for x, y in points)
    return tag("polyline", points=drawn, stroke=colour, class_="curve")
