"""What the verdict says of runs whose scores are noisy, of which the truth is known; what it expects of them; what holds them back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.analysis import trend
from rlhf_studio.analysis.doctor import bounds, judges
from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.expectation import outlook, steps_if_it_rises, steps_if_it_stays
from rlhf_studio.analysis.doctor.held_back import held_back
from rlhf_studio.analysis.doctor.run_data import RunCache, RunData
from rlhf_studio.analysis.doctor.stages import ppo
from rlhf_studio.analysis.doctor.verdict import Checked, verdict
from rlhf_studio.runs.records import EventRecord, Origin
from tests.analysis.doctor import stored_runs
from tests.analysis.doctor.made_runs import Made, Values
from tests.analysis.doctor.simulated_runs import Simulated, many


def kind_of(run: RunData) -> str:
    return verdict(ppo.VERDICT, Checked(run, {}, [])).kind


def wrong_shares(count: int, seed: int) -> tuple[dict[str, int], dict[str, float]]:
    """(how often each verdict was given, the share of runs of which it is wrong) of many simulated runs."""
    given, wrong, runs = Counter[str](), Counter[str](), Counter[str]()
    for drawn in many(count, seed):
        kind, rose = kind_of(drawn.run()), drawn.rise >= bounds.MATTERS
        given[kind] += 1
        runs["nothing learned" if rose else "improved"] += 1  # what would be wrong of it
        wrong[kind] += kind == ("nothing learned" if rose else "improved")
    return dict(given), {kind: wrong[kind] / runs[kind] for kind in ("nothing learned", "improved")}


def test_of_simulated_runs_hardly_any_is_judged_wrongly() -> None:
    given, wrong = wrong_shares(60, seed=4)
    assert max(wrong.values()) <= 0.05 and {"improved", "nothing learned", "cannot be told"} <= set(given)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_of_200_simulated_runs_at_most_one_in_twenty_is_judged_wrongly(seed: int) -> None:
    """``pytest -m long -s tests/analysis/doctor/test_doctor_noise.py`` prints the figures."""
    given, wrong = wrong_shares(200, seed)
    print(f"\n{given}, wrong: " + ", ".join(f"{kind} {share:.1%}" for kind, share in wrong.items()), end="")
    assert max(wrong.values()) <= 0.05


def test_a_short_noisy_run_of_a_real_model_is_not_told_that_it_learned_nothing() -> None:
    """25 steps of 16 answers, 0.2 -> 0.6 with a spread of 0.5: the rise is 4.8 standard errors, 0.4 / (0.125 · √(12 / 25))."""
    kinds = Counter(kind_of(Simulated(rise=0.8, drift=0.0, seed=seed).run()) for seed in range(20))
    assert kinds["improved"] >= 15 and set(kinds) <= {"improved", "rising", "cannot be told"}


def test_a_policy_that_is_where_it_began_has_learned_nothing_however_noisy_its_score_is(tmp_path: Path) -> None:
    """A KL of 1e-4, doubled for its noise: 0.9 √(2 · 2e-4) points from the reference, and as much from it to the start."""
    noise = np.random.default_rng(1).normal(0, 0.225, 8).tolist()
    metrics: Values = {"objective/scores": noise, "objective/scores_std": 0.9, "objective/scores_se": 0.225, "objective/kl_k3": 1e-4}
    batch = {"steps": 8, "batch_size": 16, "mini_batch_size": 16}
    made = Made(steps=8, metrics=metrics, settings={"ppo": batch})
    run = made.read(tmp_path)
    assert bounds.by_kl(run, judges.score(run))[-1] == pytest.approx(2 * 0.9 * np.sqrt(2 * 2e-4))
    result = diagnosis(run).verdict
    assert result.kind == "nothing learned" and "where it began" in result.sentence and "by more than 0.036" in result.reason
    follows = replace(made, settings={"ppo": {**batch, "reference_ema": 0.1}}).read(tmp_path)
    assert diagnosis(follows).verdict.kind == "cannot be told"  # the reference goes with the policy


def test_so_many_more_steps_tell_a_rise_or_its_absence() -> None:
    """Against the sums themselves: with N steps the error of a slope is the noise over √Σ(i − ī)², with N − 1 it is still too large."""
    values, noise = 0.02 * np.arange(20), 0.3
    fits = trend.fits(values, np.full(20, noise))
    further = steps_if_it_rises(fits[1], 20, planned=20)
    assert further is not None

    def sureness(steps: int) -> float:
        return 0.02 * float(np.sqrt(np.sum((np.arange(steps) - (steps - 1) / 2) ** 2))) / noise

    assert sureness(20 + further) >= judges.SURE_AT_END + 1.28 > sureness(20 + further - 1)
    before_the_end = steps_if_it_rises(fits[1], 20, planned=500)
    assert before_the_end is not None and sureness(20 + before_the_end) >= judges.SURE_RISE + 1.28 > sureness(20 + before_the_end - 1)
    assert steps_if_it_rises(trend.fits(-values, np.full(20, noise))[1], 20, 20) is None
    stays = steps_if_it_stays(fits, 20, spread=2.0)
    assert stays is not None
    later = trend.fits(np.zeros(20 + stays), np.full(20 + stays, noise))
    assert max(fit.error[-1] for fit in later) * (bounds.EXCLUDED + 1.28) == pytest.approx(bounds.MATTERS * 2.0, rel=0.2)


def test_a_forecast_holds_what_came_of_trained_runs(tmp_path: Path) -> None:
    """From a third and two thirds of the run, the mean of its last five steps."""
    for name in ("world-21", "llama-21", "rate-d10-0"):
        run = RunCache(stored_runs.stored(name, tmp_path / name)).read()
        assert isinstance(run, RunData)
        total, came = int(run.steps[-1]), float(run.column("objective/scores")[-5:].mean())
        for at in (total // 3, 2 * total // 3):
            then = run.up_to(at)
            expected = outlook(then, judges.score(then))
            assert expected is not None and expected.planned and expected.steps == run.total_steps - at
            assert expected.low <= came <= expected.high, (name, at)


def test_the_notes_say_how_many_steps_would_tell_what_to_expect_and_what_it_assumes(tmp_path: Path) -> None:
    scores = [0.2, 0.0, 0.5, 0.1, 0.4, 0.3, 0.6, 0.2, 0.5, 0.4]
    metrics: Values = {"objective/scores": scores, "objective/scores_std": 1.0, "objective/scores_se": 0.25, "time/total": 18.0}
    made = Made(steps=10, metrics=metrics, settings={"ppo": {"steps": 10, "batch_size": 16, "mini_batch_size": 16}})
    notes = diagnosis(made.read(tmp_path)).verdict.notes
    assert "more would tell if the score goes on rising" in notes[0] and "at 18 s a step" in notes[0]
    assert notes[1].startswith("What holds it back: 16 responses a step are few") and "ppo.batch_size 256 is better" in notes[1]
    assert notes[-1].startswith("Expect a score of") and "200 more steps (60 minutes at 18 s a step)" in notes[-1]
    assert "if it goes on at most as it did so far" in notes[-1]
    alive = replace(made.read(tmp_path), state="running", total_steps=0, origin=Origin(imported="a loop", controls=[]))
    endless = diagnosis(alive).verdict
    assert any("more would tell" in note for note in endless.notes) and not any(note.startswith("Expect") for note in endless.notes)
    closed = diagnosis(replace(made.read(tmp_path), origin=Origin(imported="a log"))).verdict.notes
    assert not any("more would tell" in note or note.startswith("Expect") for note in closed)  # nobody can go on with it


SKIPPED = EventRecord(
    "warning", "skip", "3 minibatches were left out: the mean ratio 15.6 exceeds the threshold 10, so the minibatch was skipped."
)
HINDRANCES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("were skipped", {"events": dict.fromkeys(range(2, 9), SKIPPED)}, {"ppo.learning_rate": 3.3e-5}),
    ("the warm-up lasts until step 50", {"settings": {"ppo": {"steps": 16, "warmup_steps": 50}}}, {"ppo.warmup_steps": 2}),
    ("10 times smaller than the recipe's", {"settings": {"recipe": "world", "ppo": {"learning_rate": 2e-5}}}, {"ppo.learning_rate": 2e-4}),
    ("a rise of 0.41 is the most that pays, at a KL of 0.10 nats", {"metrics": {"objective/kl_coef": 2.0}}, {"ppo.kl_coef": 0.05}),
    ("A third of the tokens is clipped", {"metrics": {"policy/clipfrac_avg": 0.5}}, {"ppo.learning_rate": 3.3e-5}),
    ("8 responses a step are few", {"settings": {"ppo": {"steps": 16, "batch_size": 8, "mini_batch_size": 8}}}, {"ppo.batch_size": 128}),
]


def test_what_holds_a_run_back_comes_with_a_better_value(tmp_path: Path) -> None:
    """The KL: scores that spread by 0.9 gain 0.9² / 2 with 0.9² / (2 · 2²) nats. The batch: 12 (2.925 / 0.25)² / 16 responses a step."""
    for words, changes, better in HINDRANCES:
        run = Made(**changes).read(tmp_path)
        hindrance = held_back(run, judges.score(run), diagnosis(run).findings)
        assert hindrance is not None and words in hindrance.why and hindrance.changes == better, (words, hindrance)
    healthy = Made(steps=40, settings={"ppo": {"steps": 40, "batch_size": 64}}).read(tmp_path)
    assert held_back(healthy, judges.score(healthy), []) is None
