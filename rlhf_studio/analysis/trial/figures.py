"""What the steps of a trial measured, read from its run folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, nan, sqrt
from statistics import fmean, median

from rlhf_studio.analysis.doctor.checks.machine import memory_limit
from rlhf_studio.analysis.doctor.recorded import RecordedRun, why_unstable
from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.runs.pace import STEP_TIME, step_seconds

PHASES = {
    "time/rollout": "writing",
    "time/score": "scoring",
    "time/reference": "reference",
    "time/update": "learning",
}

SURE = 2.0  # standard errors


@dataclass(frozen=True)
class TrialFigures:
    """Of a trial's steps. What a stage does not have, or a trial was too short for, is NaN.

    Attributes:
        seconds: of a step, as everywhere (:func:`rlhf_studio.runs.pace.step_seconds`).
        phases: seconds of each phase of PPO, by its word, the longest first.
        peak, limit: bytes: the most memory held, and what there is.
        answers: whose ends were counted: of all steps, or of the first alone where the trial is not stable, which spoils later ones.
        score, spread: mean and standard deviation of the scores of the model's own answers, in the first step, points.
        kl: mean KL to the reference in the last step, nats per answer.
        moved: KL between the policy before and after an update at the full rate, nats per answer.
        grew: the KL to the reference, with each update at the full rate, nats per answer; NaN where it is no more than chance.
        ended: share of the answers that ended by themselves.
        left_out: minibatches, for their ratio or for a number that is not finite.
        unstable: why the trial is not stable; empty where it is.
        loss: of the first and of the last step, in stages that learn from examples.
        planned: steps of the whole run.
        weights: of the model that learns, and ``examples`` to learn from; None where that is not known.
    """

    steps: int
    seconds: float
    phases: dict[str, float] = field(default_factory=dict)
    peak: float = nan
    limit: float = nan
    answers: int = 0
    score: float = nan
    spread: float = nan
    kl: float = nan
    moved: float = nan
    grew: float = nan
    ended: float = nan
    left_out: int = 0
    unstable: str = ""
    loss: tuple[float, float] = (nan, nan)
    planned: int = 0
    weights: int | None = None
    examples: int | None = None


def figures_of(run: RecordedRun, config: StageConfig) -> TrialFigures | None:
    """What a trial of ``config`` measured; None before its first step is done."""
    metrics = [{name: float(column[at]) for name, column in run.metrics.items()} for at in range(len(run.steps))]
    if not metrics:
        return None
    why = next(filter(None, why_unstable(run, config)), "")
    own = metrics[:1] if why else metrics
    loss = f"{config.stage}/loss"
    later = metrics[1:] or metrics
    phases = {word: _median(later, name) for name, word in PHASES.items()}
    return TrialFigures(
        steps=len(metrics),
        seconds=step_seconds(run.column(STEP_TIME)) or nan,
        phases=dict(sorted(((word, time) for word, time in phases.items() if time > 0), key=lambda pair: -pair[1])),
        peak=metrics[-1].get("memory/peak", nan),
        limit=memory_limit(run) or nan,
        answers=len(own) * (config.ppo.batch_size if isinstance(config, RunConfig) else 0),
        score=metrics[0].get("objective/scores", nan),
        spread=metrics[0].get("objective/scores_std", nan),
        kl=metrics[-1].get("objective/kl", nan),
        moved=_moved(config, metrics),
        grew=_grew(config, metrics),
        ended=_ended(config, own),
        left_out=sum(event.data.get("minibatches", 0) for event in run.step_events),
        unstable=why,
        loss=(metrics[0].get(loss, nan), metrics[-1].get(loss, nan)),
        planned=run.total_steps,
        weights=run.weights,
        examples=run.examples,
    )


def _moved(config: StageConfig, metrics: list[dict[str, float]]) -> float:
    """Nats per answer that one update moves the policy at the full rate: the squared log-ratio grows with the square of the rate."""
    full = getattr(config, config.stage).learning_rate
    known = [values for values in metrics if values.get("lr", 0) > 0 and isfinite(values.get("policy/approxkl_avg", nan))]
    moves = [values["policy/approxkl_avg"] * values["tokens/response_length"] * (full / values["lr"]) ** 2 for values in known]
    return median(moves[len(moves) // 2 :]) if moves else nan


def _grew(config: StageConfig, metrics: list[dict[str, float]]) -> float:
    """A mean over n answers is off by √(2 KL / n): a log-ratio scatters so. What is below twice that says nothing."""
    if not isinstance(config, RunConfig):
        return nan
    kl = metrics[-1].get("objective/kl", nan)
    updates = sum((values.get("lr", 0.0) / config.ppo.learning_rate) ** 2 for values in metrics[:-1])  # the last one moves the next step
    sure = updates > 0 and kl > SURE * sqrt(2 * max(kl, 0) / config.ppo.batch_size)
    return kl / updates if sure else nan


def _ended(config: StageConfig, metrics: list[dict[str, float]]) -> float:
    """NaN where nothing but its length ends an answer."""
    cut = [values["tokens/cut_off"] for values in metrics if isfinite(values.get("tokens/cut_off", nan))]
    stops = isinstance(config, RunConfig) and config.generation.stop_tokens
    return 1 - fmean(cut) if cut and stops else nan


def _median(rows: list[dict[str, float]], name: str) -> float:
    known = [row[name] for row in rows if isfinite(row.get(name, nan))]
    return median(known) if known else nan
