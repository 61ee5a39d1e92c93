"""From cells to the figures of the page: curves, fits, peaks, and the claims of the plan, each with its bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks.overoptimisation.fits import first_reaching, fit, interval, kl_of_best, slope, top
from benchmarks.overoptimisation.plan import AMOUNTS, BETA_AMOUNT, BETAS, CLAIMS, DRAWS, FORMS, GROUPS, MOST_KL, NEAR, SIZES, SMOOTH, cells

Key = tuple[str, int, str, float]
"""A condition: size, pairs, method, KL coefficient."""
Figures = dict[Key, dict[str, float]]
Found = Mapping[str, Any]


def conditions(found: Found) -> dict[Key, list[Any]]:
    """The finished cells of each condition, a list over seeds."""
    made: dict[Key, list[Any]] = {}
    for cell in cells():
        if cell.name in found:
            made.setdefault((cell.size.name, cell.pairs, cell.method, cell.beta), []).append(found[cell.name])
    return made


def curve(cell: Any, start: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL and gain in gold over the starting policy, with the prompts of these groups."""
    gain = (np.array(cell["gold"]) - start)[:, groups].mean(axis=1)
    return (kl_of_best(np.array(cell["n"])) if "n" in cell else np.array(cell["kl"])[:, groups].mean(axis=1)), gain


def figures(made: Mapping[Key, list[Any]], start: np.ndarray, groups: np.ndarray, rng: np.random.Generator | None) -> Figures:
    """What is measured of each condition: with all seeds once, or with seeds drawn by ``rng``."""
    result: Figures = {}
    for key, of_seeds in made.items():
        chosen = of_seeds if rng is None else [of_seeds[place] for place in rng.integers(len(of_seeds), size=len(of_seeds))]
        curves = [curve(cell, start, groups) for cell in chosen]
        kl, gain = (np.concatenate(part) for part in zip(*curves, strict=True))
        fitted = (kl > 0) & (kl <= MOST_KL)
        own: dict[str, float] = {}
        for form in range(len(FORMS)):
            own |= dict(zip((f"α{form}", f"β{form}", f"error{form}"), fit(form, np.sqrt(kl[fitted]), gain[fitted]), strict=True))
        tops = [top(gain, kl, SMOOTH if key[2] == "PPO" else 1) for kl, gain in curves]
        own |= dict(zip(("gold", "place"), np.mean(tops, axis=0).tolist(), strict=True))
        if key[2] == "PPO":
            own["turn"] = float(np.mean([gain[-SMOOTH:].mean() - peak for (_, gain), (peak, _) in zip(curves, tops, strict=True)]))
        else:
            own["turn"] = float(np.mean([gain[-1] - gain[4] for _, gain in curves]))
        own |= {"last kl": float(np.mean([kl[-1] for kl, _ in curves]))}
        result[key] = own
        own["spent"] = float("nan")
        if key[2] == "PPO" and (other := result.get((*key[:2], "best of n", 0.0))):
            half = min(own["gold"], other["gold"]) / 2
            ours = [first_reaching(half, gain, kl) for kl, gain in curves]
            theirs = [
                first_reaching(half, gain, kl) for kl, gain in (curve(cell, start, groups) for cell in made[(*key[:2], "best of n", 0.0)])
            ]
            own["spent"] = float(np.log(np.nanmean(ours) / np.nanmean(theirs))) if half > 0 else float("nan")
    return result


def claims(of: Figures) -> dict[str, float]:
    """The number of each claim; NaN where a condition that it needs is not there."""
    grid = [(size.name, pairs) for size, pairs in product(SIZES, AMOUNTS)]
    tens = {size.name: np.log10(size.parameters) for size in SIZES}
    sizes, pairs = (np.array(column) for column in zip(*((tens[size], np.log10(pairs)) for size, pairs in grid), strict=True))

    def each(name: str, method: str) -> np.ndarray:
        return np.array([of.get((*place, method, 0.0), {}).get(name, np.nan) for place in grid])

    def mean(values: np.ndarray) -> float:
        return float(values[~np.isnan(values)].mean()) if not np.isnan(values).all() else float("nan")

    def grows(name: str, with_: np.ndarray, beside: np.ndarray) -> float:
        values = each(name, "PPO")
        return float("nan") if np.isnan(values).any() else slope(values, with_, beside)

    penalty = [
        of[size.name, BETA_AMOUNT, "PPO", BETAS[1]]["gold"] - of[size.name, BETA_AMOUNT, "PPO", 0.0]["gold"]
        for size in SIZES
        if (size.name, BETA_AMOUNT, "PPO", BETAS[1]) in of
    ]
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
        "KL penalty": mean(np.array(penalty)) if penalty else float("nan"),
    }
    assert list(numbers) == list(CLAIMS)
    return numbers


def verdict(side: str, low: float, high: float) -> str:
    """By the rule beside the claims of the plan."""
    if side == "around":
        return "disagrees" if low > 0 or high < 0 else "agrees" if max(-low, high) <= NEAR else "open"
    if side == "below":
        low, high = -high, -low
    return "agrees" if low > 0 else "disagrees" if high < 0 else "open"


def computed(found: Found) -> dict[str, Any]:
    """All figures of the page, as plain values."""
    made = conditions(found)
    start = np.array(next(cell for cell in found.values() if "n" in cell)["gold"][0])  # best of 1: the starting policy
    everything, rng = np.arange(GROUPS), np.random.default_rng(0)
    whole = figures(made, start, everything, None)
    draws = [figures(made, start, rng.integers(GROUPS, size=GROUPS), rng) for _ in range(DRAWS)]
    judged = [claims(of) for of in draws]
    said = {name: with_interval(number, [of[name] for of in judged]) for name, number in claims(whole).items()}
    return {
        "cells": len(found),
        "planned": len(cells()),
        "hours": round(sum(cell["seconds"] for cell in found.values()) / 3600, 2),
        "start": round(float(start.mean()), 4),
        "claims": {name: [*said[name], verdict(side, *said[name][1:]) if said[name] else ""] for name, (side, _) in CLAIMS.items()},
        "conditions": [
            {
                "key": list(key),
                "seeds": len(of_seeds),
                "accuracy": round(float(np.mean([cell["accuracy"] for cell in of_seeds])), 4),
                "figures": {name: with_interval(number, [of[key][name] for of in draws]) for name, number in whole[key].items()},
                "curves": [
                    [_short(np.sqrt(kl)), _short(gain), cell["proxy"]] for cell in of_seeds for kl, gain in [curve(cell, start, everything)]
                ],
            }
            for key, of_seeds in made.items()
        ],
    }


def with_interval(number: float, drawn: Sequence[float]) -> list[float]:
    """[value, low, high]; empty where there is no value."""
    return [] if np.isnan(number) else [round(float(value), 4) for value in (number, *interval(np.array(drawn)))]


def _short(values: np.ndarray) -> list[float]:
    return [round(float(value), 3) for value in values]
