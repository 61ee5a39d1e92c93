"""The figure of docs/overoptimisation.md as SVG: gain in gold against d, best-of-n and PPO, a panel for each amount of pairs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from benchmarks.overoptimisation.fits import value
from benchmarks.overoptimisation.plan import AMOUNTS, SIZES

COLOURS = dict(zip((size.name for size in SIZES), ("#b45309", "#2563eb", "#047857"), strict=True))
WIDTH, HEIGHT, LEFT, TOP, PANEL, GAP, TALL = 940, 360, 56, 56, 270, 24, 240
MOST_D, LOW, HIGH = 8.0, -1.2, 1.0
ENDS = {"best of n": "-bon", "PPO": "-ppo-0"}
FONT = 'font-family="system-ui, sans-serif" font-size="13"'


def drawn(scores: dict[str, Any]) -> str:
    """The figure. It has a white ground of its own, so that it reads on a dark page too."""
    unfinished = "" if scores["cells"] == scores["planned"] else f" (unfinished: {scores['cells']} of {scores['planned']} cells)"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT} fill="#1f2937">',
        "<title>Gain in gold against the root of the KL: points are measured, lines fitted, for three sizes and amounts of pairs</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT - 40}" y="20">gain in gold; circles: best-of-n, dots: PPO, lines: the fitted forms{unfinished}</text>',
    ]
    for place, pairs in enumerate(AMOUNTS):
        left = LEFT + place * (PANEL + GAP)
        parts += _axes(left, pairs, first=place == 0)
        for own in scores["conditions"]:
            if own["key"][1] == pairs and own["key"][3] == 0:
                begin, end = f"{own['key'][0]}-{pairs}-", ENDS[own["key"][2]]
                parts += _curves(own, [curve for name, curve in scores["curves"].items() if re.fullmatch(rf"{begin}\d+{end}", name)], left)
    for number, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + 420 + 110 * number
        parts.append(f'<circle cx="{x}" cy="{HEIGHT - 16}" r="4" fill="{colour}"/><text x="{x + 10}" y="{HEIGHT - 12}">{name}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}">d, the root of the KL to the starting policy in nats</text>')
    return "\n".join([*parts, "</svg>", ""])


def _at(left: float, d: float, gain: float) -> tuple[float, float]:
    return left + PANEL * min(d, MOST_D) / MOST_D, TOP + TALL * (HIGH - min(max(gain, LOW), HIGH)) / (HIGH - LOW)


def _axes(left: float, pairs: int, first: bool) -> list[str]:
    parts = [f'<text x="{left + PANEL / 2}" y="{TOP - 10}" text-anchor="middle">{pairs} pairs</text>']
    for gain in np.arange(-1.0, HIGH + 0.01, 0.5):
        (x, y), (end, _) = _at(left, 0, gain), _at(left, MOST_D, gain)
        parts.append(f'<line x1="{x:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{"#6b7280" if gain == 0 else "#e5e7eb"}"/>')
        if first:
            parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{gain:+.1f}</text>')
    for d in range(0, int(MOST_D) + 1, 2):
        x, y = _at(left, d, LOW)
        parts.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{d}</text>')
    return parts


def _curves(own: dict[str, Any], curves: list[Any], left: float) -> list[str]:
    """The points of all seeds, and the form with the mean α and β."""
    colour, form, parts = COLOURS[own["key"][0]], int(own["key"][2] == "PPO"), []
    for d, gain in ((d, gain) for curve in curves for d, gain in zip(*curve, strict=True) if d <= MOST_D):
        mark = f'r="1.7" fill="{colour}"' if form else f'r="3" fill="none" stroke="{colour}"'
        x, y = _at(left, d, gain)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" {mark} opacity="0.7"/>')
    grid = np.linspace(0.01, min(max(max(ds) for ds, _ in curves), MOST_D), 60)
    alpha, beta = (own["figures"][f"{name}{form}"][0] for name in "αβ")
    fitted = [_at(left, d, gain) for d, gain in zip(grid, value(form, alpha, beta, grid), strict=True) if LOW <= gain <= HIGH]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in fitted)
    return [*parts, f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>']
