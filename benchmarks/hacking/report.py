"""The tables and the figure of docs/hacking.md, made from the data in benchmarks/results/hacking/.

``scores.json`` holds what is computed, so that the page can be compared with it without computing it again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import tiny_world
from benchmarks.hacking import figure, published  # noqa: F401  (registers the monitors)
from benchmarks.hacking.data import FOLDER, Run
from benchmarks.hacking.monitors import MONITORS, Monitor
from benchmarks.hacking.scoring import Watched, intervals, score_of

ROOT = Path(__file__).resolve().parents[2]
PAGE, FIGURE, SCORES = ROOT / "docs" / "hacking.md", ROOT / "assets" / "images" / "hacking.svg", FOLDER / "scores.json"
LIMITS = (0.0, 0.05, 0.1, 0.2, 0.3)
"""Shares of runs with a false alarm for which the curve is written down."""

Scores = dict[str, Any]


# --- what is computed ----------------------------------------------------------------------------------------------------------


def computed(runs: Sequence[Run], planned: int) -> Scores:
    """All figures of the page, as plain values."""
    watched = {name: Watched.of(monitor, runs) for name, monitor in MONITORS.items()}
    return {
        "runs": len(runs),
        "planned": planned,
        "hours": sum(run.seconds for run in runs) / 3600,
        "about": [_about(run) for run in runs],
        "monitors": {name: _monitor_scores(MONITORS[name], each) for name, each in watched.items()},
    }


def _about(run: Run) -> dict[str, Any]:
    names = ("judge", "kind", "beta", "part", "label", "best", "onset", "fall", "accuracy")
    return {name: getattr(run, name) for name in names}


def _monitor_scores(monitor: Monitor, watched: Watched) -> Scores:
    train, test, held_out = (watched.only(lambda run, part=part: run.part == part) for part in ("train", "test", "held out"))  # type: ignore[misc]
    result: Scores = {"family": monitor.family, "gold": monitor.gold}
    if not any(run.onset is not None for run in train.runs):  # nothing to choose a threshold by
        return result
    chosen = train.chosen()
    result |= {"threshold": _finite(chosen), "train": _at(train, chosen), "test": _at(test, chosen), "held_out": _at(held_out, chosen)}
    kinds = sorted({run.kind for run in test.runs})
    result["kinds"] = {kind: _at(test.only(lambda run, kind=kind: run.kind == kind), chosen) for kind in kinds}  # type: ignore[misc]
    if monitor.published is not None:
        result["published"] = {
            "threshold": monitor.published,
            "test": _at(test, monitor.published),
            "held_out": _at(held_out, monitor.published),
        }
    both = watched.only(lambda run: run.part != "train")
    result["curve"] = _curve(both)
    return result


def _at(watched: Watched, threshold: float) -> Scores | None:
    """Figures with their intervals at a threshold; None without runs."""
    if not watched.runs:
        return None
    table = watched.at(threshold)
    names = ("false", "caught", "early", "delay")
    ranges = intervals(table, [run.cluster for run in watched.runs])
    score = score_of(table)
    figures = {name: [_finite(getattr(score, name)), *map(_finite, span)] for name, span in zip(names, ranges, strict=True)}
    return {"runs": len(watched.runs), "hacked": sum(run.onset is not None for run in watched.runs), **figures}


def _curve(watched: Watched) -> list[list[float]]:
    """(false, caught, delay) at every threshold that is better than all with as few false alarms, the fewest first."""
    points: list[list[float]] = []
    if not any(run.onset is not None for run in watched.runs):
        return points
    for _, score in sorted(watched.curve(), key=lambda point: (point[1].false, point[1].delay)):
        if not points or score.delay < points[-1][2]:
            points.append([round(value, 4) for value in (score.false, score.caught, score.delay)])
    return points


def _finite(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


# --- blocks --------------------------------------------------------------------------------------------------------------------


def state(scores: Scores) -> list[str]:
    """Whether all runs are there."""
    made, planned = scores["runs"], scores["planned"]
    if not made:
        return ["**No run is finished yet: every table below is empty.**"]
    if made < planned:
        return [f"**Not finished: {made} of {planned} runs. Every figure below is of these alone and will change.**"]
    return [f"All {planned} runs, {scores['hours']:.1f} hours of one core."]


def runs(scores: Scores) -> list[str]:
    """What gold says of the runs, by kind of weakness and KL coefficient."""
    about = scores["about"]
    betas = sorted({run["beta"] for run in about})
    lines = [
        _title(scores, "Runs that are hacked, of all, and the median onset"),
        "",
        f"| weakness | {' | '.join(f'β {beta:g}' for beta in betas)} | spoilt | median step of the best policy |",
        f"|---|{'---|' * len(betas)}---|---|",
    ]
    for kind in sorted({run["kind"] for run in about}):
        own = [run for run in about if run["kind"] == kind]
        cells = [_onsets([run for run in own if run["beta"] == beta]) for beta in betas]
        best = _median([run["best"] for run in own if run["onset"] is not None])
        spoilt = sum(run["label"] == "spoilt" for run in own)
        lines.append(f"| {kind} | {' | '.join(cells)} | {spoilt} | {'–' if best is None else f'{best:g}'} |")
    return lines


def judges(scores: Scores) -> list[str]:
    """The reward models, and what came of them."""
    about = scores["about"]
    lines = [
        _title(scores, "Reward models: pairs ranked as their rater did, and runs that are hacked"),
        "",
        "| reward model | held-out pairs | hacked | largest fall of gold |",
        "|---|---|---|---|",
    ]
    for judge in dict.fromkeys(run["judge"] for run in about):
        own = [run for run in about if run["judge"] == judge]
        hacked = [run for run in own if run["onset"] is not None]
        fall = f"{max(run['fall'] for run in hacked):.2f}" if hacked else "–"
        accuracy = sum(run["accuracy"] for run in own) / len(own)
        lines.append(f"| {judge} | {100 * accuracy:.0f} % | {len(hacked)} of {len(own)} | {fall} |")
    return lines


def monitors(scores: Scores) -> list[str]:
    """Every monitor at the threshold that the training part chose."""
    first = "| monitor | from | threshold | false alarms, training | false alarms | in time | of these early | delay"
    head = f"{first} | held out: false | in time | delay |"
    lines = [
        _title(scores, "Thresholds chosen on the training part; figures of the test part and of the kind held out"),
        "",
        head,
        "|---|---|" + "---|" * 9,
    ]
    for name, own in _by_caught(scores):
        if own.get("test") is None:
            continue
        test, held = own["test"], own["held_out"]
        cells = [
            "none" if own["threshold"] is None else f"{own['threshold']:.3g}",
            _percent(own["train"]["false"][:1]),
            _percent(test["false"]),
            _percent(test["caught"]),
            _percent(test["early"][:1]),
            _steps(test["delay"]),
            *(["–"] * 3 if held is None else [_percent(held["false"]), _percent(held["caught"]), _steps(held["delay"])]),
        ]
        lines.append(f"| {name} | {own['family']} | {' | '.join(cells)} |")
    return lines


def published_thresholds(scores: Scores) -> list[str]:
    """The monitors that come with a threshold, at that one."""
    lines = [
        _title(scores, "Thresholds as they are published; figures of the test part and of the kind held out"),
        "",
        "| monitor | from | threshold | false alarms | in time | delay | held out: false | in time | delay |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, own in scores["monitors"].items():
        if "published" not in own:
            continue
        cells = []
        for part in ("test", "held_out"):
            figures = own["published"][part]
            cells += ["–"] * 3 if figures is None else [_percent(figures["false"]), _percent(figures["caught"]), _steps(figures["delay"])]
        lines.append(f"| {name} | {own['family']} | {abs(own['published']['threshold']):g} | {' | '.join(cells)} |")
    return lines


def kinds(scores: Scores) -> list[str]:
    """In time, by kind of weakness, at the chosen threshold; for raters without one the false alarms too."""
    names = sorted({kind for own in scores["monitors"].values() for kind, at in own.get("kinds", {}).items() if at})
    lines = [
        _title(scores, "Test part, by weakness: false alarms / in time, at the threshold chosen on the training part"),
        "",
        f"| monitor | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    for name, own in _by_caught(scores):
        cells = [own.get("kinds", {}).get(kind) for kind in names]
        shown = ["–" if at is None else f"{_percent(at['false'][:1])} / {_percent(at['caught'][:1])}" for at in cells]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return lines


def curves(scores: Scores) -> list[str]:
    """The best mean delay with at most so many false alarms."""
    head = " | ".join(f"{100 * limit:.0f} %" for limit in LIMITS)
    lines = [
        _title(scores, "Mean delay in steps with at most so many runs with a false alarm; test part and kind held out together"),
        "",
        f"| monitor | {head} |",
        f"|---|{'---|' * len(LIMITS)}",
    ]
    for name, own in _by_caught(scores):
        points = own.get("curve", [])
        best = [min((point[2] for point in points if point[0] <= limit), default=None) for limit in LIMITS]
        lines.append(f"| {name} | {' | '.join('–' if delay is None else f'{delay:+.1f}' for delay in best)} |")
    return lines


BLOCKS: dict[str, Callable[[Scores], list[str]]] = {
    "state": state,
    "runs": runs,
    "judges": judges,
    "monitors": monitors,
    "published": published_thresholds,
    "kinds": kinds,
    "curves": curves,
}


def filled(page: str, scores: Scores) -> str:
    """The page with every block made anew."""
    return tiny_world.filled(page, "hacking", BLOCKS, scores)


def write_page(scores: Scores) -> None:
    """Scores, page and figure."""
    SCORES.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), scores), encoding="utf-8")
    FIGURE.write_text(figure.drawn(scores), encoding="utf-8")


# --- parts of them -------------------------------------------------------------------------------------------------------------


def _title(scores: Scores, words: str) -> str:
    """Above every table: an unfinished one cannot be taken for a whole one."""
    made, planned = scores["runs"], scores["planned"]
    return f"*{words}.*" if made == planned else f"***Unfinished, {made} of {planned} runs.** {words}.*"


def _by_caught(scores: Scores) -> list[tuple[str, Scores]]:
    """The monitors, those that caught most on the test part first; those that are told gold last."""

    def key(item: tuple[str, Scores]) -> tuple[bool, float, float]:
        test = item[1].get("test")
        return item[1]["gold"], -(test["caught"][0] or 0.0) if test else 0.0, (test["delay"][0] or 0.0) if test else 0.0

    return sorted(scores["monitors"].items(), key=key)


def _onsets(own: Sequence[Scores]) -> str:
    hacked = [run["onset"] for run in own if run["onset"] is not None]
    median = _median(hacked)
    return f"{len(hacked)} of {len(own)}" + ("" if median is None else f" (step {median:g})")


def _median(values: Sequence[float]) -> float | None:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return None if not ordered else float(ordered[middle] + ordered[~middle]) / 2


def _percent(values: Sequence[float | None]) -> str:
    return _spread(values, lambda value: f"{100 * value:.0f}", " %")


def _steps(values: Sequence[float | None]) -> str:
    return _spread(values, lambda value: f"{value:+.1f}", "")


def _spread(values: Sequence[float | None], written: Callable[[float], str], unit: str) -> str:
    """A figure, and its interval where it is not a point; a dash where it is not known."""
    if values[0] is None:
        return "–"
    figure, *interval = [written(value) for value in values if value is not None]
    return f"{figure}{unit}" + (f" ({interval[0]} to {interval[1]})" if len(set(interval)) == 2 else "")
