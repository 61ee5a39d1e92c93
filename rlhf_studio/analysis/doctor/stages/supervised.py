"""What a run of fine-tuning, a reward model or DPO came to: learning, learned, overfits, nothing learned, got worse, diverged.

Held-out examples decide where they were measured at least twice: they are the same each time. Else the training loss does.
"""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.check import figure
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.series import ALARM, WARNING
from rlhf_studio.analysis.doctor.stages.losses import (
    REAL_FALL,
    SURE,
    WINDOW,
    HeldOutLosses,
    at_all_steps,
    at_measurements,
    fallen,
    held_out,
    late,
    training,
)
from rlhf_studio.analysis.doctor.verdict import Checked, VerdictRules, failure, risky_settings
from rlhf_studio.analysis.records import VerdictKind
from rlhf_studio.units import percent

LATE_STEPS = 20
KINDS: tuple[VerdictKind, ...] = ("too early", "nothing learned", "learning", "overfits", "got worse", "diverged")
TOO_EARLY, NOTHING, LEARNING, OVERFITS, WORSE, DIVERGED = range(6)
UNITS = {"sft": "nats per token", "reward_model": "nats per pair", "dpo": "nats per pair"}
NOTED = (
    "held-out-seen",
    "told-apart-at-once",
    "length-bias",
    "too-confident",
    "chosen-less-likely",
    "accuracy-at-chance",
    "reference-differs",
)
"""Checks whose findings belong beside the verdict: they say what it is worth."""


def _kinds(checked: Checked[RecordedRun]) -> np.ndarray:
    run = checked.run
    measured = held_out(run)
    kinds = np.full(len(run.steps), TOO_EARLY)
    gain, error = fallen(run)
    by_training = gain > np.maximum(REAL_FALL, SURE * error)
    if len(measured.indices) >= 2:
        twice = np.arange(len(run.steps)) >= measured.indices[1]
        fell = at_all_steps(run, measured.indices, measured.fell).astype(bool)
        learned = np.where(twice, fell, by_training)
    else:
        twice, learned = np.zeros(len(run.steps), dtype=bool), by_training
    kinds[late(run, LATE_STEPS, 2 * WINDOW) & (np.isfinite(gain) | twice)] = NOTHING
    kinds[learned] = LEARNING
    kinds[(kinds == LEARNING) & (checked.level("accuracy-at-chance") >= WARNING)] = NOTHING
    if len(measured.indices) >= 2:
        kinds[at_all_steps(run, measured.indices, measured.worse).astype(bool)] = WORSE
    kinds[checked.level("overfitting") >= WARNING] = OVERFITS
    diverged = checked.level("loss-rises") >= ALARM
    diverged[-1] |= checked.died_of_its_numbers
    kinds[diverged] = DIVERGED
    return kinds


# --- words -------------------------------------------------------------------------------------------------------------------------


def _words(checked: Checked[RecordedRun], kind: VerdictKind) -> tuple[str, str]:
    run, measured = checked.run, held_out(checked.run)
    change, reason = _by_held_out(run, measured) if len(measured.indices) >= 2 else _by_training(run)
    if kind == "too early":
        return "Too early to say.", reason
    if kind == "overfits":
        best = int(measured.best[-1])
        step, lowest, now = int(measured.steps[best]), measured.losses[best], measured.losses[-1]
        sentence = (
            f"Overfits: the held-out loss was lowest at step {step} ({figure(lowest)}) and is {figure(now)} now, while the training loss "
            f"went on falling, {figure(measured.training[best])} → {figure(measured.training[-1])}."
        )
        return sentence, f"The model of step {step} is the better one: what came after was learned by heart."
    if kind == "diverged":
        loss = training(run)
        now = f"is {figure(loss.now[-1])} now" if np.isfinite(loss.now[-1]) else "is not finite any more"
        return f"Diverged: the training loss began at {figure(loss.start)} and {now}.", "The steps were too large for this model."
    if kind == "nothing learned":
        guessed = checked.at_newest(["accuracy-at-chance"])  # as many held-out pairs are right as by chance, however the loss went
        return f"Nothing learned{' that tells new pairs apart' if guessed else ''}: {change}.", reason
    if kind == "got worse":
        return f"Got worse: {change}.", f"The model that it started from predicts the held-out examples better. {reason}"
    word = f"Learning when it {run.broke_off}" if run.broke_off else kind.capitalize()
    return f"{word}: {change}{_past_best(run, measured)}.", reason


def _past_best(run: RecordedRun, measured: HeldOutLosses) -> str:
    """Where the newest held-out loss is clearly above its best: what that was, and at which step; else empty."""
    if len(measured.indices) < 2 or not measured.above_best(run.config.stage)[-1]:
        return ""
    best = int(measured.best[-1])
    step, lowest, now = int(measured.steps[best]), measured.losses[best], measured.losses[-1]
    since = "it overfits since" if measured.by_heart[-1] else "it rose since"
    return f"; best {figure(lowest)} at step {step}, now {figure(now)}: {since}"


def _by_held_out(run: RecordedRun, measured: HeldOutLosses) -> tuple[str, str]:
    stage = run.config.stage
    first, now = float(measured.losses[0]), float(measured.losses[-1])
    change = f"held-out loss {figure(first)} → {figure(now)} {UNITS[stage]}"
    if stage == "sft":
        ends = np.exp(np.minimum([first, now], 700.0))
        change += f", perplexity {figure(ends[0])} → {figure(ends[1])}"
    accuracies = at_measurements(run, "eval_accuracy")[1]
    if len(accuracies):
        change += f", accuracy {percent(accuracies[0], 1)} → {percent(accuracies[-1], 1)} of the held-out pairs"
    steps = [int(measured.steps[at]) for at in (0, -1)]
    reason = f"{len(measured.indices)} measurements of the same held-out examples, from step {steps[0]} to step {steps[1]}; "
    return change, reason + f"more than {REAL_FALL:g} nats count."


def _by_training(run: RecordedRun) -> tuple[str, str]:
    loss = training(run)
    count = int(loss.count[-1])
    if count < 2 * WINDOW:
        return "", f"A verdict needs {2 * WINDOW} steps, or two measurements on held-out examples; there {_are(count)}."
    gain, error = (float(part[-1]) for part in fallen(run))
    change = f"training loss {figure(loss.start)} → {figure(loss.start - gain)} {UNITS[run.config.stage]}"
    reason = f"The loss fell by {figure(gain)}; from {figure(max(REAL_FALL, SURE * error))} on it is more than chance."
    return change, reason.replace("by -", "by −")


def _are(count: int) -> str:
    return "is 1 step" if count == 1 else f"are {count} steps"


def _notes(checked: Checked[RecordedRun], kind: VerdictKind) -> list[str]:
    notes = [f"{finding.title}." for finding in checked.lasting if finding.check in NOTED]
    if kind in ("diverged", "nothing learned", "overfits", "got worse"):
        notes += risky_settings(checked.findings)
    if kind in ("learning", "learned") and len(held_out(checked.run).indices) < 2:
        notes.append("Nothing was measured on held-out examples, so nobody can see whether it overfits.")
    return notes + failure(checked.run)


VERDICT = VerdictRules(KINDS, _kinds, _words, _notes, when_over={"learning": "learned"})
