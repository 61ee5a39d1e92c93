"""How surely a score or a judge rose or fell: means of windows of steps with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.series import window_mean

WINDOW = 3  # steps; with 64 episodes a step the mean of three is known to about 0.03 of the recipes' gold
SURE_FALL = 5.0  # standard errors of a difference between two windows, one of them the best so far: chosen among many, so 5 and not 2
FALL_SHARE = 1 / 3  # of what was gained before; smaller falls are the noise of a policy that moves on
FALL_OF_SPREAD = 0.25  # standard deviations of single scores at the start, where nothing was gained before
SURE_RISE = 4.0  # standard errors; the score is looked at at every step, so that 2 would be reached by chance
REAL_RISE = 0.1  # standard deviations of single scores at the start: "nothing learned" may still be sure of a rise of 0.01
FIRST_EPISODES = 32  # at least so many make "the start"
FEWEST_EPISODES = 4  # below this many in a step, the spread between steps stands for the error


@dataclass(frozen=True)
class Series:
    """Mean score per step with its standard error.

    Attributes:
        name: for people, e.g. ``gold score``.
        metric: the metric it is.
        values, errors: shape (S,).
        spread: standard deviation of single responses' scores at the start.
    """

    name: str
    metric: str
    values: np.ndarray
    errors: np.ndarray
    spread: float
    first_steps: int

    @property
    def start(self) -> float:
        """Mean over the first steps (one, where a step has enough episodes)."""
        return float(np.nanmean(self.values[: self.first_steps])) if np.isfinite(self.values[: self.first_steps]).any() else float("nan")

    @property
    def start_error(self) -> float:
        """Standard error of :attr:`start`."""
        errors = self.errors[: self.first_steps]
        return float(np.sqrt(np.nansum(errors**2)) / max(1, np.isfinite(errors).sum()))

    def window(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard error) over this step and those before it, shapes (S,)."""
        return window_mean(self.values, length), np.sqrt(window_mean(self.errors**2, length) / length)


def score(run: RunData) -> Series:
    """What the policy is trained for."""
    spread = run.column("objective/scores_std")
    return _series(run, "score", "objective/scores", spread / np.sqrt(run.batch))


def gold(run: RunData) -> Series | None:
    """The judge that the policy never sees; None in runs without one."""
    if not run.has("gold/score"):
        return None
    return _series(run, "gold score", "gold/score", run.column("gold/score_se"))


def _series(run: RunData, name: str, metric: str, errors: np.ndarray) -> Series:
    values = run.column(metric)
    first = min(10, max(1, int(np.ceil(FIRST_EPISODES / run.batch))))
    if run.batch < FEWEST_EPISODES:
        between = np.abs(np.diff(values, prepend=values[:1])) / np.sqrt(2)
        sizes = np.arange(1, len(values) + 1)
        errors = np.sqrt(np.nancumsum(between**2) / sizes)
    known = errors[np.isfinite(errors)][:first]
    spread = float(known.mean() * np.sqrt(run.batch)) if len(known) else float("nan")
    return Series(name, metric, values, errors, spread, first)


def last_means(values: np.ndarray) -> np.ndarray:
    """At each step the mean over the last tenth of the steps so far, at least one. Shape (S,)."""
    count = np.arange(1, len(values) + 1)
    size = np.maximum(1, count // 10)
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(values))])
    known = np.concatenate([[0], np.cumsum(np.isfinite(values))])
    number = known[count] - known[count - size]
    return np.where(number > 0, (total[count] - total[count - size]) / np.maximum(number, 1), np.nan)


def rise(series: Series) -> tuple[np.ndarray, np.ndarray]:
    """(gain of the last tenth over the start, its standard error) at each step, shapes (S,)."""
    size = np.maximum(1, np.arange(1, len(series.values) + 1) // 10)
    return last_means(series.values) - series.start, np.sqrt(last_means(series.errors**2) / size + series.start_error**2)


def risen(series: Series) -> np.ndarray:
    """Whether the last tenth is above the start by more than chance, and by more than next to nothing, at each step, shape (S,)."""
    gain, error = rise(series)
    found: np.ndarray = (gain > SURE_RISE * error) & (gain > REAL_RISE * series.spread)
    return found


@dataclass(frozen=True)
class Fall:
    """How a judge fell from its best window, at each step, shapes (S,).

    Attributes:
        best, now: means of the best window so far and of the newest one.
        best_at: index of the last step of the best window.
        surely: whether the fall is beyond chance and a material part of what was gained.
    """

    best: np.ndarray
    now: np.ndarray
    best_at: np.ndarray
    surely: np.ndarray


def fall(series: Series) -> Fall:
    """Whether the newest window is below the best earlier one; the start itself counts as a window."""
    now, error = series.window(WINDOW)
    means = np.where(np.isfinite(now), now, -np.inf)
    best, best_at = np.full(len(now), series.start), np.zeros(len(now), dtype=np.int64)
    best_error = np.full(len(now), series.start_error)
    top, at, top_error = series.start, 0, series.start_error
    for index, mean in enumerate(means):
        if mean > top:
            top, at, top_error = mean, index, error[index]
        best[index], best_at[index], best_error[index] = top, at, top_error
    drop, gain = best - now, best - series.start
    sure = drop > SURE_FALL * np.sqrt(error**2 + best_error**2)
    material = drop > np.maximum(FALL_SHARE * gain, FALL_OF_SPREAD * series.spread)
    return Fall(best, now, best_at, sure & material)
