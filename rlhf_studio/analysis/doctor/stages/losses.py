"""How surely the loss of a supervised stage fell or rose, and what was measured on its held-out examples.

A training loss moves by chance from batch to batch. Its error is taken from how far successive steps lie apart. A held-out loss is always
of the same examples, so two of its measurements differ by what was learned between them, and by little else.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor.judges import between_steps, last_means
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.series import at_start, window_mean

WINDOW = 5  # steps; the error of their mean is less than half of the error of one step
SURE = 4.0  # standard errors; the loss is tested at every step, so 2 would be reached by chance
SURE_RISE = 5.0  # of a window among very many, against a start that may itself be low by chance
REAL_FALL = 0.01  # nats: a loss that fell by less has learned nothing that anybody would see
CHANCE = log(2)  # nats per pair: the loss of a model that cannot tell the responses apart
ROSE = 0.1  # nats above the start: a model that is worse than it was
RISE_SHARE = {"sft": 0.01, "reward_model": 0.03, "dpo": 0.03}  # of the best loss; a mean over pairs has fewer terms than one over tokens
LEAST_RISE = {"sft": 0.005, "reward_model": 0.01, "dpo": 0.01}  # nats


@dataclass(frozen=True)
class TrainingLoss:
    """The training loss, smoothed, at every step, shapes (S,).

    Attributes:
        count: how many steps had a loss so far.
        start: mean of the first :data:`WINDOW` losses.
        now: mean of the newest :data:`WINDOW`; NaN before there are so many.
        best: the lowest such mean so far.
        error: standard error of one step's loss, from how far successive steps lie apart so far.
    """

    count: np.ndarray
    start: float
    now: np.ndarray
    best: np.ndarray
    error: np.ndarray

    def above(self, level: np.ndarray | float, by: float) -> np.ndarray:
        """Whether the loss is above a level by so many nats and by more than chance, shape (S,)."""
        sure = SURE_RISE * self.error * np.sqrt(2 / WINDOW)
        is_above: np.ndarray = self.now - level > np.maximum(by, sure)
        return is_above


def training(run: RecordedRun) -> TrainingLoss:
    """The training loss of a supervised stage."""
    loss = run.own("loss")
    with_loss = np.flatnonzero(np.isfinite(loss))
    now, error, count = np.full(len(loss), np.nan), np.full(len(loss), np.nan), np.cumsum(np.isfinite(loss))
    now[with_loss] = window_mean(loss[with_loss], WINDOW)
    error[with_loss] = between_steps(loss[with_loss], exact=False)
    best = np.minimum.accumulate(np.where(np.isfinite(now), now, np.inf))
    return TrainingLoss(count, at_start(loss, WINDOW), now, best, error)


def fallen(run: RecordedRun) -> tuple[np.ndarray, np.ndarray]:
    """(how far the last tenth of the training losses lies below the first :data:`WINDOW`, its standard error) at every step, shapes (S,).

    Both are NaN before there are twice so many steps.
    """
    loss = run.own("loss")
    with_loss = np.flatnonzero(np.isfinite(loss))
    values = loss[with_loss]
    sizes = np.maximum(1, np.arange(1, len(values) + 1) // 10)
    gain = at_start(values, WINDOW) - last_means(values)
    error = between_steps(values, exact=False) * np.sqrt(1 / sizes + 1 / WINDOW)
    early = np.arange(1, len(values) + 1) < 2 * WINDOW
    both = np.full((2, len(loss)), np.nan)
    both[0, with_loss], both[1, with_loss] = np.where(early, np.nan, gain), np.where(early, np.nan, error)
    return both[0], both[1]


@dataclass(frozen=True)
class HeldOutLosses:
    """The measurements on held-out examples, in order: K of them. The first may be of the model before training, which is step 0.

    Attributes:
        indices: of their steps among the recorded ones, (K,); -1 for step 0.
        steps: the steps, (K,).
        losses: nats, (K,).
        best: for each measurement the number of the lowest one so far, (K,).
        training: the mean training loss of the steps since the previous measurement, (K,); NaN without such steps. At step 0 it is the mean
            of the first :data:`WINDOW` steps, or the first loss where that is lower: a step that is too large spoils those after it.
    """

    indices: np.ndarray
    steps: np.ndarray
    losses: np.ndarray
    best: np.ndarray
    training: np.ndarray

    @property
    def fell(self) -> np.ndarray:
        """Whether each is below the first one, (K,)."""
        has_fallen: np.ndarray = self.losses[:1] - self.losses > REAL_FALL
        return has_fallen

    @property
    def worse(self) -> np.ndarray:
        """Whether each is clearly above the first one, (K,)."""
        is_worse: np.ndarray = self.losses - self.losses[:1] > ROSE
        return is_worse

    @property
    def by_heart(self) -> np.ndarray:
        """Whether the training loss is below what it was at the best measurement so far, (K,)."""
        is_lower: np.ndarray = self.training < self.training[self.best] if len(self.best) else np.zeros(0, dtype=bool)
        return is_lower

    def above_best(self, stage: str) -> np.ndarray:
        """Whether each is above the lowest so far by more than the stage's threshold, (K,)."""
        lowest = self.losses[self.best] if len(self.best) else self.losses
        is_above: np.ndarray = self.losses - lowest > np.maximum(RISE_SHARE[stage] * lowest, LEAST_RISE[stage])
        return is_above


def at_measurements(run: RecordedRun, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(indices of steps, values) of a metric that is measured now and then, (K,).

    The value before training is in the event ``start``, if there is one; its index is -1.
    """
    column = run.own(name)
    indices = np.flatnonzero(np.isfinite(column))
    before = run.event_data("start").get(f"{run.config.stage}/{name}")
    if isinstance(before, int | float) and np.isfinite(before):
        return np.append(-1, indices), np.append(float(before), column[indices])
    return indices, column[indices]


def held_out(run: RecordedRun) -> HeldOutLosses:
    """What was measured on the held-out examples."""
    loss = run.own("loss")
    indices, values = at_measurements(run, "eval_loss")
    best = np.array([int(np.argmin(values[: index + 1])) for index in range(len(values))], dtype=np.int64)
    means = []
    for number, index_of_step in enumerate(indices):
        between = loss[indices[number - 1] + 1 if number else 0 : index_of_step + 1] if index_of_step >= 0 else loss[:WINDOW]
        mean = float(np.nanmean(between)) if np.isfinite(between).any() else float("nan")
        means.append(mean if index_of_step >= 0 else min([mean, *between[:1].tolist()]))
    steps = np.where(indices < 0, 0, run.steps[np.maximum(indices, 0)]) if len(run.steps) else np.zeros(len(indices), dtype=np.int64)
    return HeldOutLosses(indices, steps, values, best, np.array(means))


def at_all_steps(run: RecordedRun, step_indices: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Levels of measurements, (K,), spread over all steps, (S,). Each holds until the next measurement; before the first it is 0."""
    counts = np.searchsorted(step_indices, np.arange(len(run.steps)), side="right")
    return np.append(np.zeros(1, dtype=np.int8), values.astype(np.int8))[counts]


def newest_measurement(indices: np.ndarray, last: int) -> int:
    """The number of the newest measurement at or before the step of index ``last``; ``indices`` (K,) of their steps. -1 without one."""
    return int(np.searchsorted(indices, last, side="right")) - 1


def late(run: RecordedRun, steps: int, fewest: int) -> np.ndarray:
    """At which steps it may be said that nothing was learned, (S,).

    After at least ``steps`` losses and half of the planned steps; at the last step of a run that is over, after ``fewest`` losses.
    """
    count = np.cumsum(np.isfinite(run.own("loss")))
    may_judge: np.ndarray = (count >= steps) & (2 * run.steps >= run.total_steps)
    if run.over and len(may_judge):
        may_judge[-1] = count[-1] >= fewest
    return may_judge


def measured_late(run: RecordedRun, measured: HeldOutLosses, late: np.ndarray) -> np.ndarray:
    """Of the steps that are ``late``, (S,), those at which the held-out loss has been measured late as well.

    All of them where nothing is held out, and the last one of a run that has ended: nothing more will be measured.
    """
    holds_out = bool(whole_number(run.event_data("examples"), "held_out"))
    counts = np.searchsorted(measured.indices, np.arange(len(run.steps)), side="right")
    at_a_late_step = np.array([index >= 0 and bool(late[index]) for index in measured.indices], dtype=bool)
    measured_too = late & (at_all_steps(run, measured.indices, at_a_late_step).astype(bool) | ((counts == 0) & (not holds_out)))
    if run.ended and len(measured_too):
        measured_too[-1] = late[-1]
    return np.asarray(measured_too)


def whole_number(data: dict[str, Any], name: str) -> int | None:
    """A count in an event's data; None where it is missing or is not a count."""
    value = data.get(name)
    return value if type(value) is int and value >= 0 else None


FEWEST_PAIRS = 20  # held-out pairs; fewer say hardly anything
SURE_ACCURACY = 2.0  # standard errors of a held-out accuracy
USEFUL_ACCURACY = 0.6  # people agree on about 60 to 75 % of real pairs, and a reward model with less says hardly anything

MEASURED = "reward_model_measured"
"""The kind of the event that has the scores of all held-out pairs."""


def held_out_pairs(run: RecordedRun) -> int | None:
    """How many pairs the held-out accuracy is of, from the event ``examples`` or :data:`MEASURED`; None without both."""
    scores = run.event_data(MEASURED).get("pairs")
    scored = len(scores.get("chosen", [])) if isinstance(scores, dict) else 0
    return whole_number(run.event_data("examples"), "held_out") or scored or None


def chance_error(count: int, share: float = 0.5) -> float:
    """Standard error of a share of ``count`` pairs; at 0 and 1 it is that of a share half a pair away."""
    near = min(max(share, 0.5 / count), 1 - 0.5 / count)
    return float(np.sqrt(near * (1 - near) / count))
