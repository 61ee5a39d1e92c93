"""Each check of the stages around PPO finds the illness that a made run has, at the right level and step; and is silent where it is not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.analysis.doctor import Doctor, diagnose
from rlhf_studio.analysis.doctor.check import CHECKS, courses, finding
from rlhf_studio.analysis.doctor.checks.reward_model import entropy
from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.records import Finding, Verdict
from rlhf_studio.config.io import parse_config, with_values
from tests.analysis.doctor.made_stages import HEALTHY, SHARED, Made, after, falling, measured, wobble
from tests.runs.stage_helpers import write_stage_run
from tests.ui.test_evaluate import answers


def rises(lowest: int, by: float) -> Any:
    """Held-out loss: falls until a step, then rises evenly by so much within 20 steps."""
    return measured(lambda step: 1.5 + 0.02 * max(lowest - step, 0) + by * max(step - lowest, 0) / 20)


def apart(longer: float, shorter: float, pairs: int = 200) -> dict[str, Any]:
    """A measurement of so many pairs of each kind, of which these shares are told apart rightly; one tie, and one of equal length."""
    right = [index < longer * pairs for index in range(pairs)] + [index < shorter * pairs for index in range(pairs)]
    scores = {"chosen": [float(detected) for detected in right] + [9.0, 9.0], "rejected": [0.5] * (2 * pairs + 2), "ties": [2 * pairs]}
    lengths = {"chosen_tokens": [9] * pairs + [5] * pairs + [9, 7], "rejected_tokens": [7] * (2 * pairs + 2)}
    return {"reward_model_measured": {"pairs": {**scores, **lengths}}}


# check -> (the ill run, level, since, changes)
ILL: dict[str, tuple[Made, str, int, dict[str, Any]]] = {
    # lowest at step 15; steps 20, 25 and 30 are the three measurements above it
    "overfitting": (Made("sft", metrics={"sft/eval_loss": rises(15, 0.2)}), "warning", 30, {"sft.max_steps": 15}),
    # it begins at 2.00; measured at steps 1, 5 and 10, and 0.12 above the start at the last of these
    "held-out-worse": (
        Made("sft", metrics={"sft/loss": 2.0, "sft/eval_loss": measured(lambda step: 2.0 + 0.012 * step if step > 1 else 2.0)}),
        "alarm",
        10,
        {"sft.learning_rate": 3.3e-5},
    ),
    "unstable-start": (
        Made("sft", metrics={"sft/loss": lambda step: 4.2 if step == 3 else 2.0}),
        "alarm",
        3,
        {"sft.learning_rate": 3.3e-5},
    ),
    "loss-rises": (
        Made("sft", metrics={"sft/loss": lambda step: 2.0 + 0.1 * max(step - 20, 0)}),
        "alarm",
        33,
        {"sft.learning_rate": 3.3e-5},
    ),
    "loss-stays": (
        Made("sft", metrics={"sft/loss": lambda step: 2.0 + wobble(step), "sft/eval_loss": measured(lambda step: 2.0)}),
        "warning",
        20,
        {"sft.learning_rate": 3e-4},
    ),
    "no-gradient": (
        Made("sft", metrics={"optim/grad_norm": 0.0}, settings={"lora": {"enabled": True, "target_modules": "c_attn"}}),
        "alarm",
        3,
        {"lora.target_modules": "auto"},
    ),
    "loss-at-chance": (Made("dpo", metrics={"dpo/loss": 0.6931}), "warning", 20, {"dpo.learning_rate": 3e-4}),
    "reward-text-cut": (Made("evaluation", metrics={"tokens/reward_cut": 1.0}), "alarm", 1, {}),
    "examples-cut": (Made("sft", examples={"cut": 700}), "warning", 1, {"data.max_tokens": 1024}),
    "rows-left-out": (Made("sft", examples={"left_out": {"empty": 800, "repeated": 10}}), "warning", 1, {}),
    "few-tokens-count": (Made("sft", examples={"counted_tokens": 1000}), "warning", 1, {"sft.loss_on": "text"}),
    "held-out-seen": (Made("sft", examples={"shared": 50}, settings={"data": {"eval": "more.jsonl"}}), "warning", 1, {"data.eval": ""}),
    "accuracy-at-chance": (
        Made("reward_model", metrics={"reward_model/eval_accuracy": measured(lambda step: 0.51)}),
        "warning",
        20,
        {"reward_model.learning_rate": 3e-4},
    ),
    "scores-drift": (
        Made("reward_model", metrics={"reward_model/chosen_mean": after(6, 9.0, 0.0), "reward_model/rejected_mean": after(6, 8.0, 0.0)}),
        "note",
        10,
        {"reward_model.centering": 0.01},
    ),
    "margin-explosion": (
        Made("reward_model", metrics={"reward_model/margin": after(6, 60.0, 1.0)}),
        "alarm",
        10,
        {"reward_model.label_smoothing": 0.1},
    ),
    "told-apart-at-once": (Made("reward_model", metrics={"reward_model/accuracy": after(3, 1.0, 0.6)}), "warning", 7, {}),
    "labels-disagree": (
        Made(
            "reward_model",
            metrics={"reward_model/accuracy": 0.85, "reward_model/eval_accuracy": measured(lambda step: 0.7 + 0.01 * (step % 2))},
        ),
        "note",
        15,  # measured at steps 1, 5, 10 and 15
        {"reward_model.label_smoothing": 0.1},
    ),
    "too-confident": (
        Made("reward_model", metrics={"reward_model/eval_loss": measured(after(20, 1.1, 0.5))}),
        "warning",
        25,
        {"reward_model.label_smoothing": 0.1},
    ),
    "length-bias": (Made("reward_model", event_data=apart(0.9, 0.6)), "warning", 1, {}),
    "scores-alike": (Made("reward_model", metrics={"reward_model/margin": 1e-5}), "warning", 20, {}),
    "accuracy-without-margin": (
        Made("dpo", metrics={"dpo/accuracy": after(4, 0.9, 0.5), "dpo/margin": 0.02}),
        "note",
        13,
        {"dpo.learning_rate": 3e-4},
    ),
    "chosen-less-likely": (
        # β is 0.1: a reward of -2.5 is 25 nats
        Made("dpo", metrics={"dpo/chosen_reward": after(10, -2.5, 0.0), "dpo/margin": 1.0}),
        "warning",
        14,
        {"dpo.beta": 0.2},
    ),
    "reference-differs": (
        Made("dpo", metrics={"dpo/loss": lambda step: 0.6 - 0.004 * step}),
        "alarm",
        1,
        {"model.dtype": "float32"},
    ),
    "learning-rate-gone": (Made("sft", metrics={"lr": after(20, 0.0, 1e-4)}), "warning", 21, {"sft.lr_schedule": "constant"}),
    "gradient-spikes": (
        Made("sft", metrics={"optim/grad_norm": lambda step: 50.0 if step in (21, 23, 25) else 0.5}),
        "warning",
        25,
        {"sft.learning_rate": 3.3e-5},
    ),
    "not-finite": (Made("sft", metrics={"sft/loss": after(20, math.nan, 2.0)}), "alarm", 20, {"sft.learning_rate": 3.3e-5}),
    "memory-near-limit": (
        Made("sft", metrics={"memory/peak": after(7, 9.6e9, 8e9)}, event_data={"memory": {"limit": 1e10}}),
        "warning",
        7,
        {"sft.micro_batch_size": 16},
    ),
    "slower": (Made("sft", metrics={"time/total": after(20, 9.0, 1.0)}), "note", 21, {}),
}
# check -> a run that is nearly so, and is not
WELL: dict[str, Made] = {
    "overfitting": Made("sft", metrics={"sft/eval_loss": rises(15, 0.012)}),
    "held-out-worse": Made("sft", metrics={"sft/loss": 2.0, "sft/eval_loss": measured(lambda step: 2.0 + 0.002 * step)}),
    "unstable-start": Made("sft", metrics={"sft/loss": lambda step: 3.8 if step == 3 else 2.0}),
    "loss-rises": Made("sft", metrics={"sft/loss": lambda step: 2.0 + 0.004 * max(step - 20, 0)}),
    "loss-stays": Made(
        "sft", metrics={"sft/loss": lambda step: 2.0 - 0.01 * step + wobble(step), "sft/eval_loss": measured(lambda step: 2.0)}
    ),
    "no-gradient": Made("sft", metrics={"optim/grad_norm": 1e-6}),
    "loss-at-chance": Made("dpo", metrics={"dpo/loss": lambda step: 0.693 if step < 10 else 0.67}),
    "reward-text-cut": Made("evaluation", metrics={"tokens/reward_cut": 0.0}),
    "examples-cut": Made("sft", examples={"cut": 200}),
    "rows-left-out": Made("sft", examples={"left_out": {"empty": 200}}),
    "few-tokens-count": Made("sft", examples={"counted_tokens": 2000}),
    "held-out-seen": Made("sft"),
    "accuracy-at-chance": Made("reward_model", metrics={"reward_model/eval_accuracy": measured(lambda step: 0.58)}),
    "scores-drift": Made("reward_model", metrics={"reward_model/chosen_mean": 4.0, "reward_model/rejected_mean": 3.0}),
    "margin-explosion": Made("reward_model", metrics={"reward_model/margin": 9.0}),
    "told-apart-at-once": Made("reward_model", metrics={"reward_model/accuracy": lambda step: 1.0 if step % 5 else 0.95}),
    "labels-disagree": Made(
        "reward_model", metrics={"reward_model/accuracy": 0.72, "reward_model/eval_accuracy": measured(lambda step: 0.7)}
    ),
    "too-confident": Made("reward_model", metrics={"reward_model/eval_loss": measured(lambda step: 0.5)}),
    "length-bias": Made("reward_model", event_data=apart(0.85, 0.7)),
    "scores-alike": Made("reward_model", metrics={"reward_model/margin": 0.01}),
    "accuracy-without-margin": Made("dpo", metrics={"dpo/accuracy": 0.75, "dpo/margin": 0.02}),
    "chosen-less-likely": Made("dpo", metrics={"dpo/chosen_reward": -0.4, "dpo/margin": 0.5}),
    "reference-differs": Made("dpo"),
    "learning-rate-gone": Made("sft", metrics={"lr": lambda step: 1e-4 * (1 - step / 40)}),
    "gradient-spikes": Made("sft", metrics={"optim/grad_norm": lambda step: 2.0 if step % 5 else 6.0}),
    "not-finite": Made("sft"),
    "memory-near-limit": Made("sft", metrics={"memory/peak": 9e9}, event_data={"memory": {"limit": 1e10}}),
    "slower": Made("sft", metrics={"time/total": after(20, 1.9, 1.0)}),
}


def finding_in(run: RecordedRun, name: str) -> Finding | None:
    """What one check says of a run."""
    return finding(run, CHECKS[name], course) if (course := courses(run).get(name)) else None


def test_every_check_of_a_stage_has_an_ill_run_and_a_well_one() -> None:
    assert set(ILL) == set(WELL) == {name for name, detected in CHECKS.items() if set(detected.stages) - {"ppo"}}


def test_every_illness_is_found_with_a_remedy_that_the_settings_take() -> None:
    wrong = []
    for name, (made, level, since, changes) in ILL.items():
        detected = finding_in(made.read(), name)
        if detected is None or (detected.level, detected.since, detected.changes) != (level, since, changes):
            wrong.append(f"{name}: {detected}")
        elif not (detected.evidence and detected.cause and detected.advice and detected.threshold):
            wrong.append(f"{name}: says too little")
        with_values(parse_config({"stage": made.stage, **made.settings}), changes)
    assert wrong == []


def test_no_illness_is_found_where_it_is_not() -> None:
    assert [name for name, made in WELL.items() if finding_in(made.read(), name)] == []


def test_runs_of_these_tests_are_what_is_read_of_a_store(tmp_path: Path) -> None:
    for name in ("overfitting", "loss-rises", "labels-disagree", "not-finite"):
        made = ILL[name][0]
        doctor = Doctor(made.write(tmp_path / name))
        for until in (None, 4, 20):
            assert doctor.diagnose(until) == diagnosis(made.read().up_to(until)), (name, until)


def test_a_healthy_run_has_no_finding_at_any_step_and_learns() -> None:
    for stage in HEALTHY:
        run, steps = Made(stage).read(), [1, 2, 4, 5, *range(7, 40, 4), 40]
        results = [diagnosis(run.up_to(step)) for step in steps]
        assert [(stage, result.step, detected.check) for result in results for detected in result.findings] == []
        kinds = [result.verdict.kind for result in results]
        assert set(kinds[:3]) == {"too early"} and set(kinds[3:-1]) == {"learning"} and kinds[-1] == "learned", stage


def test_a_loss_is_not_said_to_stay_before_the_held_out_loss_can_say_otherwise() -> None:
    """Batches of few examples hide what is learned. The held-out loss is measured at the beginning and at the end alone."""
    cases: list[tuple[float | None, int, list[int]]] = [(1.5, 200, []), (2.0, 200, [40]), (None, 0, list(range(20, 41)))]
    for end, held_out, since in cases:
        metrics = {"sft/loss": lambda step: 2.0 + wobble(step), "sft/eval_loss": [*[None] * 39, end]}
        events = {"start": {"sft/eval_loss": 2.0}} if held_out else {}
        run = Made("sft", metrics=metrics, examples={"held_out": held_out}, event_data=events).read()
        assert [step for step in range(1, 41) if finding_in(run.up_to(step), "loss-stays")] == since, held_out


def noisy(seed: int, fall: float) -> RecordedRun:
    """A run of fine-tuning whose loss moves by chance from batch to batch, as that of a batch of a few texts does."""
    draw = np.random.default_rng(seed)
    steps = np.arange(1, 101)
    loss = 2.0 - fall * (1 - np.exp(-steps / 30)) + 0.15 * draw.normal(size=100)
    metrics = {"sft/loss": loss, "lr": np.full(100, 1e-4), "optim/grad_norm": np.exp(0.2 * draw.normal(size=100))}
    return RecordedRun(parse_config({"stage": "sft"}), "finished", "", "cpu", 100, steps, metrics)


def test_chance_is_no_illness_and_no_learning() -> None:
    """Of 40 runs that learn and 40 that do not, at most one each is told wrongly, at any of its steps."""
    still = [noisy(seed, 0.0) for seed in range(40)]
    assert sum(diagnosis(run).verdict.kind != "nothing learned" for run in still) <= 1
    assert sum(bool(courses(run)["loss-rises"].levels.any()) for run in still) <= 1
    falls = [noisy(seed, 0.6) for seed in range(40)]
    assert sum(diagnosis(run).verdict.kind != "learned" for run in falls) <= 1
    assert sum(bool(courses(run)["loss-rises"].levels.any()) for run in falls) <= 1


def test_what_a_check_says_of_a_step_does_not_depend_on_later_ones() -> None:
    draw = np.random.default_rng(1)
    with_levels = 0
    for stage, own in HEALTHY.items():
        data = Made(stage).read()
        metrics = {
            name: column * 10 ** draw.uniform(-3, 3, 40) * np.where(draw.random(40) < 0.1, np.nan, 1)
            for name, column in data.metrics.items()
        }
        assert set(own) <= set(metrics) and set(SHARED) <= set(metrics)
        data = replace(data, metrics=metrics, state="running")
        all_courses = courses(data)
        with_levels += sum(bool(course.levels.any()) for course in all_courses.values())
        for step in range(1, 40, 3):
            for name, course in courses(data.up_to(step)).items():
                assert course.levels.tolist() == all_courses[name].levels[:step].tolist(), (stage, name, step)
    assert with_levels >= 8  # there is something to compare


def test_a_calibrated_model_is_never_too_confident() -> None:
    """Pairs whose labels are drawn with just the probability that the model gives: its log loss stays below the limit."""
    draw = np.random.default_rng(0)
    for seed in range(200):
        sure = 1 / (1 + np.exp(-draw.normal(0, 1 + seed % 5, 500)))  # P(first is preferred)
        first = draw.random(500) < sure
        accuracy = float(np.mean(first == (sure > 0.5)))
        loss = float(-np.mean(np.log(np.where(first, sure, 1 - sure))))
        run = RecordedRun(
            parse_config({"stage": "reward_model"}), "finished", "", "cpu", 2, np.array([1, 2]),
            {"reward_model/eval_loss": np.full(2, loss), "reward_model/eval_accuracy": np.full(2, accuracy)},
            events=[type("Event", (), {"kind": "examples", "data": {"held_out": 500}, "step": 1})()],
        )  # fmt: skip
        assert not courses(run)["too-confident"].levels.any(), seed
    assert entropy(0.5) == pytest.approx(math.log(2)) and entropy(1.0) == 0


# --- verdicts ----------------------------------------------------------------------------------------------------------------------


def verdict(made: Made) -> Verdict:
    return diagnosis(made.read()).verdict


def test_learned_is_said_with_its_numbers() -> None:
    result = verdict(Made("sft"))
    assert result.sentence == "Learned: held-out loss 2.50 → 1.35 nats per token, perplexity 12.2 → 3.84."
    result = verdict(Made("reward_model"))
    assert result.sentence == "Learned: held-out loss 0.700 → 0.460 nats per pair, accuracy 50.0 % → 78.8 % of the held-out pairs."
    assert verdict(Made("dpo", state="running")).kind in ("learning", "learned")


def test_overfitting_names_the_better_step() -> None:
    result = verdict(ILL["overfitting"][0])
    assert (result.kind, result.since) == ("overfits", 30)
    assert result.sentence.startswith(
        "Overfits: the held-out loss was lowest at step 15 (1.50) and is 1.75 now, while the training loss went"
    )


def few(losses: dict[int, float]) -> Any:
    """Held-out losses at these steps and no others."""
    return losses.get


def test_one_rise_at_the_end_is_told_with_the_best_and_its_step() -> None:
    """No three measurements in a row are above the best: the run has ended before."""
    losses = few({1: 4.04, 20: 1.47, 30: 1.56, 40: 1.71})
    run = Made("sft", metrics={"sft/eval_loss": losses}).read()
    result = diagnosis(run)
    assert (result.verdict.kind, result.verdict.since) == ("overfits", 40)
    assert result.verdict.sentence.startswith("Overfits: the held-out loss was lowest at step 20 (1.47) and is 1.71 now")
    (detected,) = result.findings
    assert (detected.check, detected.level, detected.changes) == ("overfitting", "warning", {"sft.max_steps": 20})
    result = diagnosis(run.up_to(39))  # it went on then
    assert result.verdict.kind == "learning"
    assert result.verdict.sentence.endswith("; best 1.47 at step 20, now 1.56: it overfits since.")
    (detected,) = result.findings
    assert (detected.check, detected.level, detected.title) == ("overfitting", "note", "The held-out loss is above its best")


def test_a_rise_beside_a_rising_training_loss_is_not_told_as_learned_by_heart() -> None:
    metrics = {"sft/loss": lambda step: 1.4 if 5 < step <= 20 else 1.8, "sft/eval_loss": few({1: 4.04, 20: 1.47, 40: 1.71})}
    result = diagnosis(Made("sft", metrics=metrics).read())
    assert result.verdict.kind == "learned"
    assert result.verdict.sentence.endswith("; best 1.47 at step 20, now 1.71: it rose since.")
    assert ("overfitting", "note") in [(detected.check, detected.level) for detected in result.findings]


def test_a_model_that_became_worse_is_an_alarm() -> None:
    """As with a learning rate of 0.9: the first steps spoil it, and the training loss is calm afterwards, far above the start."""
    loss = [4.0, 9.0, 8.5, 8.0, 7.0, *[6.0 - 0.001 * step for step in range(6, 41)]]  # the mean of the first five is above what follows
    metrics = {"sft/loss": loss, "sft/eval_loss": few({10: 6.1, 20: 6.0, 30: 5.9, 40: 5.8})}
    result = diagnosis(Made("sft", metrics=metrics, event_data={"start": {"sft/eval_loss": 4.0}}).read())
    assert (result.verdict.kind, result.verdict.since) == ("got worse", 10)
    assert result.verdict.sentence == "Got worse: held-out loss 4.00 → 5.80 nats per token, perplexity 54.6 → 330."
    assert [detected.check for detected in result.findings if detected.level == "alarm"] == ["unstable-start", "held-out-worse"]


def test_a_loss_that_falls_in_training_only_has_learned_nothing() -> None:
    result = verdict(Made("sft", metrics={"sft/eval_loss": measured(lambda step: 2.0)}))
    assert (result.kind, result.sentence) == (
        "nothing learned",
        "Nothing learned: held-out loss 2.00 → 2.00 nats per token, perplexity 7.39 → 7.39.",
    )


def test_pairs_that_are_still_guessed_are_nothing_learned_though_the_loss_fell() -> None:
    result = verdict(Made("reward_model", metrics={"reward_model/eval_accuracy": measured(lambda step: 0.51)}))
    assert result.kind == "nothing learned"
    assert result.sentence.startswith("Nothing learned that tells new pairs apart: held-out loss 0.700 → 0.460 nats per pair, accuracy")


def test_divergence_comes_first() -> None:
    result = verdict(ILL["loss-rises"][0])
    assert (result.kind, result.since) == ("diverged", 33)
    assert result.sentence == "Diverged: the training loss began at 2.00 and is 3.80 now."
    broken = Made(
        "sft", steps=8, planned=40, metrics={"sft/loss": after(8, math.nan, 2.0)}, state="failed", cause="The loss is not finite. More."
    )
    result = verdict(broken)
    assert result.kind == "diverged" and result.notes[-1] == "The run failed: The loss is not finite."


def test_too_early_and_without_held_out_examples() -> None:
    result = verdict(Made("sft", steps=3, planned=40, metrics={"sft/eval_loss": lambda step: None}))
    assert (result.kind, result.reason) == (
        "too early",
        "A verdict needs 10 steps, or two measurements on held-out examples; there are 3 steps.",
    )
    result = verdict(Made("sft", metrics={"sft/eval_loss": lambda step: None}))
    assert result.kind == "learned" and result.sentence.startswith("Learned: training loss 2.3")
    assert "Nothing was measured on held-out examples, so nobody can see whether it overfits." in result.notes


def test_what_a_verdict_is_worth_stands_beside_it() -> None:
    made = Made("reward_model", event_data=apart(0.95, 0.3))
    result = verdict(made)
    assert result.kind == "learned" and result.notes == ["It goes by the length."]
    detected = finding_in(made.read(), "length-bias")
    assert detected is not None and detected.level == "alarm", "below chance where the chosen one is shorter"


def test_a_named_reference_that_differs_is_only_noted() -> None:
    made = replace(ILL["reference-differs"][0], settings={"model": {"reference": "other"}})
    detected = finding_in(made.read(), "reference-differs")
    assert detected is not None and (detected.level, detected.changes) == ("note", {"model.reference": ""})


def test_an_evaluation_trains_nothing() -> None:
    result = diagnosis(Made("evaluation", steps=4, planned=8, state="stopped").read())
    assert (result.verdict.kind, result.verdict.sentence) == ("evaluated", "Evaluated: 4 of 8 steps of prompts are answered.")
    assert result.findings == []


def test_margins_with_a_trend_are_no_explosion() -> None:
    made = Made("reward_model", metrics={"reward_model/margin": falling(0.0, 6.0), "reward_model/chosen_mean": falling(0.0, 3.0)})
    assert diagnosis(made.read()).findings == []


def test_the_measurement_before_training_counts_as_step_0() -> None:
    """The engine tells it in the event ``start``: a model that only got worse was best before its first step."""
    made = Made(
        "sft",
        metrics={"sft/eval_loss": lambda step: 2.0 + 0.01 * step if step % 10 == 0 else None},
        event_data={"start": {"sft/eval_loss": 1.9}},
    )
    result = diagnosis(made.read())
    assert (result.verdict.kind, result.verdict.since) == ("overfits", 30)
    assert "was lowest at step 0 (1.90)" in result.verdict.sentence
    (detected,) = result.findings
    assert (detected.check, detected.level, detected.changes, detected.evidence[0].step) == ("overfitting", "alarm", {}, 0)
    learned = Made("sft", metrics={"sft/eval_loss": lambda step: 1.5 if step == 40 else None}, event_data={"start": {"sft/eval_loss": 1.9}})
    assert verdict(learned).sentence.startswith("Learned: held-out loss 1.90 → 1.50 nats per token")


def test_a_finished_evaluation_says_who_won(tmp_path: Path) -> None:
    """Every answer of the last policy has the higher gold score: it wins all comparisons."""
    rows = [*answers("start", 0.0), *answers("late", 1.0)]
    samples = [replace(row, sample=index) for index, row in enumerate(rows)]
    reader = write_stage_run(tmp_path, "evaluation", [{}], rollouts=samples)
    result = diagnose(reader).verdict
    assert result.kind == "evaluated"
    assert result.sentence.startswith("Evaluated. Win rate against start, by the gold score – late: 100 % (")
