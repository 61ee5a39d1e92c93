"""A picture of a card as SVG, for documents: curves, or points in a plane. Pages draw the same data by their own script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 300, 48, 16, 34, 70
FONT = 'font-family="system-ui, sans-serif" font-size="12"'
TONES = {"score": "#4f46e5", "gold": "#b45309", "policy": "#be185d", "value": "#2563eb", "coef": "#64748b"}
Data = Mapping[str, Any]
Scale = Callable[[float], float]


def drawn(data: Data, title: str) -> str:
    """The picture. It has a white ground of its own, so that it reads on a dark page too."""
    parts = _parts(data["points"] if "points" in data else data["series"], data)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT} fill="#1f2937">'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>", ""])


def _parts(series: list[Data], data: Data) -> Iterator[str]:
    x, y = _scale(data["x_range"], LEFT, WIDTH - RIGHT), _scale(data["y_range"], HEIGHT - BOTTOM, TOP)
    yield _text(4, 18, data["y"])
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, data["x"], "middle")
    for value in _ticks(*data["y_range"]):
        colour = "#94a3b8" if abs(value) < 1e-9 else "#e5e7eb"
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{colour}"/>'
        yield _text(LEFT - 6, y(value) + 4, _short(value), "end")
    for value in _ticks(*data["x_range"]):
        yield _text(x(value), HEIGHT - BOTTOM + 16, _short(value), "middle")
    for one in series:
        places = [(x(across), y(up)) for across, up in zip(one["x"], one["y"], strict=True)]
        colour = TONES[one["tone"]]
        if one["dots"]:
            yield from (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="5" fill="{colour}" stroke="#ffffff"/>' for a, b in places)
        else:
            yield f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in places)}" fill="none" stroke="{colour}" stroke-width="2"/>'
    left = float(LEFT)
    for one in series:
        yield f'<rect x="{left:.0f}" y="{HEIGHT - 19}" width="10" height="10" fill="{TONES[one["tone"]]}"/>'
        yield _text(left + 16, HEIGHT - 10, one["label"])
        left += 40 + 6.6 * len(one["label"])


def _scale(of: tuple[float, float], start: float, end: float) -> Scale:
    low, high = of
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers in a range, about five."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= 0.999 * rough)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
