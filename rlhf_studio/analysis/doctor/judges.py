"""How surely a score or a judge rose or fell: means of windows of steps with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rlhf_studio.analysis import trend
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.series import at_start, filled, window_mean
from rlhf_studio.config.metrics.table import METRICS

WINDOW = 3  # steps; with 64 episodes a step the mean of three is known to about 0.03 of the recipes' gold
SURE_FALL = 5.0  # standard errors of the difference from the best window so far; 5 and not 2, because the best of many is high by chance
MORE_SURE, FROM_STEPS = 0.5, 30  # added for each tenfold of steps after FROM_STEPS: the more windows, the higher the best one by chance
FALL_SHARE = 1 / 3  # of what was gained before; smaller falls are the noise of a policy that moves on
FALL_OF_SPREAD = 0.25  # standard deviations of single scores at the start, where nothing was gained before
SURE_RISE, LIKELY_RISE = trend.SURE, trend.LIKELY  # standard errors: more than chance at any step; likely, but not sure
SURE_AT_END = 3.0  # more than chance at the last planned step, which is looked at once
REAL_RISE = 0.1  # standard deviations of single scores at the start: "nothing learned" may still be sure of a rise of 0.01
FIRST_EPISODES = 32  # "the start" has at least so many episodes
POOLED_PROMPTS = 64  # errors from fewer prompts are uncertain: among many steps, one has a small error by chance
FEWEST_EPISODES = 4  # below this many in a step, the spread between steps stands for the error
FEWEST_DIFFERENCES = 4  # between steps, before their spread stands for an error that a log does not give
USUAL_EPISODES = 64  # in a step, where nothing says how many there are


@dataclass(frozen=True)
class ScoreSeries:
    """Mean score per step with its standard error.

    Attributes:
        name: for people, e.g. ``gold score``.
        metric: the metric it is.
        values: shape (S,); NaN at a step without one, and up to step ``changed_after``, because another judge scored those steps.
        errors: standard errors, shape (S,); NaN where they are unknown.
        spread: standard deviation of single responses' scores at the start.
        first_steps: so many of the steps with a value are the start.
        changed_after: the last step that another judge scored: the reward was changed then, in a fork or a resume. 0 for none.
        by_steps: whether the errors are estimated from the differences between successive steps, because nothing else gives them.
    """

    name: str
    metric: str
    values: np.ndarray
    errors: np.ndarray
    spread: float
    first_steps: int
    changed_after: int = 0
    by_steps: bool = False

    @cached_property
    def known(self) -> np.ndarray:
        """The indices of the steps that have a value."""
        return np.flatnonzero(np.isfinite(self.values))

    @property
    def counts(self) -> np.ndarray:
        """How many steps have had a value so far, at each step, shape (S,)."""
        return np.cumsum(np.isfinite(self.values))

    def carried(self, values: np.ndarray) -> np.ndarray:
        """Numbers of the steps with a value, shape (K,), spread over all steps, shape (S,). Each holds until the next."""
        return np.asarray(np.append(np.nan, values)[self.counts])

    @property
    def start(self) -> float:
        """Mean over the first steps (one, where a step has enough episodes)."""
        return float(np.mean(self.values[self.known][: self.first_steps])) if len(self.known) else float("nan")

    @property
    def start_error(self) -> float:
        """Standard error of :attr:`start`."""
        errors = self.errors[self.known]
        first = errors[np.isfinite(errors)][: self.first_steps]
        return float(np.sqrt(np.sum(first**2)) / len(first)) if len(first) else float("nan")

    def window(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard error) over the newest ``length`` steps with a value, at each step, shapes (S,)."""
        values, errors = self.values[self.known], self.errors[self.known]
        return self.carried(window_mean(values, length)), self.carried(np.sqrt(window_mean(errors**2, length) / length))


def score(run: RunData) -> ScoreSeries:
    """The score, which the policy is trained for.

    The standard error of a step's mean is the recorded one (``objective/scores_se``, from the means of the prompts). Where a step has
    none, it is the spread of the scores over √n with n different prompts: exact with one response for each prompt, and too large rather
    than too small with more, as if all responses to a prompt earned the same.
    """
    spread, errors = run.column("objective/scores_std"), run.column("objective/scores_se")
    prompts = _prompts(run)
    if prompts is not None:
        errors = np.where(np.isfinite(errors), errors, spread / np.sqrt(prompts))
    series = _series(run, "score", "objective/scores", errors)
    single = at_start(spread[series.known], series.first_steps)
    alone = run.settings_known and run.config.ppo.responses_per_prompt == 1
    return series if alone or not np.isfinite(single) else replace(series, spread=single)


def gold(run: RunData) -> ScoreSeries | None:
    """The judge that the policy never sees; None in runs without one.

    Earlier versions recorded its error as if all responses were independent, and none of the score: with k responses to each prompt, which
    may all be alike, √k times that is on the safe side.
    """
    if not run.has("gold/score"):
        return None
    errors, k = run.column("gold/score_se"), run.config.ppo.responses_per_prompt if run.settings_known else 1
    earlier = np.isnan(run.column("objective/scores_se"))
    return _series(run, "gold score", "gold/score", np.where(earlier, errors * np.sqrt(k), errors))


def _prompts(run: RunData) -> int | None:
    """Different prompts in a step: what of its responses is independent. Where the settings are not known, the most of a recorded step."""
    if run.settings_known:
        return run.config.ppo.batch_size // run.config.ppo.responses_per_prompt
    return max((len({row.prompt for row in rows}) for rows in run.responses.values() if rows), default=None)


def between_steps(values: np.ndarray, exact: bool) -> np.ndarray:
    """The standard error of a step's mean from how far successive means lie apart, so far, shape (K,).

    Two successive means with the same error σ differ by √2 σ on average (root mean square), whatever trend they follow, as long as that is
    small from one step to the next; a larger trend makes the error larger, never smaller. With ``exact`` it is NaN until there are
    :data:`FEWEST_DIFFERENCES`.
    """
    between = np.abs(np.diff(values, prepend=values[:1])) / np.sqrt(2)
    sizes = np.arange(1, len(values) + 1)
    if not exact:
        return np.asarray(np.sqrt(np.cumsum(between**2) / sizes))
    errors = np.sqrt(np.cumsum(between**2) / np.maximum(sizes - 1, 1))
    errors[:FEWEST_DIFFERENCES] = np.nan
    return np.asarray(errors)


def pooled(errors: np.ndarray, length: int) -> np.ndarray:
    """Root mean square of the newest ``length`` standard errors that are known, at the first steps of fewer; NaN stays. Shape (K,)."""
    means = errors.copy()
    known = errors[np.isfinite(errors)]
    sums = np.concatenate([np.zeros(1), np.cumsum(known**2)])
    ends = np.arange(1, len(known) + 1)
    begins = np.maximum(0, ends - length)
    means[np.isfinite(errors)] = np.sqrt((sums[ends] - sums[begins]) / (ends - begins))
    return means


def _changed_after(run: RunData, metric: str) -> int:
    """The last step that was scored with another reward than the newest one; 0 for none. Gold has a setting of its own."""
    own = [step for step, setting in run.reward_changes if metric == "gold/score" or setting != "reward.gold"]
    return max((step for step in own if len(run.steps) and step < run.steps[-1]), default=0)


def _series(run: RunData, name: str, metric: str, errors: np.ndarray) -> ScoreSeries:
    prompts, after = _prompts(run), _changed_after(run, metric)
    values = np.where(run.steps > after, run.column(metric), np.nan)
    known = np.isfinite(values)
    there = errors[known]
    first = 1 if prompts is None else min(10, max(1, int(np.ceil(FIRST_EPISODES / prompts))))
    few = prompts is not None and prompts < FEWEST_EPISODES
    by_steps = few or not np.isfinite(there).any()
    if by_steps:
        there = between_steps(values[known], exact=not few)
    elif prompts is not None:
        there = pooled(there, -(-POOLED_PROMPTS // prompts))
    errors = np.full(len(values), np.nan)
    errors[known] = filled(there)
    sure = there[np.isfinite(there)][:first]
    spread = float(sure.mean() * np.sqrt(prompts or USUAL_EPISODES)) if len(sure) else float("nan")
    return ScoreSeries(name, metric, values, errors, spread, first, after, by_steps)


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


def fall(series: ScoreSeries) -> Fall:
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
    needed = SURE_FALL + MORE_SURE * np.log10(np.maximum(series.counts / FROM_STEPS, 1.0))
    sure = drop > needed * np.sqrt(error**2 + best_error**2)
    material = drop > np.maximum(FALL_SHARE * gain, FALL_OF_SPREAD * series.spread)
    return Fall(best, now, best_at, sure & material)


def last_means(values: np.ndarray) -> np.ndarray:
    """At each step the mean over the last tenth of the steps so far, at least one. Shape (S,)."""
    count = np.arange(1, len(values) + 1)
    size = np.maximum(1, count // 10)
    total = np.concatenate([[0.0], np.cumsum(np.nan_to_num(values))])
    known = np.concatenate([[0], np.cumsum(np.isfinite(values))])
    number = known[count] - known[count - size]
    return np.where(number > 0, (total[count] - total[count - size]) / np.maximum(number, 1), np.nan)


def rise(series: ScoreSeries) -> tuple[np.ndarray, np.ndarray]:
    """(gain of the last tenth over the start, its standard error) at each step, shapes (S,). Steps without a value do not count."""
    values, errors = series.values[series.known], series.errors[series.known]
    size = np.maximum(1, np.arange(1, len(values) + 1) // 10)
    gain, error = last_means(values) - series.start, np.sqrt(last_means(errors**2) / size + series.start_error**2)
    return series.carried(gain), series.carried(error)


def sureness(series: ScoreSeries) -> tuple[np.ndarray, np.ndarray]:
    """(how surely it rises, how surely it falls) at each step, in standard errors, shapes (S,); a fall is negative. NaN where not known.

    The surer of two tests: the trend over all steps (:func:`rlhf_studio.analysis.trend.trend`), and the last tenth against the start, which
    sees a score that jumps in the first steps and stays. The latter only where the error of a step is known from its responses.
    """
    errors = None if series.by_steps else series.errors[series.known]
    rises, falls = (series.carried(part) for part in trend.trend(series.values[series.known], errors))
    if series.by_steps:
        return rises, falls
    gain, error = rise(series)
    with np.errstate(invalid="ignore", divide="ignore"):
        ends = np.where((series.counts >= trend.FEWEST) & (error > 0), gain / error, np.nan)
    return np.fmax(rises, ends), np.fmin(falls, ends)


def risen(series: ScoreSeries, sure: float = SURE_RISE) -> np.ndarray:
    """Whether it rises by more than chance, and its last tenth is above the start by more than next to nothing, at each step, (S,)."""
    is_risen: np.ndarray = (sureness(series)[0] > sure) & (rise(series)[0] > REAL_RISE * series.spread)
    return is_risen


def needed(run: RecordedRun) -> float:
    """How many standard errors make a rise at the newest step more than chance."""
    return SURE_AT_END if run.over else SURE_RISE


def directions(run: RecordedRun) -> dict[str, int]:
    """Where each metric that a tile shows goes, by the rules of the verdict: 1 up, -1 down, 0 for nothing beyond chance.

    Up is :func:`risen`, down the same of the values turned round; a gold score that fell from its best (:func:`fall`) goes down, wherever
    it began. A metric whose error is unknown is left out. For a metric that is not judged the error comes from
    the differences between its steps.
    """
    arrows = {}
    for name in (metric.name for metric in METRICS if metric.tile and run.has(metric.name)):
        series = _judged(run, name) or _plain(run, name)
        if np.isfinite(rise(series)[1][-1]):
            sure = needed(run) if name == "objective/scores" else SURE_RISE
            fallen = risen(replace(series, values=-series.values), sure)[-1] or (name == "gold/score" and fall(series).surely[-1])
            arrows[name] = -1 if fallen else int(risen(series, sure)[-1])
    return arrows


def _judged(run: RecordedRun, name: str) -> ScoreSeries | None:
    """The series by which the verdict judges a metric; None for one that it does not judge."""
    judge = {"objective/scores": score, "gold/score": gold}.get(name)
    return judge(run) if judge and isinstance(run, RunData) else None


def _plain(run: RecordedRun, name: str) -> ScoreSeries:
    values = run.column(name)
    known, errors = np.isfinite(values), np.full(len(values), np.nan)
    errors[known] = filled(between_steps(values[known], exact=True))
    return ScoreSeries(name, name, values, errors, spread=0.0, first_steps=WINDOW, by_steps=True)
