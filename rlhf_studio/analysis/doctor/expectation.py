"""What more steps would bring: how many would tell whether a run learns, and what score to expect after them.

Both come from the newest step's regressions (:func:`rlhf_studio.analysis.trend.fits`) on a steady rise and on one that came early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis import trend
from rlhf_studio.analysis.doctor.bounds import EXCLUDED, MATTERS
from rlhf_studio.analysis.doctor.judges import LIKELY_RISE, SURE_AT_END, SURE_RISE, WINDOW, ScoreSeries
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.runs.pace import STEP_TIME, step_seconds

NINE_OF_TEN = 1.28  # standard errors: the steps are told that are enough in nine of ten such runs
FARTHEST = 20  # times the steps so far: what would take longer is not to be had by waiting
NIGHT = 8 * 3600.0  # seconds
NEWEST = 10  # steps whose KL is the present one


@dataclass(frozen=True)
class Outlook:
    """What is to be expected of a run.

    Attributes:
        if_it_rises: further steps after which the present slope would be sure; None where it would take very long, or nothing rises.
        if_it_stays: further steps after which a rise that matters would be excluded, if there is none; None where it would take very long.
        steps: further steps that ``low`` and ``high`` are about: what is left of the plan; then a night, or where the pace is not known as
            many as there were, and at most :data:`FARTHEST` times as many.
        planned: whether these are what is left of the plan.
        low, high: of the mean score after them, points: from no further gain (most rises end) to :func:`carried_on`, and not above the best
            single score yet.
        kl: up to which it may have grown by then, nats; NaN where that is not known.
        pace: seconds that a step takes; NaN where it is not recorded.
    """

    if_it_rises: int | None
    if_it_stays: int | None
    steps: int
    planned: bool
    low: float
    high: float
    kl: float
    pace: float


def outlook(run: RunData, series: ScoreSeries) -> Outlook | None:
    """What is to be expected of a run with this score; None before there are :data:`~rlhf_studio.analysis.trend.FEWEST` steps with one."""
    values = series.values[series.known]
    if len(values) < trend.FEWEST:
        return None
    fits = trend.fits(values, None if series.by_steps else series.errors[series.known])
    pace = step_seconds(run.column(STEP_TIME))
    left = 0 if run.ended else max(0, run.total_steps - int(run.steps[-1]))
    night = round(NIGHT / pace) if pace else len(values)
    steps = left or max(1, min(night, FARTHEST * len(values)))
    low, high, now = carried_on(fits, len(values), steps)
    newest = values[-max(WINDOW, len(values) // 10) :]
    low = min(low, float(newest.mean() - NINE_OF_TEN * fits[1].noise[-1] / np.sqrt(len(newest))))
    best = run.column("objective/scores_max")
    if series.metric == "objective/scores" and np.isfinite(best).any():
        high = max(min(high, float(np.nanmax(best))), now)
        low = min(low, high)
    stays = steps_if_it_stays(fits, len(values), series.spread)
    kl = _kl(run, series, fits[1], now, high)
    rises = steps_if_it_rises(fits[1], len(values), len(values) + left)
    return Outlook(rises, stays, steps, left > 0, low, high, kl, float("nan") if pace is None else pace)


def steps_if_it_rises(steady: trend.Fit, count: int, planned: int) -> int | None:
    """Further steps after which a rise as steep as the present one is sure, in nine of ten runs.

    The standard error of a slope over N steps is s √(12 / N³), with s the noise of a step, in which neighbours are alike; so the slope b is
    z standard errors from 0 after N = (√12 (z + 1.28) s / b)^(2/3) steps: Weatherhead et al. 1998, "Factors affecting the detection of
    trends", Journal of Geophysical Research 103 (D14), equation 3. At the last planned step a smaller z is enough.
    """
    slope, noise = steady.rise[-1] / (count - 1), steady.noise[-1]
    if not slope > 0:
        return None
    enough = [float((np.sqrt(12) * (z + NINE_OF_TEN) * noise / slope) ** (2 / 3)) for z in (SURE_RISE, SURE_AT_END)]
    return _further(min(enough[0], max(enough[1], planned)), count)


def steps_if_it_stays(fits: list[trend.Fit], count: int, spread: float) -> int | None:
    """Further steps after which a rise that matters is excluded in nine of ten runs that have none.

    The standard error of a rise falls with √N: N = n ((1.645 + 1.28) e / m)², with e the error after n steps and m the rise that matters.
    """
    error = max(float(fit.error[-1]) for fit in fits)
    return _further(count * ((EXCLUDED + NINE_OF_TEN) * error / (MATTERS * spread)) ** 2, count) if spread > 0 else None


def _further(steps: float, count: int) -> int | None:
    return max(1, int(np.ceil(steps - count))) if steps <= FARTHEST * count else None


def carried_on(fits: list[trend.Fit], count: int, steps: int) -> tuple[float, float, float]:
    """(low, high) of the mean score so many steps after ``count``, and the score by the steady trend now, in points.

    Two lines are carried on, neither by more than it gained in its n steps: the one over log i, which flattens by itself, and the steady
    one, damped as in Gardner and McKenzie 1985 ("Forecasting Trends in Time Series"), its slope smaller by 1 / n after every step. The
    range is from the lowest to the highest of both, each ± 1.28 times the standard error of a regression at a new point,
    s √(1/n + (x − x̄)² / Σ (x_i − x̄)²).
    """
    ends, now = [], 0.0
    growths = (np.log((count + steps) / count), count * (1 - np.exp(-steps / count)))
    for fit, curve, growth in zip(fits[:2], trend.CURVES[:2], growths, strict=True):
        x = curve(np.arange(1, count + 1, dtype=np.float64))
        slope, error = fit.rise[-1] / (x[-1] - x[0]), fit.error[-1] / (x[-1] - x[0])
        away = x[-1] + min(growth, x[-1] - x[0]) - x.mean()
        margin = NINE_OF_TEN * np.sqrt(fit.noise[-1] ** 2 / count + (error * away) ** 2)
        ends += [fit.mean[-1] + slope * away - margin, fit.mean[-1] + slope * away + margin]
        now = float(fit.mean[-1] + slope * (x[-1] - x.mean()))
    return float(min(ends)), float(max(ends)), now


def _kl(run: RunData, series: ScoreSeries, steady: trend.Fit, now: float, high: float) -> float:
    """The KL at the highest score to be expected: a policy's gain grows with √KL at first (Gao et al. 2023, arXiv:2210.10760).

    NaN where the rise so far is not likely real, and where a controller holds the KL.
    """
    kl = run.column("objective/kl")
    kl = kl[np.isfinite(kl)][-NEWEST:]
    held = run.settings_known and run.config.ppo.kl_controller == "adaptive"
    gained = steady.rise[-1]
    if held or not len(kl) or not gained > LIKELY_RISE * steady.error[-1] or kl[-1] <= 0:
        return float("nan")
    return float(max(np.mean(kl) * max(1.0, (max(high - now, 0.0) + gained) / gained) ** 2, kl[-1]))  # what is there is no less likely
