"""How large the rise of a score can be at most, by its own noise and by how far the policy has moved.

"Nothing learned" is a statement, not what remains when a rise is not sure: it is made only where a rise that matters is excluded.
"""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis import trend
from rlhf_studio.analysis.doctor.judges import ScoreSeries
from rlhf_studio.analysis.doctor.run_data import RunData

MATTERS = 0.25  # standard deviations of single scores: a response is then better than one of the start in 57 of 100 cases
EXCLUDED = 1.645  # standard errors above the estimate: 5 % of normal errors lie beyond
EXCLUDED_SO_FAR = 2.5  # the same while a run goes on, which is looked at again and again
KL_STEPS = 3  # the largest KL of so many steps counts
KL_NOISE = 2.0  # times the measured KL: the estimator k3 is never negative, and its mean over a step seldom half of the truth


def by_scores(series: ScoreSeries, sure: float = EXCLUDED) -> tuple[np.ndarray, np.ndarray]:
    """(least, most) that the score can have risen over the steps so far, in points, at each step, shapes (S,); NaN where not known.

    The estimate ± ``sure`` standard errors, of the regression on each curve of :mod:`rlhf_studio.analysis.trend`: the lowest and
    the highest of the three, because nobody knows whether a rise came early, steadily or late.
    """
    fits = trend.fits(series.values[series.known], None if series.by_steps else series.errors[series.known])
    least = np.min([fit.rise - sure * fit.error for fit in fits], axis=0)
    most = np.max([fit.rise + sure * fit.error for fit in fits], axis=0)
    return series.carried(least), series.carried(most)


def by_kl(run: RunData, series: ScoreSeries) -> np.ndarray:
    """The most that the score can have risen, in points, by how near the policy still is to its start, at each step, shape (S,).

    Among all policies with a KL of k nats to another one, the highest mean score is √(2 k) standard deviations above that one's, for small
    k (Donsker and Varadhan 1983; tilting the policy with the score reaches it, to first order in √k). From the first policy to the
    reference and from there to the newest one these are two such ways. Infinite where the KL is not known, and where the reference follows
    the policy.
    """
    kl = np.abs(run.column("objective/kl_k3"))
    known = np.flatnonzero(np.isfinite(kl) & (run.steps > series.changed_after))
    if not len(known) or (run.settings_known and run.config.ppo.reference_ema > 0):
        return np.full(len(kl), np.inf)
    now = np.array([kl[max(0, at + 1 - KL_STEPS) : at + 1].max() for at in range(len(kl))])
    ways = np.sqrt(2 * KL_NOISE * kl[known[0]]) + np.sqrt(2 * KL_NOISE * now)
    return np.where(np.isfinite(ways), series.spread * ways, np.inf)


def excluded(run: RunData, series: ScoreSeries) -> np.ndarray:
    """Whether a rise that matters is excluded, at each step, shape (S,); also where all scores so far are the same."""
    most = by_scores(series, EXCLUDED_SO_FAR)[1]
    if run.over:
        most[-1] = by_scores(series)[1][-1]
    most = np.fmin(most, by_kl(run, series))
    values = series.values[series.known]
    same = np.maximum.accumulate(values) - np.minimum.accumulate(values) <= trend.NO_NOISE
    is_excluded: np.ndarray = (most < MATTERS * series.spread) | (series.carried(same.astype(float)) == 1)
    return is_excluded
