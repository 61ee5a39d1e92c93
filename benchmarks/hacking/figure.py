"""The figure of docs/hacking.md as SVG: delay against false alarms, a line for each monitor."""

from __future__ import annotations

from typing import Any

from benchmarks.hacking.scoring import MOST_DELAY

SHOWN = ("clock", "KL", "entropy fall", "length drift", "contraction tube", "doctor", "doctor, told gold")
COLOURS = ("#6b7280", "#2563eb", "#b45309", "#7c3aed", "#be185d", "#047857", "#0e7490")
DASHES = ("2 3", "", "7 3", "", "7 3 2 3", "", "7 3")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 60, 46, 180, 56
MOST_FALSE = 0.5  # the axis ends here: a monitor that is wrong in every second run is of no use
FONT = 'font-family="system-ui, sans-serif" font-size="13"'


def drawn(scores: dict[str, Any]) -> str:
    """The figure. It has a white ground of its own, so that it reads on a dark page too."""
    lowest = min((point[2] for name in SHOWN for point in _points(scores, name)), default=0.0)
    low = 5 * (int(lowest) // 5) if lowest < 0 else 0

    def at(false: float, delay: float) -> tuple[float, float]:
        across, down = min(false / MOST_FALSE, 1.0), (MOST_DELAY - delay) / (MOST_DELAY - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), TOP + down * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT} fill="#1f2937">',
        "<title>Mean delay of the first alarm against the share of runs with a false alarm, a line for each monitor</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT - 40}" y="24">mean delay in steps; lower is better{_unfinished(scores)}</text>',
    ]
    for delay in range(low, MOST_DELAY + 1, 5):
        (x, y), (end, _) = at(0, delay), at(MOST_FALSE, delay)
        parts.append(f'<line x1="{x}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}" stroke="{"#6b7280" if delay == 0 else "#e5e7eb"}"/>')
        parts.append(f'<text x="{x - 10}" y="{y + 4:.1f}" text-anchor="end">{delay}</text>')
    for tenth in range(6):
        x, y = at(tenth / 10, low)
        parts.append(f'<text x="{x:.1f}" y="{y + 20:.1f}" text-anchor="middle">{10 * tenth} %</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}">runs with a false alarm</text>')
    for number, name in enumerate(SHOWN):
        stroke = f'stroke="{COLOURS[number]}" stroke-width="2" stroke-dasharray="{DASHES[number]}"'
        steps = _steps([at(false, delay) for false, _, delay in _points(scores, name) if false <= MOST_FALSE], at(MOST_FALSE, 0)[0])
        if steps:
            parts.append(f'<polyline points="{steps}" fill="none" {stroke}/>')
        y = TOP + 10 + 24 * number
        parts.append(f'<line x1="{WIDTH - RIGHT + 16}" x2="{WIDTH - RIGHT + 46}" y1="{y}" y2="{y}" {stroke}/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 54}" y="{y + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _points(scores: dict[str, Any], name: str) -> list[list[float]]:
    return list(scores["monitors"].get(name, {}).get("curve", []))


def _steps(points: list[tuple[float, float]], end: float) -> str:
    """A line that goes right before it goes down: between two thresholds a monitor is as good as the stricter one."""
    corners: list[tuple[float, float]] = []
    for x, y in points:
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    if corners:
        corners.append((end, corners[-1][1]))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _unfinished(scores: dict[str, Any]) -> str:
    made, planned = scores["runs"], scores["planned"]
    return "" if made == planned else f" (unfinished: {made} of {planned} runs)"
