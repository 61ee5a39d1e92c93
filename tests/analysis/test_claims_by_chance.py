"""Runs, reports and comparisons in which nothing happens: what is stated of them by chance is wrong, and has to be rare.

``pytest -m long -s tests/analysis/test_claims_by_chance.py`` prints the figures of docs/doctor.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from rlhf_studio.analysis.compare import verdict as compared
from rlhf_studio.analysis.compare.records import RunGroup
from rlhf_studio.analysis.doctor import checks  # noqa: F401  (registers the checks)
from rlhf_studio.analysis.doctor.check import courses
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.reward_model.accuracy import fit, length_bias
from rlhf_studio.analysis.reward_model.calibration import calibration
from rlhf_studio.analysis.reward_model.pairs import scored_pairs
from rlhf_studio.analysis.reward_model.report import in_words
from rlhf_studio.config import RunConfig
from tests.analysis.test_trend import wandering

LOOKED_FOR = ("judge-falls", "held-out-falls", "kl-negative", "length-drift", "all-cut-off", "cut-off-rising", "all-end")
LONG = pytest.mark.long
FEW_OR_MANY = pytest.mark.parametrize("tries", [60, pytest.param(300, marks=LONG)], ids=["few", "many"])


def allowed(tries: int) -> float:
    """5 %, and two standard errors of so many tries."""
    return 0.05 + 2 * float(np.sqrt(0.05 * 0.95 / tries))


def healthy(draw: np.random.Generator, steps: int, batch: int, rise: float = 3.0) -> RunData:
    """The score rises; gold, lengths, ends and the KL of 0.05 nats stay. Score and gold wander by half of their sampling error."""
    settings = {"ppo": {"steps": steps, "batch_size": batch, "mini_batch_size": batch}}
    wander = 0.5 / np.sqrt(batch) * np.stack([wandering(draw, steps, 0.8) for _ in range(2)])
    score, gold = draw.normal(size=(2, steps, batch)) + wander[:, :, None]
    score += rise * np.linspace(0, 1, steps)[:, None]
    kl = 0.05 + np.sqrt(2 * 0.05) * draw.normal(size=(steps, batch))  # a log-ratio of two near normal distributions has the variance 2 KL
    metrics = {
        "objective/scores": score.mean(axis=1),
        "objective/scores_std": score.std(axis=1, ddof=1),
        "objective/scores_se": score.std(axis=1, ddof=1) / np.sqrt(batch),
        "gold/score": gold.mean(axis=1),
        "gold/score_se": gold.std(axis=1, ddof=1) / np.sqrt(batch),
        "objective/kl": kl.mean(axis=1),
        "tokens/response_length": draw.lognormal(3, 0.5, (steps, batch)).mean(axis=1),
        "tokens/cut_off": (draw.random((steps, batch)) < 0.1).mean(axis=1),
    }
    watched = {step: draw.normal(size=8) + np.linspace(-1, 1, 8) + rise * bool(step) for step in range(0, steps + 1, 5)}
    run = RunConfig.model_validate(settings)
    return RunData(run, "finished", "", "cpu", steps, np.arange(1, steps + 1), metrics, watched_scores=watched)


@FEW_OR_MANY
@pytest.mark.parametrize("batch", [pytest.param(4, marks=LONG), 8, pytest.param(64, marks=LONG)])
def test_healthy_runs_get_no_findings_by_chance(batch: int, tries: int) -> None:
    draw, counts = np.random.default_rng(batch), Counter[str]()
    for _ in range(tries):
        findings = courses(healthy(draw, 300, batch))
        counts.update(name for name in LOOKED_FOR if name in findings and findings[name].levels.any())
    print(f"\n{batch} responses: " + ", ".join(f"{name} {counts[name] / tries:.1%}" for name in LOOKED_FOR), end="")
    assert max(counts.values(), default=0) / tries <= allowed(tries)


@FEW_OR_MANY
@pytest.mark.parametrize("pairs", [pytest.param(20, marks=LONG), 50, pytest.param(200, marks=LONG)])
def test_a_calibrated_reward_model_that_ignores_length_is_seldom_blamed(pairs: int, tries: int) -> None:
    draw, blamed = np.random.default_rng(pairs), Counter[str]()
    for _ in range(tries):
        margins = 1.5 * draw.normal(size=pairs)
        first = draw.random(pairs) < 1 / (1 + np.exp(-margins))  # people choose as the model says that they will
        record: dict[str, Any] = {"chosen": np.where(first, margins, -margins).tolist(), "rejected": [0.0] * pairs, "ties": []}
        record |= {f"{side}_tokens": draw.integers(5, 30, pairs).tolist() for side in ("chosen", "rejected")}
        table = scored_pairs(record | {"numbers": list(range(pairs)), "groups": [""] * pairs})
        words = " ".join(in_words(fit(table), calibration(table), length_bias(table), None, None))
        blamed.update(blame for blame in ("too sure", "less sure", "favours") if blame in words)
    print(f"\n{pairs} pairs: " + ", ".join(f"{blame} {count / tries:.1%}" for blame, count in blamed.items()), end="")
    assert max(blamed["too sure"] + blamed["less sure"], blamed["favours"]) / tries <= allowed(tries)


@dataclass
class Series:
    """A run of one metric, as the comparison reads it."""

    values: np.ndarray
    seed: int
    first: dict[str, float | None] = field(default_factory=dict)
    last: dict[str, float | None] = field(default_factory=dict)

    def columns(self, names: list[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return np.arange(1, len(self.values) + 1), {names[0]: self.values}


def settings_alike(draw: np.random.Generator, count: int, seeds: int, alike: float) -> list[compared.Result]:
    """What settings come to that all are equally good, in 60 steps, the best first."""
    runs = [Series(wandering(draw, 60, alike), seed) for _ in range(count) for seed in range(seeds)]
    for run in runs:
        run.last = {compared.SCORE: float(run.values[-6:].mean())}
    groups = [RunGroup(f"setting {number}", list(range(number * seeds, (number + 1) * seeds))) for number in range(count)]
    return compared._results(cast(Any, runs), cast(Any, runs), groups, range(len(runs)), compared.SCORE)


@FEW_OR_MANY
@pytest.mark.parametrize(
    ("count", "seeds", "alike"),
    [
        pytest.param(2, 1, 0.0, marks=LONG),
        (2, 1, 0.6),
        pytest.param(10, 1, 0.6, marks=LONG),
        pytest.param(2, 3, 0.6, marks=LONG),
        (10, 3, 0.6),
    ],
)
def test_equal_settings_are_seldom_told_apart(count: int, seeds: int, alike: float, tries: int) -> None:
    """The best two; and the best by the score against any other that gold may prefer."""
    draw, best, other = np.random.default_rng(count), 0, 0
    for _ in range(tries):
        results = settings_alike(draw, count, seeds, alike)
        best += results[0].value - results[1].value > compared._margin(results[0], results[1], results)
        preferred = results[draw.integers(count)]
        other += results[0].value - preferred.value > compared._margin(results[0], preferred, results, count - 1)
    print(f"\n{count} settings, {seeds} seeds, alike {alike:g}: best {best / tries:.1%}, other {other / tries:.1%}", end="")
    assert max(best, other) / tries <= allowed(tries)
