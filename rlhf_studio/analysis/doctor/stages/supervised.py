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
from rlhf_studio.analysis.doctor.wording import as_sentence
from rlhf_studio.analysis.records import VerdictKind
from rlhf_studio.language import N_, _, ngettext
from rlhf_studio.units import percent

LATE_STEPS = 20
KINDS: tuple[VerdictKind, ...] = ("too early", "nothing learned", "learning", "overfits", "got worse", "diverged")
TOO_EARLY, NOTHING, LEARNING, OVERFITS, WORSE, DIVERGED = range(6)
UNITS = {"sft": N_("nats per token"), "reward_model": N_("nats per pair"), "dpo": N_("nats per pair")}
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
        return _("Too early to say."), reason
    if kind == "overfits":
        best = int(measured.best[-1])
        step, lowest, now = int(measured.steps[best]), measured.losses[best], measured.losses[-1]
        sentence = _(
            "Overfits: the held-out loss was lowest at step {step} ({lowest}) and is {now} now, while the training loss went on falling, "
            "{before} → {after}."
        )
        figures = {"before": figure(measured.training[best]), "after": figure(measured.training[-1])}
        reason = _("The model of step {step} is the better one: what came after was learned by heart.").format(step=step)
        return sentence.format(step=step, lowest=figure(lowest), now=figure(now), **figures), reason
    if kind == "diverged":
        loss = training(run)
        words = _("Diverged: the training loss began at {start} and is not finite any more.")
        if np.isfinite(loss.now[-1]):
            words = _("Diverged: the training loss began at {start} and is {now} now.")
        return words.format(start=figure(loss.start), now=figure(loss.now[-1])), _("The steps were too large for this model.")
    if kind == "nothing learned":
        guessed = checked.at_newest(["accuracy-at-chance"])  # as many held-out pairs are right as by chance, however the loss went
        words = _("Nothing learned that tells new pairs apart: {change}.") if guessed else _("Nothing learned: {change}.")
        return words.format(change=change), reason
    if kind == "got worse":
        worse = _("The model that it started from predicts the held-out examples better. {reason}").format(reason=reason)
        return _("Got worse: {change}.").format(change=change), worse
    words = (
        _("Learning when it {ended}: {change}.")
        if run.broke_off
        else _("Learning: {change}.")
        if kind == "learning"
        else _("Learned: {change}.")
    )
    return words.format(ended=run.broke_off, change=_past_best(run, measured, change)), reason


def _past_best(run: RecordedRun, measured: HeldOutLosses, change: str) -> str:
    """The change; where the newest held-out loss is clearly above its best, with what that was, and at which step."""
    if len(measured.indices) < 2 or not measured.above_best(run.config.stage)[-1]:
        return change
    best = int(measured.best[-1])
    step, lowest, now = int(measured.steps[best]), measured.losses[best], measured.losses[-1]
    words = _("{change}; best {best} at step {step}, now {now}: it rose since")
    if measured.by_heart[-1]:
        words = _("{change}; best {best} at step {step}, now {now}: it overfits since")
    return words.format(change=change, best=figure(lowest), step=step, now=figure(now))


def _by_held_out(run: RecordedRun, measured: HeldOutLosses) -> tuple[str, str]:
    stage = run.config.stage
    first, now = float(measured.losses[0]), float(measured.losses[-1])
    change = _("held-out loss {first} → {now} {unit}").format(first=figure(first), now=figure(now), unit=_(UNITS[stage]))
    if stage == "sft":
        ends = np.exp(np.minimum([first, now], 700.0))
        change = _("{change}, perplexity {first} → {now}").format(change=change, first=figure(ends[0]), now=figure(ends[1]))
    accuracies = at_measurements(run, "eval_accuracy")[1]
    if len(accuracies):
        words = _("{change}, accuracy {first} → {now} of the held-out pairs")
        change = words.format(change=change, first=percent(accuracies[0], 1), now=percent(accuracies[-1], 1))
    reason = _("{count} measurements of the same held-out examples, from step {first} to step {last}; more than {least:g} nats count.")
    first_step, last_step = (int(measured.steps[at]) for at in (0, -1))
    return change, reason.format(count=len(measured.indices), first=first_step, last=last_step, least=REAL_FALL)


def _by_training(run: RecordedRun) -> tuple[str, str]:
    loss = training(run)
    count = int(loss.count[-1])
    if count < 2 * WINDOW:
        words = ngettext(
            "A verdict needs {fewest} steps, or two measurements on held-out examples; there is 1 step.",
            "A verdict needs {fewest} steps, or two measurements on held-out examples; there are {count} steps.",
            count,
        )
        return "", words.format(fewest=2 * WINDOW, count=count)
    gain, error = (float(part[-1]) for part in fallen(run))
    change = _("training loss {first} → {now} {unit}")
    change = change.format(first=figure(loss.start), now=figure(loss.start - gain), unit=_(UNITS[run.config.stage]))
    reason = _("The loss fell by {gain}; from {enough} on it is more than chance.")
    return change, reason.format(
        gain=figure(gain).replace("-", "−", 1) if gain < 0 else figure(gain), enough=figure(max(REAL_FALL, SURE * error))
    )


def _notes(checked: Checked[RecordedRun], kind: VerdictKind) -> list[str]:
    notes = [as_sentence(finding.title) for finding in checked.lasting if finding.check in NOTED]
    if kind in ("diverged", "nothing learned", "overfits", "got worse"):
        notes += risky_settings(checked.findings)
    if kind in ("learning", "learned") and len(held_out(checked.run).indices) < 2:
        notes.append(_("Nothing was measured on held-out examples, so nobody can see whether it overfits."))
    return notes + failure(checked.run)


VERDICT = VerdictRules(KINDS, _kinds, _words, _notes, when_over={"learning": "learned"})
