"""Fine-tuning, reward models and DPO: whether the loss falls, and falls on held-out examples as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor.check import SUPERVISED, Course, check, figure, metric_evidence
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.remedies import bolder, calmer
from rlhf_studio.analysis.doctor.series import levels, streak
from rlhf_studio.analysis.doctor.stages.losses import (
    CHANCE,
    LEAST_RISE,
    REAL_FALL,
    RISE_SHARE,
    ROSE,
    SURE,
    SURE_RISE,
    WINDOW,
    HeldOutLosses,
    at_all_steps,
    fallen,
    held_out,
    late,
    measured_late,
    newest_measurement,
    training,
)
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.config import LoraConfig
from rlhf_studio.config.usual import optimisation
from rlhf_studio.language import _
from rlhf_studio.units import percent

FAMILY = "Supervised stages"

RISES = 3  # measurements in a row: one or two above the best are common on the way down
FAR_UP = 1.0  # nats above the start or the best: a model that continues its texts e times worse
STILL_STEPS = 3
LATE_STEPS, FEWEST_STEPS = 20, 5  # as in the verdict of PPO


@check(
    "overfitting",
    FAMILY,
    title="It learns its examples by heart",
    rule=f"held-out loss above its best by {percent(RISE_SHARE['sft'])} and {LEAST_RISE['sft']:g} nats (of pairs "
    f"{percent(RISE_SHARE['dpo'])} and "
    f"{LEAST_RISE['dpo']:g}), {RISES} measurements in a row or at the last one of a run that has ended, while the training loss is below "
    "what it was then; alarm: above its first measurement as well; note: above its best at all",
    cause="The training loss still falls, the held-out loss rises: the model remembers these examples instead of what they have in common. "
    "Usually there were too many passes over too few examples.",
    advice="Take the checkpoint of the best measurement, or stop there. More examples help; so do fewer passes, a lower learning rate, "
    "and LoRA with a small rank.",
    stages=SUPERVISED,
)
def overfitting(run: RecordedRun) -> Course | None:
    measured, stage = held_out(run), run.config.stage
    if len(measured.indices) < 2:
        return None
    risen = measured.above_best(stage)
    over = streak(risen & measured.by_heart, RISES)
    over[-1] |= run.ended and bool((risen & measured.by_heart)[-1])  # nothing more will come
    worse = over & (measured.losses > measured.losses[0] + LEAST_RISE[stage])
    last = np.flatnonzero(over if over.any() else risen)
    best = int(measured.best[last[-1]]) if len(last) else 0

    step = int(measured.steps[best])
    changes: dict[str, Any] = {f"{stage}.max_steps": step} if len(last) and step > 1 else {}
    # The learning rate schedule depends on the number of steps, so a run with fewer steps differs from its first step on.
    step_levels = at_all_steps(run, measured.indices, levels(note=risen, warning=over, alarm=worse))
    past = not over.any()  # the loss may still fall again, or the training loss rose as well
    return Course(
        step_levels,
        _measurements(run, measured, lambda number: int(measured.best[number])),
        title=_("The held-out loss is above its best") if past else "",
        cause=_(
            "It rose again after its lowest point: by chance, by steps that are too large, or because the model begins to learn its "
            "examples by heart."
        )
        if past
        else "",
        changes=changes,
        from_start=True,
        length=RISES,
    )


def _measurements(run: RecordedRun, measured: HeldOutLosses, before: Callable[[int], int]) -> Callable[[int, int], list[Evidence]]:
    """Evidence from two measurements: the newest at the finding's last step, and the one that ``before`` gives for its number."""

    def evidence_of(at: int) -> Evidence:
        text = _("held-out loss {held_out}, training loss {training}")
        text = text.format(held_out=figure(measured.losses[at]), training=figure(measured.training[at]))
        return Evidence(text, step=int(measured.steps[at]), metric=f"{run.config.stage}/eval_loss")

    def evidence(since: int, until: int) -> list[Evidence]:
        newest = newest_measurement(measured.indices, until)
        return [evidence_of(at) for at in dict.fromkeys([before(newest), newest])]

    return evidence


@check(
    "held-out-worse",
    FAMILY,
    title="It got worse than it was before",
    rule=f"newest held-out loss above the first one by {ROSE:g} nats; not where the training loss is below what it was at the "
    "best measurement, which is for `overfitting`",
    cause="Training took something from the model. Mostly the learning rate is far too high for it; or the held-out examples are of "
    "another kind than those of training.",
    advice="Do not use this model. Lower the learning rate by a factor of 10 or more, and begin again from the model that it started from.",
    stages=SUPERVISED,
)
def held_out_worse(run: RecordedRun) -> Course | None:
    measured = held_out(run)
    if len(measured.indices) < 2:
        return None
    step_levels = at_all_steps(run, measured.indices, levels(alarm=measured.worse & ~measured.by_heart))
    return Course(step_levels, _measurements(run, measured, lambda number: 0), changes=calmer(run), from_start=True)


@check(
    "loss-rises",
    FAMILY,
    title="The training loss rises",
    rule=f"mean loss of {WINDOW} steps above that of the first {WINDOW} by {ROSE:g} nats; alarm: above the start, or the best such mean so "
    f"far, by {FAR_UP:g}; all beyond {SURE_RISE:g} standard errors, from step {LATE_STEPS} on (alarm: {2 * WINDOW})",
    cause="The steps are too large: each one breaks more of the model than it teaches. The learning rate is too high for this model, or "
    "rises to its height too fast.",
    advice="Lower the learning rate, and let a warm-up bring it to its height; keep the gradient clip at 1.",
    stages=SUPERVISED,
)
def loss_rises(run: RecordedRun) -> Course | None:
    loss = training(run)
    rises = (loss.count >= LATE_STEPS) & loss.above(loss.start, ROSE)
    far = (loss.count >= 2 * WINDOW) & (loss.above(loss.start, FAR_UP) | loss.above(loss.best, FAR_UP))
    words = _("loss {}; {start} on average in the first {steps} steps")
    evidence = metric_evidence(run, f"{run.config.stage}/loss", words, start=figure(loss.start), steps=str(WINDOW))
    return Course(levels(warning=rises, alarm=far), evidence, changes=calmer(run), length=WINDOW)


@check(
    "loss-stays",
    FAMILY,
    title="The training loss does not fall",
    rule=f"mean loss of the last tenth of the steps not below that of the first {WINDOW} by more than {REAL_FALL:g} nats and {SURE:g} "
    f"standard errors, after {LATE_STEPS} steps and half of the plan, or when the run has ended after {2 * WINDOW}; not where the held-out "
    "loss fell, nor before it was measured so late",
    cause="The learning rate is too small for so few steps, the weights are frozen, or the examples hold nothing that this model does not "
    "know.",
    advice="Raise the learning rate by factors of 3 while the loss stays calm. Look at some examples: can anybody learn this from them?",
    stages=SUPERVISED,
)
def loss_stays(run: RecordedRun) -> Course | None:
    gain, error = fallen(run)
    measured = held_out(run)
    better = at_all_steps(run, measured.indices, measured.fell).astype(bool)
    may_judge = measured_late(run, measured, late(run, LATE_STEPS, 2 * WINDOW))
    stays = may_judge & (gain <= np.maximum(REAL_FALL, SURE * error)) & ~(gain < -ROSE) & ~better
    words, start = _("loss {}; {start} on average in the first {steps} steps"), figure(training(run).start)
    evidence = metric_evidence(run, f"{run.config.stage}/loss", words, start=start, steps=str(WINDOW))
    return Course(levels(warning=stays), evidence, changes=bolder(run), from_start=True)


@check(
    "no-gradient",
    FAMILY,
    title="Nothing is trained",
    rule=f"gradient norm exactly 0, {STILL_STEPS} steps in a row with a learning rate above 0",
    cause="Optimizer steps are made, but no weight has a gradient: all are frozen, or the loss does not depend on them.",
    advice="See which weights learn. Of a LoRA run, let target modules be auto.",
    stages=SUPERVISED,
)
def no_gradient(run: RecordedRun) -> Course | None:
    still = streak((run.column("optim/grad_norm") == 0) & (run.column("lr") > 0), STILL_STEPS)
    lora = getattr(run.config, "lora", None)
    adapted = isinstance(lora, LoraConfig) and lora.enabled
    changes = {"lora.target_modules": "auto"} if isinstance(lora, LoraConfig) and adapted and lora.target_modules != "auto" else {}
    return Course(
        levels(alarm=still),
        metric_evidence(run, "optim/grad_norm", _("gradient norm {}")),
        title=_("The adapter does not train") if adapted else "",
        cause=_("Optimizer steps are made, but no gradient reaches the adapter: its layers take no part in the loss.") if adapted else "",
        changes=changes,
        length=STILL_STEPS,
        from_start=True,
    )


@check(
    "loss-at-chance",
    FAMILY,
    title="The loss is that of a coin",
    rule=f"mean loss of {WINDOW} steps within {REAL_FALL:g} nats of ln 2 = {CHANCE:.3f}, after {LATE_STEPS} steps and half of the plan, or "
    f"when the run has ended after {2 * WINDOW}; in the loss of pairs without margins",
    cause="The model gives both responses the same score: nothing tells them apart yet, or both are cut down to the same text.",
    advice="Look at some pairs as the model reads them: is the part that differs still there? Then raise the learning rate.",
    stages=("reward_model", "dpo"),
)
def loss_at_chance(run: RecordedRun) -> Course | None:
    now = training(run).now
    chance = late(run, LATE_STEPS, 2 * WINDOW) & (np.abs(now - CHANCE) < REAL_FALL)
    own = optimisation(run.config)
    evidence = metric_evidence(run, f"{run.config.stage}/loss", _("loss {} nats per pair"))
    return Course(levels(warning=chance), evidence, changes=bolder(run) if own else {}, from_start=True)
