"""The data, the tables and the figures of docs/overoptimisation.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.overoptimisation import figure, judge
from benchmarks.overoptimisation.plan import AMOUNTS, BETAS, CLAIMS, FORMS, SIZES, cells
from benchmarks.tiny_world import filled

ROOT = Path(__file__).resolve().parents[2]
DATA, SCORES = (ROOT / "benchmarks" / "results" / f"overoptimisation{end}.json" for end in ("", "-scores"))
PAGE, FIGURE = ROOT / "docs" / "overoptimisation.md", ROOT / "assets" / "images" / "overoptimisation.svg"

Scores = dict[str, Any]


def write_data(found: Mapping[str, Any]) -> None:
    """The finished cells, one a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(cell, separators=(',', ':'))}" for name, cell in found.items()]
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
        lines.append(f"| {words} | {_spread(figures, '+.2f')} | {verdict} |")
    return lines


def fitted(scores: Scores) -> list[str]:
    """α, β and the error of the method's own form, and the error of the other one."""
    lines = ["| reward model | pairs | | α | β | error | error of the other form |", "|---|---|---|---|---|---|---|"]
    for size, pairs, method, own in _rows(scores):
        form = int(method == "PPO")
        cells_of = [_spread(own["figures"][name], ".2f") for name in (f"α{form}", f"β{form}")]
        errors = [f"{own['figures'][f'error{which}'][0]:.3f}" for which in (form, 1 - form)]
        lines.append(f"| {size} | {pairs} | {method} | {' | '.join(cells_of + errors)} |")
    return lines


def peaks(scores: Scores) -> list[str]:
    """Where gold is highest, and what is left of it."""
    lines = [
        "| reward model | pairs | held-out pairs | | gold's highest gain | at d | at the end | KL there |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size, pairs, method, own in _rows(scores, with_beta=True):
        of = own["figures"]
        last = f"{of['gold'][0] + of['turn'][0]:+.2f}" if method != "best of n" else f"{_last_gain(own):+.2f}"
        shown = [_spread(of["gold"], "+.2f"), _spread(of["place"], ".1f"), last, f"{of['last kl'][0]:.1f}"]
        lines.append(f"| {size} | {pairs} | {100 * own['accuracy']:.0f} % | {method} | {' | '.join(shown)} |")
    return lines


BLOCKS = {"state": state, "claims": claims, "fits": fitted, "peaks": peaks}


def _last_gain(own: Scores) -> float:
    gains = [gain[-1] for _, gain, _ in own["curves"]]
    return sum(gains) / len(gains)


def _rows(scores: Scores, with_beta: bool = False) -> list[tuple[str, int, str, Scores]]:
    """The conditions in the order of the grid."""
    by_key = {tuple(own["key"]): own for own in scores["conditions"]}
    kinds = [("best of n", 0.0), *(("PPO", beta) for beta in (BETAS if with_beta else BETAS[:1]))]
    rows = []
    for method, beta in kinds:
        for pairs in AMOUNTS:
            for size in SIZES:
                if own := by_key.get((size.name, pairs, method, beta)):
                    rows.append((size.name, pairs, f"{method}, β {beta:g}" if beta else method, own))
    return rows


def _spread(figures: Sequence[float], written: str) -> str:
    """A figure and its interval; a dash where there is none yet."""
    if not figures:
        return "–"
    value, low, high = (format(number, written) for number in figures)
    return f"{value} ({low} to {high})"
