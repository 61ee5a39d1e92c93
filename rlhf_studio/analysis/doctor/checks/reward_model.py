"""Reward models, and DPO where it measures the same: accuracy on held-out pairs, margins, calibration, length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor.check import Course, check, figure, metric_evidence
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.remedies import bolder, calmer
from rlhf_studio.analysis.doctor.series import ALARM, NOTE, WARNING, carried, levels, streak, window_mean
from rlhf_studio.analysis.doctor.stages.losses import (
    FEWEST_PAIRS,
    MEASURED,
    SURE_ACCURACY,
    USEFUL_ACCURACY,
    at_all_steps,
    chance_error,
    held_out_pairs,
    late,
    newest_measurement,
)
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.config import RewardModelRunConfig, Stage
from rlhf_studio.config.usual import optimisation
from rlhf_studio.language import _
from rlhf_studio.units import percent

FAMILY = "Reward models"
PAIRS: tuple[Stage, ...] = ("reward_model", "dpo")

LATE_STEPS, FEWEST_STEPS = 20, 5

DRIFT, FAR_DRIFT = 5.0, 50.0  # points; PPO's own scores have a standard deviation of about 1 after normalising
DRIFT_OF_MARGIN, DRIFT_STEPS = 3.0, 5

WIDE, HUGE, WIDE_STEPS = 10.0, 50.0, 5  # points: sigmoid(10) is a certainty of 99.995 %, which no person's choice has

AT_ONCE, AT_ONCE_STEPS, AT_ONCE_PAIRS, EARLY_STEPS = 0.99, 5, 100, 20  # accuracy; in a row; within the first steps

LEVEL_MEASUREMENTS = 4  # measurements whose accuracies lie within their error of each other
KNOWN_BETTER = 0.05  # accuracy on the training pairs above that on held-out ones
NEAR_CERTAIN = 0.95  # an accuracy that leaves no room for much noise

LENGTH_GAP, LENGTH_SURE = 0.2, 3.0  # difference of two accuracies, and its standard errors
CONFIDENT_STEPS = 2  # measurements in a row


def _accuracies(run: RecordedRun) -> tuple[np.ndarray, np.ndarray]:
    """(indices of the steps that measured it, held-out accuracy), shapes (K,)."""
    column = run.own("eval_accuracy")
    indices = np.flatnonzero(np.isfinite(column))
    return indices, column[indices]


@check(
    "accuracy-at-chance",
    FAMILY,
    title="Held-out pairs are guessed",
    rule=f"held-out accuracy below {percent(USEFUL_ACCURACY)} by more than {SURE_ACCURACY:g} standard errors of so many pairs, and not "
    f"above 50 % by as many; note: the latter alone, which few pairs leave open. After {LATE_STEPS} steps and half of the plan, or when "
    f"the run has ended after {FEWEST_STEPS}; not of fewer than {FEWEST_PAIRS} pairs",
    cause="The model has found nothing in the training pairs that holds for new ones: too few pairs, too few or too small steps, or labels "
    "that nothing in the text explains.",
    advice="Look at some pairs: would you choose as the labels say? Then train longer or with a higher rate, or get more pairs.",
    stages=PAIRS,
)
def accuracy_at_chance(run: RecordedRun) -> Course | None:
    indices, accuracy = _accuracies(run)
    pairs = held_out_pairs(run)
    if not len(indices) or pairs is None or pairs < FEWEST_PAIRS:
        return None
    error = SURE_ACCURACY * chance_error(pairs)
    open_ = accuracy <= 0.5 + error
    guessed = open_ & (accuracy + error < USEFUL_ACCURACY)
    may_judge = late(run, LATE_STEPS, FEWEST_STEPS)
    step_levels = levels(*(may_judge & at_all_steps(run, indices, measured).astype(bool) for measured in (open_, guessed)))

    def evidence(since: int, last: int) -> list[Evidence]:
        newest = newest_measurement(indices, last)
        text = _("{share} of {pairs:,} held-out pairs, ± {error}")
        text = text.format(share=percent(accuracy[newest], 1), pairs=pairs, error=percent(chance_error(pairs), 1))
        return [Evidence(text, step=int(run.steps[indices[newest]]), metric=f"{run.config.stage}/eval_accuracy")]

    if not len(step_levels) or step_levels[-1] != NOTE:
        return Course(step_levels, evidence, changes=bolder(run), from_start=True)
    title = _("Too few held-out pairs to tell the accuracy from guessing")
    cause = _("The accuracy of {pairs:,} pairs may be {error} off, so it could be chance, and could be useful as well.")
    advice = _("Hold out more pairs: a larger data.eval_share, or a file in data.eval.")
    return Course(step_levels, evidence, title, cause.format(pairs=pairs, error=percent(error)), advice)


@check(
    "scores-drift",
    FAMILY,
    title="The scores drift away from 0",
    rule=f"middle of chosen and rejected score further than {DRIFT:g} points and {DRIFT_OF_MARGIN:g} margins from 0, {DRIFT_STEPS} steps "
    f"in a row; warning: {FAR_DRIFT:g} points",
    cause="Preferences say only how far two scores lie apart, not where they are, so nothing holds them near 0.",
    advice="Where scores are normalised after training it does no harm. A centering coefficient of 0.01 keeps them near 0 meanwhile.",
    stages=("reward_model",),
)
def scores_drift(run: RecordedRun) -> Course | None:
    middle = (run.own("chosen_mean") + run.own("rejected_mean")) / 2
    away = np.abs(middle) > np.maximum(DRIFT, DRIFT_OF_MARGIN * np.abs(run.own("margin")))
    step_levels = levels(note=streak(away, DRIFT_STEPS), warning=streak(away & (np.abs(middle) > FAR_DRIFT), DRIFT_STEPS))

    def evidence(since: int, last: int) -> list[Evidence]:
        ends = dict.fromkeys([since, last])
        return [
            Evidence(
                _("middle of the scores {score}").format(score=figure(middle[at])), int(run.steps[at]), metric="reward_model/chosen_mean"
            )
            for at in ends
        ]

    none = isinstance(run.config, RewardModelRunConfig) and run.config.reward_model.centering == 0
    return Course(step_levels, evidence, changes={"reward_model.centering": 0.01} if none else {}, length=DRIFT_STEPS)


@check(
    "margin-explosion",
    FAMILY,
    title="The margins grow without end",
    rule=f"mean margin above {WIDE:g} points, {WIDE_STEPS} steps in a row; alarm: {HUGE:g}",
    cause="Every pair is told apart already, and the loss still falls a little when the scores are stretched. Such a model is far too "
    "sure, and PPO then chases scores of any size.",
    advice="Fewer passes, a lower learning rate or some weight decay; label smoothing gives the margin an end.",
    stages=("reward_model",),
)
def margin_explosion(run: RecordedRun) -> Course | None:
    margin = run.own("margin")
    step_levels = levels(warning=streak(margin > WIDE, WIDE_STEPS), alarm=streak(margin > HUGE, WIDE_STEPS))
    return Course(
        step_levels, metric_evidence(run, "reward_model/margin", _("margin {} points")), changes=_smoother(run), length=WIDE_STEPS
    )


@check(
    "told-apart-at-once",
    FAMILY,
    title="The pairs are told apart at once",
    rule=f"accuracy on the training pairs at least {percent(AT_ONCE)}, {AT_ONCE_STEPS} steps and {AT_ONCE_PAIRS} pairs in a row, within "
    f"the first {EARLY_STEPS} steps or twice those",
    cause="Real preferences are never that easy. Something outward gives the better response away: its length, an end token, a phrase, or "
    "that all chosen responses come from one source and all rejected ones from another.",
    advice="Compare some pairs by eye. What only one side has must go, or the model learns nothing else.",
    stages=PAIRS,
)
def told_apart_at_once(run: RecordedRun) -> Course | None:
    own = optimisation(run.config)
    batch = own[1].batch_size if own else 1
    steps = max(AT_ONCE_STEPS, -(-AT_ONCE_PAIRS // batch))
    accuracy = run.own("accuracy")
    early = np.cumsum(np.isfinite(accuracy)) <= max(EARLY_STEPS, 2 * steps)
    easy = np.maximum.accumulate(streak(accuracy >= AT_ONCE, steps) & early)  # what makes the pairs easy stays in the data
    return Course(
        levels(warning=easy),
        metric_evidence(run, f"{run.config.stage}/accuracy", _("accuracy {} on the pairs of this step")),
        from_start=True,
    )


@check(
    "labels-disagree",
    FAMILY,
    title="Held-out accuracy has stopped rising",
    rule=f"the last {LEVEL_MEASUREMENTS} held-out accuracies within 2 standard errors of each other, without a rise and below "
    f"{percent(NEAR_CERTAIN)}, while the training pairs of these steps are told apart by {percent(KNOWN_BETTER)} more",
    cause="What is left may be noise: people who label the same pair twice agree in 60 to 80 % of the cases, and no model can be right "
    "more often than the labels are.",
    advice="Have some pairs labelled twice: the agreement is about the ceiling. Label smoothing fits a known share of wrong labels.",
    stages=PAIRS,
)
def labels_disagree(run: RecordedRun) -> Course | None:
    indices, accuracy = _accuracies(run)
    pairs = held_out_pairs(run)
    if pairs is None or len(indices) < LEVEL_MEASUREMENTS:
        return None
    measurement_levels, training_accuracy = np.zeros(len(indices), dtype=np.int8), run.own("accuracy")
    for number in range(LEVEL_MEASUREMENTS - 1, len(indices)):
        newest = accuracy[number - LEVEL_MEASUREMENTS + 1 : number + 1]
        taught = training_accuracy[indices[number - LEVEL_MEASUREMENTS + 1] + 1 : indices[number] + 1]
        better = np.isfinite(taught).any() and np.nanmean(taught) > newest.mean() + KNOWN_BETTER
        error = chance_error(pairs)
        still = np.ptp(newest) <= 2 * error and newest[-1] - newest[0] < error
        still = still and newest.mean() > 0.5 + SURE_ACCURACY * error  # else the model guesses, which is another finding
        measurement_levels[number] = NOTE if better and still and newest.max() < NEAR_CERTAIN else 0

    def evidence(since: int, last: int) -> list[Evidence]:
        newest = newest_measurement(indices, last)
        text = _("{share} of {pairs:,} held-out pairs").format(share=percent(accuracy[newest], 1), pairs=pairs)
        return [Evidence(text, step=int(run.steps[indices[newest]]), metric=f"{run.config.stage}/eval_accuracy")]

    return Course(at_all_steps(run, indices, measurement_levels), evidence, changes=_smoother(run, only=True), from_start=True)


@check(
    "too-confident",
    FAMILY,
    title="It is surer than it is right",
    rule="held-out log loss above the entropy of its accuracy two standard errors lower, which no calibrated model exceeds, "
    f"{CONFIDENT_STEPS} measurements in a row",
    cause="Margins say 99 % where 70 % would be right. It comes from too many passes, or from labels that contradict each other.",
    advice="Take an earlier checkpoint or make fewer passes; label smoothing and weight decay hold the margins.",
    stages=("reward_model",),
)
def too_confident(run: RecordedRun) -> Course | None:
    losses, accuracies = run.own("eval_loss"), run.own("eval_accuracy")
    indices = np.flatnonzero(np.isfinite(losses) & np.isfinite(accuracies))
    pairs = held_out_pairs(run)
    if pairs is None or pairs < FEWEST_PAIRS or not len(indices) or _has_margins(run):
        return None
    limit = np.array([entropy(max(0.5, accuracy - 2 * chance_error(pairs, accuracy))) for accuracy in accuracies[indices]])
    over = streak(losses[indices] > limit, CONFIDENT_STEPS)

    def evidence(since: int, last: int) -> list[Evidence]:
        at = indices[newest_measurement(indices, last)]
        text = _("log loss {loss} with an accuracy of {accuracy}, which allows {allowed}")
        text = text.format(loss=figure(losses[at]), accuracy=percent(accuracies[at], 1), allowed=figure(entropy(accuracies[at])))
        return [Evidence(text, step=int(run.steps[at]), metric="reward_model/eval_loss")]

    return Course(at_all_steps(run, indices, WARNING * over), evidence, changes=_smoother(run), from_start=True)


def entropy(share: float) -> float:
    """Nats of a choice that is right with this probability: the highest mean log loss that a calibrated model of this accuracy can have.

    A calibrated model that is sure of a pair with probability c is right with c and has the loss h(c), the entropy. Over all pairs its
    accuracy is the mean of c and its loss the mean of h(c), which is at most h of that mean, as h is concave.
    """
    parts = [part for part in (share, 1 - share) if part > 0]
    return float(-sum(part * np.log(part) for part in parts))


def _has_margins(run: RecordedRun) -> bool:
    """Whether the loss has margins, and so is not a plain log loss."""
    config = run.config
    return isinstance(config, RewardModelRunConfig) and bool(config.data.margin_column or config.data.margin_from_ratings)


def _smoother(run: RecordedRun, only: bool = False) -> dict[str, Any]:
    """Label smoothing, where there is none yet; else a lower rate, unless only smoothing is asked for."""
    stage = run.config.stage
    settings = getattr(run.config, stage)
    if settings.label_smoothing == 0:
        return {f"{stage}.label_smoothing": 0.1}
    return {} if only else calmer(run)


@check(
    "length-bias",
    FAMILY,
    title="It goes by the length",
    rule=f"held-out accuracy where the chosen response is the longer one and where it is the shorter one apart by {percent(LENGTH_GAP)} "
    f"and by {LENGTH_SURE:g} standard errors; alarm: worse than guessing on one of the two",
    cause="In the training pairs the longer response is preferred more often, and length is easier to see than quality. PPO will write "
    "longer and longer answers.",
    advice="Balance the pairs: drop some in which the longer one was chosen. In PPO a length component can pull the other way.",
    stages=("reward_model",),
)
def length_bias(run: RecordedRun) -> Course | None:
    looked: dict[int, int] = {}
    texts: dict[int, str] = {}
    for event in run.events:
        shares = _by_length(event.data) if event.kind == MEASURED else None
        if shares is not None:
            looked[event.step], texts[event.step] = _length_level(*shares)
    if not looked:
        return None
    step_levels = carried(run.steps, looked)

    def evidence(since: int, last: int) -> list[Evidence]:
        step = max((step for step in texts if step <= run.steps[last]), default=max(texts))
        return [Evidence(texts[step], step=step)]

    return Course(step_levels, evidence, from_start=True)


Share = tuple[float, int]
"""An accuracy, and of how many pairs it is."""


def _by_length(data: Mapping[str, Any]) -> tuple[Share, Share] | None:
    """Accuracy on the pairs whose chosen response is the longer one, and on those where it is the shorter one; ties are left out.

    ``data`` of the event :data:`MEASURED` has, under ``pairs``, the scores ``chosen`` and ``rejected``, their lengths ``chosen_tokens`` and
    ``rejected_tokens``, and the indices of ``ties``. None where one of these is missing, or where one
    of the two groups has fewer than :data:`FEWEST_PAIRS`.
    """
    pairs = data.get("pairs")
    try:
        names = ("chosen", "rejected", "chosen_tokens", "rejected_tokens")
        chosen, rejected, first, second = (np.asarray(pairs[name], dtype=np.float64) for name in names)  # type: ignore[index]
        clear = ~np.isin(np.arange(len(chosen)), pairs.get("ties", []))  # type: ignore[union-attr]
        right, longer = (chosen > rejected) + 0.5 * (chosen == rejected), first - second
        masks = [clear & (longer > 0), clear & (longer < 0)]
        many, few = [(float(right[mask].mean()), int(mask.sum())) for mask in masks if mask.sum() >= FEWEST_PAIRS]
    except (TypeError, KeyError, ValueError, AttributeError):  # other data than expected, unequal lengths, or an empty group
        return None
    return many, few


def _length_level(longer: Share, shorter: Share) -> tuple[int, str]:
    """The level of a difference, and the evidence in words."""
    (first, many), (second, few) = longer, shorter
    error = float(np.hypot(chance_error(many, first), chance_error(few, second)))
    biased = abs(first - second) > max(LENGTH_GAP, LENGTH_SURE * error)
    lower, count = min(longer, shorter)
    worse = biased and lower < 0.5 - LENGTH_SURE * chance_error(count)
    text = _("{first} of {many:,} pairs whose chosen response is longer, {second} of {few:,} where it is shorter")
    text = text.format(first=percent(first, 1), many=many, second=percent(second, 1), few=few)
    return (ALARM if worse else WARNING if biased else 0), text


@check(
    "scores-alike",
    FAMILY,
    title="All texts get the same score",
    rule=f"margin below 0.001 points on average over {DRIFT_STEPS} steps, after {LATE_STEPS} steps and half of the plan, or when the run "
    f"has ended after {FEWEST_STEPS}",
    cause="The head does not see what differs between the two responses, or all pairs say the same thing, such as one class only.",
    advice="Look at the pairs as the model reads them; the two texts must differ before the last token.",
    stages=("reward_model",),
)
def scores_alike(run: RecordedRun) -> Course | None:
    alike = late(run, LATE_STEPS, FEWEST_STEPS) & (window_mean(np.abs(run.own("margin")), DRIFT_STEPS) < 1e-3)
    return Course(levels(warning=alike), metric_evidence(run, "reward_model/margin", _("margin {} points")), from_start=True)
