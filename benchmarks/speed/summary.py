"""From the rounds to one result: medians, ratios with their spread, the distance to the floor; as JSON and as lines for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.speed.floor import Floor
from benchmarks.speed.job import Job
from benchmarks.speed.rounds import OURS, Outcome

SPLIT = ("total", "rollout", "scoring", "optimisation", "rest")


def spread_of(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(job: Job, rounds: list[list[Outcome]], floor: Floor | None) -> dict[str, Any]:
    """The result of a workload; every round is a list of the same contestants, ours among them."""
    names = [outcome.contestant for outcome in rounds[0]]
    ours = [_of(round_, OURS) for round_ in rounds]
    result: dict[str, Any] = {
        "workload": job.workload.name,
        "title": job.workload.title,
        "contestants": {name: _contestant([_of(round_, name) for round_ in rounds]) for name in names},
        "ratios": {name: _ratios([_of(round_, name) for round_ in rounds], ours) for name in names if name != OURS},
        "rounds": [[asdict(outcome) for outcome in round_] for round_ in rounds],
    }
    if floor is not None:
        rates = [outcome.matrix_rate or 0.0 for outcome in ours]
        distances = [outcome.seconds["total"] * rate / floor.total for outcome, rate in zip(ours, rates, strict=True)]
        typical = {"rate": statistics.median(rates), "seconds": floor.seconds(statistics.median(rates))}
        result["floor"] = {**asdict(floor), "total": floor.total, **typical, "distance": spread_of(distances)}
    return result


def _of(round_: list[Outcome], name: str) -> Outcome:
    return next(outcome for outcome in round_ if outcome.contestant == name)


def _contestant(outcomes: list[Outcome]) -> dict[str, Any]:
    """Medians over the rounds; the largest memory of all."""
    gpu = [outcome.peak_gpu for outcome in outcomes if outcome.peak_gpu is not None]
    return {
        "seconds": {phase: statistics.median(outcome.seconds[phase] for outcome in outcomes) for phase in SPLIT},
        "fastest": min(outcome.spread[0] for outcome in outcomes),
        "slowest": max(outcome.spread[1] for outcome in outcomes),
        "episodes": statistics.median(outcome.episodes for outcome in outcomes),
        "tokens": statistics.median(outcome.tokens for outcome in outcomes),
        "peak_resident": max(outcome.peak_resident for outcome in outcomes),
        "peak_gpu": max(gpu) if gpu else None,
        **{name: getattr(outcomes[-1], name) for name in ("threads", "device", "versions")},
    }


def _ratios(theirs: list[Outcome], ours: list[Outcome]) -> dict[str, Any]:
    """Theirs over ours, round by round: above 1 ours is faster, or smaller."""

    def per_round(phase: str) -> list[float]:
        return [peer.seconds[phase] / mine.seconds[phase] for peer, mine in zip(theirs, ours, strict=True)]

    on_gpu = all(outcome.peak_gpu for outcome in [*theirs, *ours])
    kind = "peak_gpu" if on_gpu else "peak_resident"
    memory = [getattr(peer, kind) / getattr(mine, kind) for peer, mine in zip(theirs, ours, strict=True)]
    both = [
        phase for phase in SPLIT[1:4] if all(peer.seconds[phase] and mine.seconds[phase] for peer, mine in zip(theirs, ours, strict=True))
    ]
    phases = {phase: statistics.median(per_round(phase)) for phase in both}
    return {"per_round": per_round("total"), **spread_of(per_round("total")), "phases": phases, "memory": spread_of(memory)}


def lines(result: dict[str, Any]) -> list[str]:
    """A result for people."""
    count = len(result["rounds"])
    out = [
        f"{result['workload']}: {result['title']}; medians of {count} round{'' if count == 1 else 's'}",
        f"{'':10} {'seconds':>8} {'rollout':>8} {'scoring':>8} {'optimise':>8} {'rest':>6} {'fastest':>8} {'slowest':>8} "
        f"{'eps/s':>7} {'tok/s':>7} {'MB':>7} {'GPU MB':>7}",
    ]
    for name, numbers in result["contestants"].items():
        parts = numbers["seconds"]
        gpu = f"{numbers['peak_gpu'] / 1e6:7,.0f}" if numbers["peak_gpu"] else f"{'-':>7}"
        out.append(
            f"{name:10} {parts['total']:8.2f} {parts['rollout']:8.2f} {parts['scoring']:8.2f} {parts['optimisation']:8.2f} "
            f"{parts['rest']:6.2f} {numbers['fastest']:8.2f} {numbers['slowest']:8.2f} {numbers['episodes']:7.1f} {numbers['tokens']:7.0f} "
            f"{numbers['peak_resident'] / 1e6:7,.0f} {gpu}"
        )
    for name, ratio in result["ratios"].items():
        parts = {**ratio["phases"], "memory": ratio["memory"]["median"]}
        shares = ", ".join(f"{part} {value:.2f}" for part, value in parts.items())
        out.append(f"{name} / ours: {ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f}); {shares}")
    if floor := result.get("floor"):
        out.append(
            f"floor: {floor['total'] / 1e9:,.0f} GFLOP (rollout {floor['rollout'] / 1e9:,.0f}, scoring {floor['scoring'] / 1e9:,.0f}, "
            f"optimisation {floor['optimisation'] / 1e9:,.0f}), {floor['seconds']:.2f} s at {floor['rate'] / 1e9:,.0f} GFLOP/s; ours takes "
            f"{floor['distance']['median']:.2f} times that ({floor['distance']['min']:.2f} to {floor['distance']['max']:.2f})"
        )
    return out
