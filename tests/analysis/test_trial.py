"""The rule of the trial: from what was measured to sentences and corrections; and when a start counts as not stable."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.doctor.run_data import RunCache
from rlhf_studio.analysis.trial import Night, TrialFigures, corrected, figures_of, judge, night_of
from rlhf_studio.analysis.trial.rule import expected_kl
from rlhf_studio.config import RunConfig, SFTRunConfig
from rlhf_studio.config.io import with_values
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.config.stability import EarlyStep, bolder, gentler, unstable
from rlhf_studio.config.usual import other_rate
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StepRecord
from rlhf_studio.runs.writer import RunWriter

CONFIG = RunConfig.model_validate(
    {
        "ppo": {"steps": 100, "batch_size": 16, "mini_batch_size": 8, "learning_rate": 3e-4, "kl_coef": 0.05, "warmup_steps": 10},
        "generation": {"response_length": 24},
    }
)
GOOD = TrialFigures(
    steps=6, seconds=20.0, phases={"writing": 9.0, "learning": 8.0}, peak=2e9, limit=16e9, answers=96, score=0.24, spread=0.4, kl=0.6,
    moved=0.12, ended=0.9, planned=100,
)  # fmt: skip
NIGHT = Night(36_000.0, "until 07:00")


def has(text: str, *parts: str) -> bool:
    """Whether a sentence holds these numbers and words, in this order."""
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


def changes(trial: TrialFigures, config: RunConfig = CONFIG, night: Night = NIGHT, most: int | None = None) -> dict[str, tuple[Any, Any]]:
    return {row.setting: (row.old, row.new) for row in judge(trial, config, night, most).corrections}


CORRECTIONS: dict[str, tuple[TrialFigures, Night, int | None, dict[str, tuple[Any, Any]]]] = {
    "a good trial": (GOOD, NIGHT, None, {}),
    "not stable": (replace(GOOD, unstable="3 minibatches were left out in step 1"), NIGHT, None, {"ppo.learning_rate": (3e-4, 1e-4)}),
    "hardly moves": (replace(GOOD, moved=1e-5), NIGHT, None, {"ppo.learning_rate": (3e-4, 9e-4)}),
    "answers cut": (replace(GOOD, ended=0.2), NIGHT, None, {"generation.response_length": (24, 48)}),
    "answers cut, no room": (replace(GOOD, ended=0.2), NIGHT, 24, {}),
    "answers cut, little room": (replace(GOOD, ended=0.2), NIGHT, 40, {"generation.response_length": (24, 40)}),
    "none ends": (replace(GOOD, ended=0.0), NIGHT, None, {}),
    "nothing ends answers but their length": (replace(GOOD, ended=nan), NIGHT, None, {}),
    "memory short": (replace(GOOD, peak=15e9), NIGHT, None, {"ppo.micro_batch_size": (0, 4)}),
    # 1,000 s hold 50 steps of 20 s, of which a tenth is 5. Of steps with answers twice as long 1,600 s hold 40, which are enough, and
    # 1,000 s too few
    "little time": (GOOD, Night(1000.0, "until 07:00"), None, {"ppo.steps": (100, 50), "ppo.warmup_steps": (10, 5)}),
    "little time, answers cut": (
        replace(GOOD, ended=0.2),
        Night(1600.0, "until 07:00"),
        None,
        {"generation.response_length": (24, 48), "ppo.steps": (100, 80), "ppo.warmup_steps": (10, 8)},
    ),
    "too little time for longer answers": (
        replace(GOOD, ended=0.2),
        Night(1000.0, "until 07:00"),
        None,
        {"ppo.steps": (100, 50), "ppo.warmup_steps": (10, 5)},
    ),
    "no time for a step": (GOOD, Night(10.0, "until 07:00"), None, {}),
}


@pytest.mark.parametrize("case", CORRECTIONS)
def test_corrections(case: str) -> None:
    trial, night, most, expected = CORRECTIONS[case]
    assert changes(trial, CONFIG, night, most) == expected


def test_each_correction_holds_by_itself_and_all_of_them_together() -> None:
    """2,000 s hold the 100 steps of 20 s, and 50 of 40 s, as long as answers of twice the length take."""
    judgement = judge(replace(GOOD, ended=0.2), CONFIG, Night(2000.0, "until 07:00"))
    (longer,) = judgement.corrections
    assert has(longer.why, "80 %", "24 tokens", "40 s", "50 fit")
    assert judgement.together == {"generation.response_length": 48, "ppo.steps": 50, "ppo.warmup_steps": 5}
    assert has(judgement.night[0], "20 s", "100 steps fit until 07:00", "33 minutes")
    assert corrected(CONFIG, judgement).ppo.steps == 50


def test_what_is_said_of_a_good_trial() -> None:
    """By hand: 36,000 s / 20 s = 1,800 steps. A linear schedule squared has the mean 1/3: 0.12 × 100 / 3 = 4. 4.28 √(12 / 1600) = 0.37,
    of a spread of 0.4 points 0.15."""
    judgement = judge(GOOD, CONFIG, NIGHT)
    assert "can start" in judgement.headline
    for sentences, expected in (
        (judgement.night, [["20 s", "writing 9 s", "1,800 steps", "33 minutes"], ["about 4 nats", "0.12", "12,", "1/3"], ["0.15 points"]]),
        (
            judgement.seen,
            [["2.0 GB", "16 GB"], ["0.24", "spread of 0.4"], ["90 %", "96", "24 tokens"], ["5 updates", "0.6", "no minibatch"]],
        ),
    ):
        assert len(sentences) == len(expected) and all(has(text, *parts) for text, parts in zip(sentences, expected, strict=True))
    wild = replace(GOOD, unstable="why")  # 124 M weights take 1e-5
    trials = [replace(wild, weights=weights) for weights in (None, 10**6, 124 * 10**6)]
    assert [judge(trial, CONFIG, NIGHT).corrections[0].new for trial in trials] == [1e-4, 1e-4, 1e-5]


def test_headlines_and_the_night() -> None:
    for trial, night, headline in (
        (replace(GOOD, spread=0.0, score=1.0), NIGHT, ["cannot learn", "same score, 1."]),
        (replace(GOOD, unstable="why"), NIGHT, ["Not stable", "why"]),
        (replace(GOOD, ended=0.1), NIGHT, ["one setting", "better"]),
        (GOOD, Night(5.0, "until 07:00"), ["Not one step", "07:00"]),
    ):
        assert has(judge(trial, CONFIG, night).headline, *headline)
    limited = CONFIG.model_copy(update={"engine": CONFIG.engine.model_copy(update={"max_minutes": 45.0})})
    assert night_of(limited, 36_000.0, "until 07:00") == Night(2700.0, "in the 45 minutes of engine.max_minutes")
    assert night_of(CONFIG, 36_000.0, "until 07:00") == NIGHT


def test_the_price_of_the_kl_bounds_the_guess() -> None:
    """Normal scores of spread σ, multiplied by exp(score / β), have a KL of σ² / (2 β²): 0.4² / (2 · 0.05²) = 32."""
    steady = CONFIG.model_copy(update={"ppo": CONFIG.ppo.model_copy(update={"lr_schedule": "constant"})})
    assert expected_kl(GOOD, steady, 1000) == pytest.approx((120.0, 32.0))
    assert expected_kl(replace(GOOD, grew=0.2), steady, 1000)[0] == pytest.approx(200.0)
    sentence = next(text for text in judge(replace(GOOD, planned=1000), steady, NIGHT).night if "may be" in text)
    assert has(sentence, "about 32 nats", "0.05", "balances", "far")
    free = CONFIG.model_copy(update={"ppo": CONFIG.ppo.model_copy(update={"kl_coef": 0.0, "lr_schedule": "cosine"})})
    sentence = next(text for text in judge(replace(GOOD, moved=45.0), free, NIGHT).night if "may be" in text)
    assert has(sentence, "1,700 nats", "4,500", "3/8")


ADAPTIVE = {"kl_controller": "adaptive", "kl_target": 6.0}
STARTS: dict[str, tuple[dict[str, Any], EarlyStep, str]] = {
    "nothing": ({}, EarlyStep(3, kl=2.0, length=20), ""),
    "left out": ({}, EarlyStep(2, left_out=3), "3 minibatches were left out in step 2"),
    "too late to count": ({}, EarlyStep(14, left_out=3, kl=100), ""),
    "without a target": ({}, EarlyStep(13, kl=10.1, length=20), "the KL was 10.1 nats in step 13; a stable start stays below 10"),
    "long answers": ({}, EarlyStep(13, kl=10.1, length=100), ""),
    "above its target": (ADAPTIVE, EarlyStep(2, kl=6.5, length=100), "the KL was 6.5 nats in step 2; its target is 6"),
    "not a number": (ADAPTIVE, EarlyStep(2), ""),
}


@pytest.mark.parametrize("case", STARTS)
def test_stable_starts(case: str) -> None:
    """With a warm-up of 10 steps the first 13 count."""
    ppo, step, why = STARTS[case]
    assert unstable(CONFIG.model_copy(update={"ppo": CONFIG.ppo.model_copy(update=ppo)}), step) == why


def test_a_loss_that_doubles_is_not_stable() -> None:
    config = SFTRunConfig.model_validate({"data": {"source": "x.jsonl"}})
    assert unstable(config, EarlyStep(3, loss=5.9, first_loss=3.0)) == ""
    assert unstable(config, EarlyStep(3, loss=6.3, first_loss=3.0)) == "the loss rose from 3 in the first step to 6.3 in step 3"


def test_another_rate_is_the_usual_one_or_three_times_off() -> None:
    """Whoever finds the rate of the recipe world too high or too low (the engine, the doctor, the trial, the road) names its 2e-4."""
    world = load_recipe("world").config
    cases = (2e-3, None, 2e-4, 6e-3), (3e-4, None, 1e-4, 9e-4), (1e-6, 10**9, 3.3e-7, 2e-4), (0.9, None, 2e-4, 1.0)
    for rate, weights, lower, higher in cases:
        config = with_values(world, {"ppo.learning_rate": rate})
        assert other_rate(config, weights, gentler) == {"ppo.learning_rate": lower}
        assert other_rate(config, weights, bolder) == {"ppo.learning_rate": higher}
    assert (gentler(3e-3), bolder(3e-3)) == (1e-3, 9e-3)


def test_few_examples_are_not_learned_at_the_rate_for_many() -> None:
    """135 M weights with adapters take 2e-4 for a hundred demonstrations, and 1e-3 for many (config/fitting.py)."""
    config = SFTRunConfig.model_validate({"data": {"source": "x.jsonl"}, "lora": {"enabled": True}, "sft": {"learning_rate": 2e-4}})
    for examples, higher in ((100, 6e-4), (100_000, 1e-3), (None, 1e-3)):
        assert other_rate(config, 135_000_000, bolder, examples) == {"sft.learning_rate": higher}


def test_a_long_trial_keeps_its_early_events(tmp_path: Path) -> None:
    """Two minibatches left out in the first step, and the memory that there is, before as many events as a reader's page holds."""
    config = SFTRunConfig.model_validate({"data": {"source": "x.jsonl"}})
    create_run(tmp_path / "run", config, name="a trial")
    skip, other = EventRecord("warning", "skip", "", {"minibatches": 2}), EventRecord("info", "other", "")
    with RunWriter(tmp_path / "run") as writer:
        writer.commit_step(StepRecord(1, {"sft/loss": 3.0, "memory/peak": 1e9}, [], events=[skip]))
        writer.event(EventRecord("info", "memory", "", {"limit": 4e9, "weights": 1000}), step=1)
        writer.commit_step(StepRecord(2, {"sft/loss": 2.5, "memory/peak": 2e9}, [], events=[other] * 600))
    trial = figures_of(RunCache(RunReader(tmp_path / "run")).read(), config)
    assert trial is not None and trial.unstable == "2 minibatches were left out in step 1"
    assert (trial.left_out, trial.limit, trial.weights, trial.peak, trial.loss) == (2, 4e9, 1000, 2e9, (3.0, 2.5))
