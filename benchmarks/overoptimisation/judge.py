"""From cells to the figures of the page: curves, fits, peaks, and the claims of the plan, each with its bootstrap interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks.overoptimisation import plan
from benchmarks.overoptimisation.fits import first_reaching, fit, kl_of_best, slope, top
from benchmarks.overoptimisation.plan import CLAIMS, NS, SIZES, cells

Key = tuple[str, int, str, float]
"""A condition: size, pairs, method, KL coefficient."""
Figures = dict[Any, dict[str, float]]
Found = Mapping[str, Any]


def curve(cell: Any, start: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL and gain in gold over the starting policy, with the prompts of these groups."""
    gain = (np.array(cell["gold"]) - start)[:, groups].mean(axis=1)
    return (kl_of_best(np.array(cell["n"])) if "n" in cell else np.array(cell["kl"])[:, groups].mean(axis=1)), gain


def measured(found: Found, start: np.ndarray, groups: np.ndarray) -> Figures:
    """What is measured of each cell, by its name."""
    curves = {name: curve(cell, start, groups) for name, cell in found.items()}
    result: Figures = {}
    for name, (kl, gain) in curves.items():
        own, fitted, smooth = result.setdefault(name, {}), (kl > 0) & (kl <= plan.MOST_KL), 1 if "n" in found[name] else plan.SMOOTH
        for form in range(len(plan.FORMS)):
            own |= dict(zip((f"α{form}", f"β{form}", f"error{form}"), fit(form, np.sqrt(kl[fitted]), gain[fitted]), strict=True))
        own["gold"], own["place"] = top(gain, kl, smooth)
        own["end"], own["last kl"], own["proxy"] = float(gain[-smooth:].mean()), float(kl[-1]), found[name]["proxy"][-1]
        own["turn"] = own["end"] - (float(gain[NS.index(16)]) if "n" in found[name] else own["gold"])
        if "kl" in found[name] and (other := curves.get(name.partition("-ppo")[0] + "-bon")):
            half = min(gain.max(), other[1].max()) / 2
            spent, enough = first_reaching(half, gain, kl), first_reaching(half, other[1], other[0])
            own["spent"] = float(np.log(spent / enough)) if spent > 0 and enough > 0 else float("nan")
    return result


def by_condition(of_cells: Figures, rng: np.random.Generator | None = None) -> Figures:
    """Means over the seeds of each condition: all seeds once, or seeds drawn by ``rng``."""
    seeds: dict[Key, list[dict[str, float]]] = {}
    for cell in cells():
        if cell.name in of_cells:
            seeds.setdefault((cell.size.name, cell.pairs, cell.method, cell.beta), []).append(of_cells[cell.name])
    chosen = {key: own if rng is None else [own[at] for at in rng.integers(len(own), size=len(own))] for key, own in seeds.items()}
    return {key: {name: float(np.mean([each.get(name, np.nan) for each in own])) for name in own[0]} for key, own in chosen.items()}


def claims(of: Figures) -> dict[str, float]:
    """The number of each claim; NaN where a condition that it needs is not there."""
    grid = [(size, pairs) for size, pairs in product(SIZES, plan.AMOUNTS)]
    sizes, pairs = np.log10([(size.parameters, pairs) for size, pairs in grid]).T

    def each(name: str, method: str, beta: float = 0.0) -> np.ndarray:
        return np.array([of.get((size.name, pairs, method, beta), {}).get(name, np.nan) for size, pairs in grid])

    def mean(values: np.ndarray) -> float:
        return float("nan") if np.isnan(values).all() else float(np.nanmean(values))

    def grows(name: str, with_: np.ndarray, beside: np.ndarray) -> float:
        values = each(name, "PPO")
        return float("nan") if np.isnan(values).any() else slope(values, with_, beside)

    numbers = {
        "form, best-of-n": mean(each("error0", "best of n") - each("error1", "best of n")),
        "form, PPO": mean(each("error1", "PPO") - each("error0", "PPO")),
        "turn, best-of-n": mean(each("turn", "best of n")),
        "turn, PPO": mean(each("turn", "PPO")),
        "size, gold": grows("gold", sizes, pairs),
        "size, place": grows("place", sizes, pairs),
        "size, β": grows("β1", sizes, pairs),
        "pairs, gold": grows("gold", pairs, sizes),
        "pairs, place": grows("place", pairs, sizes),
        "KL spent": mean(each("spent", "PPO")),
        "KL penalty": mean(each("gold", "PPO", plan.BETAS[1]) - each("gold", "PPO")),
    }
    assert list(numbers) == list(CLAIMS)
    return numbers


def verdict(side: str, low: float, high: float) -> str:
    """By the rule beside the claims of the plan."""
    if side == "around":
        return "disagrees" if low > 0 or high < 0 else "agrees" if max(-low, high) <= plan.NEAR else "open"
    if side == "below":
        low, high = -high, -low
    return "agrees" if low > 0 else "disagrees" if high < 0 else "open"


def computed(found: Found) -> dict[str, Any]:
    """All figures of the page, as plain values."""
    start = np.array(next(cell for cell in found.values() if "n" in cell)["gold"][0])  # best of 1: the starting policy
    everything, rng = np.arange(plan.GROUPS), np.random.default_rng(0)
    whole = by_condition(measured(found, start, everything))
    draws = [by_condition(measured(found, start, rng.integers(plan.GROUPS, size=plan.GROUPS)), rng) for _ in range(plan.DRAWS)]
    judged = [claims(of) for of in draws]
    said = {name: with_interval(number, [of[name] for of in judged]) for name, number in claims(whole).items()}
    accuracy = by_condition({name: {"accuracy": cell["accuracy"]} for name, cell in found.items()})
    curves = {name: curve(cell, start, everything) for name, cell in found.items()}
    return {
        "cells": len(found),
        "planned": len(cells()),
        "hours": round(sum(cell["seconds"] for cell in found.values()) / 3600, 2),
        "claims": {name: [*said[name], verdict(side, *said[name][1:]) if said[name] else ""] for name, (side, _) in CLAIMS.items()},
        "conditions": [
            {
                "key": key,
                "accuracy": accuracy[key]["accuracy"],
                "figures": {name: with_interval(number, [of[key].get(name, np.nan) for of in draws]) for name, number in own.items()},
            }
            for key, own in whole.items()
        ],
        "curves": {name: [[round(float(each), 3) for each in part] for part in (np.sqrt(kl), gain)] for name, (kl, gain) in curves.items()},
    }


def with_interval(number: float, drawn: Sequence[float]) -> list[float]:
    """[value, low, high] with the middle 95 % of what was drawn; empty where there is no value."""
    return [] if np.isnan(number) else [round(float(value), 4) for value in (number, *np.nanquantile(drawn, [0.025, 0.975]))]
