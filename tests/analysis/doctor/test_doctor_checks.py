"""Each check finds the illness that a made run has, at the right level and step; and is silent where it is not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor import Doctor, diagnose, phrases
from rlhf_studio.analysis.doctor.check import CHECKS, courses, finding
from rlhf_studio.analysis.doctor.doctor import diagnosis
from rlhf_studio.analysis.doctor.run_data import RunCache, RunData, is_looked_at
from rlhf_studio.analysis.records import Finding
from rlhf_studio.config import RunConfig
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, Origin, StepRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter
from tests.analysis.doctor.made_runs import HEALTHY, Made, after, answers, sentence, still_tokens, with_texts
from tests.runs.store_helpers import rollout

LENGTH = "length-reward"


def watched(step: int) -> list[WatchRecord]:
    """Better until step 4, then worse, on eight prompts."""
    scores = {0: 0.0, 2: 0.5, 4: 1.0, 6: 0.2, 8: 0.1, 10: 0.0}
    return [WatchRecord(row, f"p{row}", "a", scores[step] + 0.01 * row, None) for row in range(8)] if step in scores else []


def long_pays(step: int) -> list[Any]:
    return [
        rollout(row, prompt=f"p {step} {row}", response=sentence(step * 50 + row, 5 + row), length=5 + row, score=row / 3)
        for row in range(10)
    ]


def at_the_clip(step: int) -> list[Any]:
    return [rollout(row, prompt=f"p {step} {row}", response=sentence(step * 20 + row), score=1.0) for row in range(10)]


# check -> (the ill run, level, since)
ILL: dict[str, tuple[Made, str, int]] = {
    "kl-negative": (Made(metrics={"objective/kl": after(4, -1.5, 0.1)}, settings={"generation": {"top_k": 20, "top_p": 0.9}}), "alarm", 8),
    "first-ratio": (Made(metrics={"policy/first_log_ratio": 0.01}), "warning", 2),
    "kl-above-target": (
        Made(metrics={"objective/kl": 14.0}, settings={"ppo": {"steps": 16, "kl_controller": "adaptive", "kl_target": 6.0}}),
        "warning",
        10,
    ),
    "kl-exploding": (Made(metrics={"objective/kl": after(6, 60.0, 1.0)}), "alarm", 6),
    "entropy-collapse": (Made(metrics={"policy/entropy_avg": after(5, 0.01, 1.1)}), "alarm", 7),
    "all-cut-off": (Made(metrics={"tokens/cut_off": after(5, 1.0, 0.1)}), "alarm", 7),
    "cut-off-rising": (Made(metrics={"tokens/cut_off": after(5, 0.7, 0.1)}), "warning", 9),
    "all-end": (Made(metrics={"tokens/cut_off": after(5, 0.0, 0.6)}), "note", 9),
    "ends-at-once": (Made(metrics={"tokens/response_length": after(5, 1.2, 22.0)}), "alarm", 7),
    "length-drift": (Made(metrics={"tokens/response_length": after(5, 60.0, 22.0)}), "warning", 8),
    "repetition": (
        Made(responses=with_texts(lambda step, row: sentence(step * 20 + row) if step < 6 else "good " * 8 + str(row))),
        "alarm",
        6,
    ),
    "diversity-loss": (
        Made(responses=with_texts(lambda step, row: sentence(step * 20 + row) if step < 6 else "the one answer that always pays")),
        "alarm",
        6,
    ),
    "one-phrase": (
        Made(responses=with_texts(lambda step, row: sentence(step * 20 + row) + (". A masterpiece." if step > 6 else "."))),
        "note",
        8,  # of the responses of steps 5 to 7 a third has it, of 6 to 8 two thirds
    ),
    "reward-no-spread": (Made(metrics={"objective/scores_std": after(4, 0.0, 0.9), "objective/scores": 0.0}), "warning", 8),
    "score-pinned": (Made(settings={"ppo": {"steps": 16}, "reward": {"score_clip": 1.0}}, responses=at_the_clip), "warning", 1),
    "advantages-zero": (Made(steps=5, metrics={"loss/policy_avg": 0.0}, responses=still_tokens), "alarm", 3),
    LENGTH: (Made(metrics={"tokens/response_length": after(8, 33.0, 22.0)}, responses=long_pays), "warning", 8),
    "reward-text-cut": (Made(metrics={"tokens/reward_cut": after(4, 1.0, 0.01)}), "alarm", 4),
    "judge-falls": (
        Made(gold=True, metrics={"gold/score": lambda step: 0.1 * step if step <= 6 else 0.6 - 0.15 * (step - 6)}),
        "warning",
        11,
    ),
    "held-out-falls": (Made(steps=10, watched=watched), "warning", 8),
    "critic-no-use": (Made(steps=24, metrics={"val/explained_variance": -0.4}), "warning", 20),
    "value-loss-overflow": (Made(metrics={"loss/value_avg": after(5, 40.0, 0.1)}), "warning", 7),
    "unstable-start": (
        Made(events={3: EventRecord("warning", "skip", "2 minibatches were left out.", {"minibatches": 2})}),
        "alarm",
        3,
    ),
    "clip-fraction-high": (Made(metrics={"policy/clipfrac_avg": after(3, 0.4, 0.1)}), "warning", 7),
    "clip-fraction-zero": (Made(steps=24, metrics={"policy/clipfrac_avg": 0.0}), "note", 20),
    "steps-too-large": (Made(metrics={"val/ratio_var": after(3, 0.8, 0.01)}), "warning", 5),
    "early-stops": (
        Made(events={step: EventRecord("info", "early_stop", "The passes over this batch ended early.") for step in range(1, 17)}),
        "note",
        8,
    ),
    "gradient-spikes": (Made(metrics={"optim/grad_norm": lambda step: 50.0 if step in (11, 13, 15) else 0.5}), "warning", 15),
    "not-finite": (Made(metrics={"loss/value_avg": after(9, math.nan, 0.1)}), "alarm", 9),
    "not-training": (
        Made(metrics={"policy/approxkl_avg": 0.0, "objective/kl": 0.0}, settings={"ppo": {"steps": 16}, "lora": {"enabled": True}}),
        "alarm",
        5,
    ),
    "learning-rate-too-small": (
        Made(metrics={"policy/approxkl_avg": 6e-7, "policy/clipfrac_avg": 0.0, "objective/kl": 1e-3, "objective/scores": 0.1}),
        "warning",
        10,
    ),
    "learning-rate-gone": (Made(metrics={"lr": after(10, 0.0, 2e-4)}), "warning", 11),
    "no-updates": (Made(metrics={"optim/steps": after(6, 0.0, 8.0)}), "alarm", 8),
    "one-phase-dominates": (Made(metrics={"time/total": 2.0, "time/rollout": 1.9}), "note", 10),
    "memory-near-limit": (
        Made(metrics={"memory/peak": after(7, 9.6e9, 8e9)}, events={1: EventRecord("info", "memory", "Memory.", {"limit": 1e10})}),
        "warning",
        7,
    ),
    "slower": (Made(steps=24, metrics={"time/total": after(12, 9.0, 0.8)}), "note", 13),
    "duplicate-prompts": (Made(responses=lambda step: [rollout(row, prompt="the same") for row in range(10)]), "warning", 4),
    "pad-is-end": (
        Made(events={1: EventRecord("info", "health", "The tokenizer's pad token equals its end token. Masks come from lengths here.")}),
        "note",
        1,
    ),
    "tokenizers-differ": (
        Made(
            events={1: EventRecord("info", "health", "some/model has another tokenizer than the policy: it reads each response as text.")}
        ),
        "note",
        1,
    ),
}
# The same settings and neighbouring numbers, without the illness.
WELL: dict[str, Made] = {
    "kl-negative": Made(metrics={"objective/kl": lambda step: 0.3 * (-1) ** step}),
    "first-ratio": Made(metrics={"policy/first_log_ratio": 0.01}, device="NVIDIA H200, bfloat16"),
    "kl-above-target": Made(metrics={"objective/kl": 7.0}, settings={"ppo": {"steps": 16, "kl_controller": "adaptive"}}),
    "kl-exploding": Made(metrics={"objective/kl": 60.0, "tokens/response_length": 300.0}),
    "entropy-collapse": Made(metrics={"policy/entropy_avg": 0.09, "objective/entropy": 22 * 0.1}),
    "all-cut-off": Made(metrics={"tokens/cut_off": 1.0}, settings={"ppo": {"steps": 16}, "generation": {"stop_token": "none"}}),
    "cut-off-rising": Made(metrics={"tokens/cut_off": 0.4}),
    "all-end": Made(metrics={"tokens/cut_off": 0.0}),
    "ends-at-once": Made(metrics={"tokens/response_length": 2.0}),
    "length-drift": Made(metrics={"tokens/response_length": after(5, 26.0, 22.0)}),
    "repetition": Made(responses=with_texts(lambda step, row: "good " * 8 + str(row))),  # it was so from the beginning
    "diversity-loss": Made(responses=with_texts(lambda step, row: "yes" if row % 2 else "no")),
    "one-phrase": Made(responses=with_texts(lambda step, row: sentence(step * 20 + row) + ". A masterpiece.")),
    "reward-no-spread": Made(metrics={"objective/scores_std": after(4, 0.1, 0.9)}),
    "score-pinned": Made(settings={"ppo": {"steps": 16}, "reward": {"score_clip": 3.0}}),
    "advantages-zero": Made(steps=5, metrics={"loss/policy_avg": 0.0}),
    LENGTH: Made(metrics={"tokens/response_length": after(8, 33.0, 22.0)}),
    "reward-text-cut": Made(metrics={"tokens/reward_cut": 0.0}),
    "judge-falls": Made(gold=True, metrics={"gold/score": lambda step: 0.1 * step if step <= 6 else 0.55 + 0.04 * (-1) ** step}),
    "held-out-falls": Made(steps=10, watched=lambda step: [WatchRecord(row, f"p{row}", "a", 0.1 * step, None) for row in range(8)]),
    "critic-no-use": Made(steps=24, metrics={"val/explained_variance": lambda step: 0.1 if step % 8 == 0 else -0.2}),
    "value-loss-overflow": Made(metrics={"loss/value_avg": after(5, 4.0, 0.4)}),
    "unstable-start": Made(events={9: EventRecord("warning", "skip", "2 minibatches were left out.", {"minibatches": 2})}),
    "clip-fraction-high": Made(metrics={"policy/clipfrac_avg": lambda step: 0.4 if step % 4 == 0 else 0.2}),
    "clip-fraction-zero": Made(
        steps=24,
        metrics={"policy/clipfrac_avg": 0.0},
        settings={"ppo": {"steps": 24, "ppo_epochs": 1, "batch_size": 32, "mini_batch_size": 32}},
    ),
    "steps-too-large": Made(metrics={"val/ratio_var": lambda step: 5.3 if step % 3 == 0 else 0.05}),
    "early-stops": Made(events={step: EventRecord("info", "early_stop", "Early.") for step in range(1, 17, 2)}),
    "gradient-spikes": Made(metrics={"optim/grad_norm": lambda step: 3.0 if step > 10 else 0.5}),
    "not-finite": Made(state="failed", cause="The disk is full."),
    "not-training": Made(metrics={"policy/approxkl_avg": 0.0, "objective/kl": 395.0}),
    # a tenth of the usual rate, at which the score still rises
    "learning-rate-too-small": Made(metrics={"policy/approxkl_avg": 3e-6, "policy/clipfrac_avg": 0.0, "objective/kl": 0.01}),
    "learning-rate-gone": Made(metrics={"lr": lambda step: 2e-4 * (17 - step) / 16}),
    "no-updates": Made(metrics={"optim/steps": lambda step: 0.0 if step in (3, 4) else 8.0}),
    "one-phase-dominates": Made(),
    "memory-near-limit": Made(metrics={"memory/peak": 8e9}, events={1: EventRecord("info", "memory", "Memory.", {"limit": 1e10})}),
    "slower": Made(steps=24, metrics={"time/total": after(12, 9.0, 0.8), "tokens/response_length": after(12, 220.0, 22.0)}),
    "duplicate-prompts": Made(),
    "pad-is-end": Made(),
    "tokenizers-differ": Made(),
}


def finding_of(made: Made, check: str, folder: Path) -> Finding | None:
    return finding_in(made.read(folder), check)


def finding_in(run: RunData, check: str) -> Finding | None:
    """What one check says of a run."""
    return finding(run, CHECKS[check], course) if (course := courses(run).get(check)) else None


def test_every_check_has_an_ill_run_and_a_well_one() -> None:
    assert set(ILL) == set(WELL) == {name for name, detected in CHECKS.items() if "ppo" in detected.stages}


def test_every_illness_is_found_when_it_begins_and_not_before(tmp_path: Path) -> None:
    wrong = []
    for name, (made, level, since) in ILL.items():
        run = made.read(tmp_path / name)
        now, before, then = finding_in(run, name), finding_in(run.up_to(since - 1), name), finding_in(run.up_to(since), name)
        if now is None or (now.level, now.since) != (level, since):
            wrong.append(f"{name}: {now}")
        elif not (now.title and now.threshold and now.cause and now.advice and now.evidence):
            wrong.append(f"{name}: says too little")
        if before is not None and before.level == level:  # whoever looked before had not been told
            wrong.append(f"{name}: too early")
        if then is None or (then.level, then.since) != (level, since):  # and whoever looked then had
            wrong.append(f"{name}: too late")
    assert wrong == []


def test_no_illness_is_found_where_it_is_not(tmp_path: Path) -> None:
    assert [name for name, made in WELL.items() if finding_of(made, name, tmp_path / name)] == []


def test_lengths_that_swing_have_to_drift_further(tmp_path: Path) -> None:
    """Around 20 for forty steps, then 34: 14 more. Swings of ±2.6 give a step's mean an error of √2 · 2.6 = 3.7, and the difference of a
    window of five and the first two one of 3.7 · √(1/5 + 1/2) = 3.1, so that 14 are more than 4 of them. With ±4 they are fewer than 3.
    """

    def swinging(by: float) -> Finding | None:
        lengths = [20 + by * (-1) ** step for step in range(40)] + [34.0] * 6
        return finding_of(Made(steps=46, metrics={"tokens/response_length": lengths}), "length-drift", tmp_path / str(by))

    drift = swinging(2.6)
    assert drift is not None and (drift.level, drift.since) == ("note", 46)
    assert swinging(4.0) is None


def test_a_healthy_run_has_no_finding_at_any_step(tmp_path: Path) -> None:
    for gold in (True, False):
        run = Made(steps=30, gold=gold).read(tmp_path / str(gold))
        assert [(step, detected.check) for step in range(2, 31, 4) for detected in diagnosis(run.up_to(step)).findings] == []


def test_runs_of_these_tests_are_what_is_read_of_a_store(tmp_path: Path) -> None:
    """At the end, and with a doctor who keeps what he has read, at earlier steps."""
    cases = ("held-out-falls", "judge-falls", "not-finite", "early-stops", "memory-near-limit", "kl-above-target")
    for name in cases:
        made = ILL[name][0]
        doctor, run = Doctor(made.write(tmp_path / name)), made.read(tmp_path / name)
        for until in (None, 4, 9):
            assert doctor.diagnose(until) == diagnosis(run.up_to(until)), (name, until)


def test_what_a_check_says_of_a_step_does_not_depend_on_later_ones() -> None:
    """On numbers drawn at random over many orders of size, with gaps: all checks, all steps."""
    data = at_random(np.random.default_rng(0))
    all_courses = courses(data)
    assert sum(bool(course.levels.any()) for course in all_courses.values()) >= 8  # there is something to compare
    for step in range(1, len(data.steps), 3):
        for name, course in courses(data.up_to(step)).items():
            assert course.levels.tolist() == all_courses[name].levels[:step].tolist(), (name, step)


def at_random(draw: np.random.Generator) -> RunData:
    steps = np.arange(1, 41)
    metrics = {}
    for name, value in {**HEALTHY, "gold/score": lambda step: 0.5, "gold/score_se": lambda step: 0.04}.items():
        column = np.array([value(step) for step in steps]) * np.where(draw.random(40) < 0.5, 1, 10 ** draw.uniform(-8, 4, 40))
        column[draw.random(40) < 0.1] = np.nan
        column[10:25] = column[10] if draw.random() < 0.5 else column[10:25]
        metrics[name] = column
    texts = {step: answers(step) if step % 7 else with_texts(lambda s, r: "good good good good good")(step) for step in range(1, 21)}
    responses_of = {step: [phrases.counted_response(row.response, True) for row in rows] for step, rows in texts.items()}
    rising = {step: phrases.rising(responses_of[1], responses_of[step]) for step in responses_of}
    return RunData(RunConfig(), "running", "", "cpu", 40, steps, metrics, responses=texts, rising=rising, checkpoints=[20])


def test_an_illness_that_has_passed_says_so(tmp_path: Path) -> None:
    clip = [0.1] * 3 + [0.5] * 6 + [0.1] * 7
    detected = finding_of(Made(metrics={"policy/clipfrac_avg": clip}), "clip-fraction-high", tmp_path / "run")
    assert detected is not None and (detected.since, detected.until) == (8, 9)


def test_negative_kl_names_the_sampling_that_is_not_neutral(tmp_path: Path) -> None:
    detected = finding_of(ILL["kl-negative"][0], "kl-negative", tmp_path / "run")
    assert detected is not None and detected.changes == {"generation.top_k": 0, "generation.top_p": 1.0}
    assert "top_k 20 and top_p 0.9" in detected.cause


def test_an_adapter_is_called_one(tmp_path: Path) -> None:
    detected = finding_of(ILL["not-training"][0], "not-training", tmp_path / "run")
    assert detected is not None and detected.title == "The adapter does not train"


def test_the_phrase_is_named_with_its_counts(tmp_path: Path) -> None:
    detected = finding_of(ILL["one-phrase"][0], "one-phrase", tmp_path / "run")
    assert detected is not None and detected.title == "“A masterpiece” is taking over: it ends 30 of 30 responses"
    assert (detected.evidence[0].step, detected.evidence[0].text) == (8, "“A masterpiece” ends 20 of 30 responses; 0 of 30 at the start")


def test_scores_that_end_at_the_top_are_no_warning(tmp_path: Path) -> None:
    made = Made(metrics={"objective/scores": after(4, 1.0, 0.2), "objective/scores_std": after(4, 0.0, 0.4)})
    detected = finding_of(made, "reward-no-spread", tmp_path / "run")
    assert detected is not None and detected.level == "note"


def test_a_doctor_who_looks_again_sees_what_a_new_one_sees(tmp_path: Path) -> None:
    reader = Made(steps=4, state="running").write(tmp_path / "run")
    doctor = Doctor(reader)
    assert doctor.diagnose().step == 4
    with RunWriter(tmp_path / "run") as writer:
        for step in range(5, 12):
            values = {name: value(step) for name, value in HEALTHY.items()} | {"policy/entropy_avg": 0.001}
            writer.commit_step(StepRecord(step, values, answers(step)))
        assert doctor.diagnose() == diagnose(reader)
        assert doctor.diagnose().step == 11
        writer.go_back(6)
        assert doctor.diagnose() == diagnose(reader)
        assert doctor.diagnose().step == 6


def test_a_run_without_steps_or_responses(tmp_path: Path) -> None:
    detected = Made(steps=2).write(tmp_path / "one")
    assert diagnose(detected, 0).verdict.kind == diagnose(detected, 1).verdict.kind == "too early"
    bare = Made(responses=lambda step: []).write(tmp_path / "bare")
    assert diagnose(bare).verdict.kind == "improved"
    reader = Made(steps=2).write(tmp_path / "run")
    assert RunCache(reader).read().up_to(0).steps.size == 0


def test_few_steps_of_a_long_run_are_looked_at() -> None:
    looked = [step for step in range(1, 1001) if is_looked_at(step)]
    assert looked[:20] == list(range(1, 21)) and len(looked) == 72


def test_a_phrase_cannot_steer_a_terminal(tmp_path: Path) -> None:
    made = Made(
        responses=with_texts(lambda step, row: sentence(step * 20 + row) + (" red \x1b[31m alarm \u202e bell." if step > 6 else ""))
    )
    detected = finding_of(made, "one-phrase", tmp_path / "run")
    assert detected is not None and detected.title.isprintable() and "red" in detected.title


def test_languages_without_spaces_have_phrases_too(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)

    def text(step: int, row: int) -> str:
        return "".join(draw.choice(list("天地人山水火木金土日月星"), 12)) + ("非常好看" if step > 6 else "")

    detected = finding_of(Made(responses=with_texts(text)), "one-phrase", tmp_path / "run")
    assert detected is not None and "非常好看" in detected.title


def test_a_run_with_nothing_but_scores(tmp_path: Path) -> None:
    """As read from another program's log."""
    create_run(tmp_path / "run", RunConfig(), name="a run")
    with RunWriter(tmp_path / "run") as writer:
        for step in range(1, 13):
            writer.commit_step(StepRecord(step, {"objective/scores": step / 10, "objective/scores_std": 0.3}, answers(step)))
    diagnosis = diagnose(RunReader(tmp_path / "run"))
    assert diagnosis.findings == [] and diagnosis.verdict.kind == "improving"  # nobody said that it is over


def test_a_length_penalty_is_tried_only_where_longer_pays(tmp_path: Path) -> None:
    made = ILL[LENGTH][0]
    detected = finding_of(made, LENGTH, tmp_path / "longer")
    assert detected is not None and detected.changes == {"reward.length_penalty": 0.01}
    shorter = Made(responses=lambda step: [replace(row, score=-row.score) for row in long_pays(step)])
    detected = finding_of(shorter, LENGTH, tmp_path / "shorter")
    assert detected is not None and detected.changes == {} and detected.level == "note"


def test_correlations_of_both_signs_do_not_make_length_quality(tmp_path: Path) -> None:
    """Longer answers earn more until step 7, and less from step 8 on: the pool of the last 70 responses turns from 1 to -1."""
    made = Made(steps=14, responses=lambda step: [replace(row, score=row.score * (1 if step <= 7 else -1)) for row in long_pays(step)])
    reader = made.write(tmp_path / "run")
    first = diagnose(reader, 7).findings
    assert [detected.changes for detected in first if detected.check == LENGTH] == [{"reward.length_penalty": 0.01}]
    (turned,) = [detected for detected in diagnose(reader).findings if detected.check == LENGTH]
    assert turned.changes == {} and turned.cause != CHECKS[LENGTH].cause
    assert (turned.since, turned.until) == (7, 8) and [evidence.step for evidence in turned.evidence] == [7, 14]
    lasting = replace(made, steps=20).write(tmp_path / "lasting")  # from then on the other sign, in more steps than before
    (detected,) = [detected for detected in diagnose(lasting).findings if detected.check == LENGTH]
    assert detected.until is None and detected.changes == {} and all("-" in evidence.text for evidence in detected.evidence)


def test_a_log_without_settings_is_not_held_against_them(tmp_path: Path) -> None:
    """The batch and the score clip of such a run are defaults that nobody chose."""
    made = Made(settings={"reward": {"score_clip": 1.0}, "ppo": {"batch_size": 4, "mini_batch_size": 4}}, responses=at_the_clip, steps=40)
    reader = made.write(tmp_path / "ours")
    ours = {detected.check for detected in diagnose(reader).findings}
    assert {"settings-batch", "score-pinned"} <= ours
    run = replace(RunCache(reader).read(), origin=Origin(settings_known=False))
    assert run.batch == len(at_the_clip(1))
    findings = diagnosis(run).findings
    assert {detected.check for detected in findings} == ours - {"settings-batch", "score-pinned"}
    assert all(detected.changes == {} and detected.fork_step is None for detected in findings)


def test_a_dip_of_gold_that_comes_back_by_itself_is_no_fall(tmp_path: Path) -> None:
    """One update went too far: the gold of a LoRA run on the world, of which the mean of steps 5 to 7 alone is surely below its best."""
    gold = [0.154, 0.333, 0.385, 0.488, -0.079, 0.008, 0.135, 0.450, 0.560, 0.478, 0.625, 0.668, 0.673, 0.685, 0.581, 0.613]
    run = Made(gold=True, metrics={"gold/score": gold, "gold/score_se": 0.06}).read(tmp_path / "run")
    assert not any(finding_in(run.up_to(step), "judge-falls") for step in range(1, 17))
    lasting = [*gold[:7], *[0.135] * 9]
    detected = finding_of(Made(gold=True, metrics={"gold/score": lasting, "gold/score_se": 0.06}), "judge-falls", tmp_path / "lasting")
    assert detected is not None and detected.since == 8


def test_a_metric_that_is_logged_now_and_then_is_not_zero_between(tmp_path: Path) -> None:
    seldom = Made(metrics={"optim/steps": lambda step: 8.0 if step % 5 == 0 else math.nan})
    assert finding_of(seldom, "no-updates", tmp_path / "seldom") is None
    left_out = EventRecord("warning", "skip", "This update was left out: the values differ.")
    skipped = Made(metrics={"optim/steps": after(6, math.nan, 8.0)}, events=dict.fromkeys(range(6, 17), left_out))
    assert finding_of(skipped, "no-updates", tmp_path / "skipped").since == 8
