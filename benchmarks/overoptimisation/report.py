"""The data, the tables and the figures of docs/overoptimisation.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.overoptimisation import figure, judge
from benchmarks.overoptimisation.plan import CLAIMS, SIZES, cells
from benchmarks.tiny_world import filled

ROOT = Path(__file__).resolve().parents[2]
DATA, SCORES = (ROOT / "benchmarks" / "results" / f"overoptimisation{end}.json" for end in ("", "-scores"))
PAGE, FIGURE = ROOT / "docs" / "overoptimisation.md", ROOT / "assets" / "images" / "overoptimisation.svg"

Scores = dict[str, Any]


def gathered(folder: Path) -> dict[str, Any]:
    """The finished cells by name."""
    made = {cell.name: folder / "cells" / f"{cell.name}.json" for cell in cells()}
    return {name: json.loads(place.read_text(encoding="utf-8")) for name, place in made.items() if place.is_file()}


def write_data(folder: Path) -> None:
    """The finished cells, one a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(cell, separators=(',', ':'))}" for name, cell in gathered(folder).items()]
    DATA.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def write_page() -> None:
    """Scores, page and figure, from the data."""
    scores = judge.computed(json.loads(DATA.read_text(encoding="utf-8")))
    SCORES.write_text(json.dumps(scores) + "\n", encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), "overoptimisation", BLOCKS, scores), encoding="utf-8")
    FIGURE.write_text(figure.drawn(scores), encoding="utf-8")


def up_to_date() -> bool:
    """Whether page and figure say what the scores say."""
    scores, page = json.loads(SCORES.read_text(encoding="utf-8")), PAGE.read_text(encoding="utf-8")
    return page == filled(page, "overoptimisation", BLOCKS, scores) and FIGURE.read_text(encoding="utf-8") == figure.drawn(scores)


def state(scores: Scores) -> list[str]:
    """Whether all cells are there."""
    made, planned, hours = scores["cells"], scores["planned"], scores["hours"]
    if made < planned:
        return [f"**Not finished: {made} of {planned} cells. Every figure below is of these alone and will change.**"]
    return [f"All {planned} cells, {hours:.1f} hours of one core."]


def claims(scores: Scores) -> list[str]:
    """What the paper says, and what came of it."""
    lines = ["| what the paper says, and its number here | | |", "|---|---|---|"]
    for name, (_, words) in CLAIMS.items():
        *figures, verdict = scores["claims"][name]
        lines.append(f"| {words} | {_spread(figures, '+.2f')} | {verdict if scores['cells'] == scores['planned'] else 'not finished'} |")
    return lines


def table(scores: Scores, method: str) -> list[str]:
    """Of each reward model the peak of a method, what is left at the end, and the fit of the method's own form."""
    head = "| reward model | pairs | held-out pairs | highest gain | at d | at the end | α | β | error | of the other form |"
    lines, form = [head, "|" + "---|" * 10], int(method == "PPO")
    for own in sorted(scores["conditions"], key=lambda own: (own["key"][3], own["key"][1], NAMES.index(own["key"][0]))):
        (size, pairs, made_by, beta), of = own["key"], own["figures"]
        if made_by == method:
            last = f"{of['end'][0]:+.2f} (KL {of['last kl'][0]:.0f}, score {of['proxy'][0]:.1f})"
            peak = [_spread(of["gold"], "+.2f"), _spread(of["place"], ".1f"), last]
            fits = [_spread(of[f"{name}{form}"], ".2f") for name in "αβ"] + [f"{of[f'error{which}'][0]:.3f}" for which in (form, 1 - form)]
            name = f"{size}, β = {beta:g}" if beta else size
            lines.append(f"| {name} | {pairs} | {100 * own['accuracy']:.0f} % | {' | '.join(peak + fits)} |")
    return lines


def _spread(figures: Sequence[float], written: str) -> str:
    """A figure and its interval; a dash where there is none yet."""
    value, low, high = (format(number, written) for number in figures or (0, 0, 0))
    return f"{value} ({low} to {high})" if figures else "–"


NAMES = [size.name for size in SIZES]
BLOCKS = {"state": state, "claims": claims, "best": lambda scores: table(scores, "best of n"), "ppo": lambda scores: table(scores, "PPO")}
