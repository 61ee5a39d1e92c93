"""From what a trial measured to what will come of the night, in sentences, and to settings that would go better: the one rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite, isnan, sqrt
from typing import Any

from rlhf_studio.analysis.doctor.bounds import MATTERS
from rlhf_studio.analysis.doctor.checks.kl import FAR_KL
from rlhf_studio.analysis.doctor.checks.machine import NEAR_LIMIT
from rlhf_studio.analysis.doctor.checks.optimisation import HARDLY_MOVE
from rlhf_studio.analysis.doctor.expectation import NINE_OF_TEN
from rlhf_studio.analysis.doctor.judges import SURE_AT_END
from rlhf_studio.analysis.doctor.remedies import less_memory
from rlhf_studio.analysis.doctor.run_data import NO_SPREAD
from rlhf_studio.analysis.trial.figures import TrialFigures
from rlhf_studio.config import RunConfig, StageConfig, fitting
from rlhf_studio.config.stability import bolder, gentler
from rlhf_studio.config.usual import other_rate
from rlhf_studio.language import N_, _
from rlhf_studio.units import duration, format_bytes, percent

MOST_CUT = 0.5  # share of the answers
SEEN = 32  # answers of which none ended: a longer limit is no cure then
LONGEST = 8192  # tokens, the setting's own limit
ABOUT_NONE = 0.05  # nats
OF_SCHEDULE = {"constant": 1.0, "linear": 1 / 3, "cosine": 3 / 8}
"""Mean of the squared rate over a run, as a share of the squared full rate: ∫(1 − x)² and ∫(½ + ½ cos πx)² from 0 to 1."""
FALLING = {
    "constant": "",
    "linear": N_(", and a rate that falls to 0 in a line leaves 1/3 of that"),
    "cosine": N_(", and a rate that falls to 0 along a cosine leaves 3/8 of that"),
}
"""The same in words."""


@dataclass(frozen=True)
class Night:
    """How long the run may take.

    Attributes:
        seconds: from now on.
        until: in words, such as ``until 07:00``.
    """

    seconds: float
    until: str


@dataclass(frozen=True)
class Correction:
    """One setting that would go better, and why, as a part of a sentence."""

    setting: str
    old: Any
    new: Any
    why: str


@dataclass(frozen=True)
class Judgement:
    """What a trial says.

    Attributes:
        headline: the one sentence to read.
        night: what will come of the night: sentences.
        seen: what was measured: sentences.
        corrections: settings, at most one row for each; each holds by itself.
        together: what to set to take them all, by setting: with longer answers as many steps as then fit.
    """

    headline: str
    night: list[str]
    seen: list[str]
    corrections: list[Correction]
    together: dict[str, Any]


def night_of(config: StageConfig, seconds: float, until: str) -> Night:
    """The time that a run has: ``seconds`` from now, or its own limit where that is shorter."""
    limit = config.engine.max_minutes
    if limit and 60 * limit < seconds:
        return Night(60 * limit, _("in the {limit:g} minutes of engine.max_minutes").format(limit=limit))
    return Night(seconds, until)


def judge(trial: TrialFigures, config: StageConfig, night: Night, most_tokens: int | None = None) -> Judgement:
    """What will come of a run with these settings.

    Args:
        most_tokens: the longest answer that the model has room for; None for no limit.
    """
    fits = _fitting(trial.seconds, night)
    longer = _length(trial, config, night, most_tokens)
    corrections = [*_rate(trial, config), *_memory(trial, config), *longer, *_steps(trial, config, night)]
    slower = [replace(trial, seconds=_with_longer(trial, row.old, row.new)) for row in longer]
    after = [row for one in slower for row in _steps(one, config, night)]
    steps = min(trial.planned or fits, fits)
    to_come, seen = [_time(trial, fits, night)], [_memory_held(trial)]
    if isinstance(config, RunConfig):
        to_come += [_kl(trial, config, steps), _noise(trial, config, steps)]
        seen += [_scores(trial), _answers(trial, config), _movement(trial)]
    elif all(map(isfinite, trial.loss)):
        seen.append(
            _("The loss went from {loss:.3g} to {loss_2:.3g} in {steps} steps.").format(
                loss=trial.loss[0], loss_2=trial.loss[1], steps=trial.steps
            )
        )
    together = {row.setting: row.new for row in (*corrections, *after)}
    headline = _headline(trial, corrections, fits, night)
    return Judgement(headline, list(filter(None, to_come)), list(filter(None, seen)), corrections, together)


def _headline(trial: TrialFigures, corrections: list[Correction], fits: int, night: Night) -> str:
    if trial.spread <= NO_SPREAD:
        return _("It cannot learn: all answers of the first step got the same score, {score:.3g}.").format(score=trial.score)
    if not fits:
        return _("Not one step would be done {until}.").format(until=night.until)
    if trial.unstable:
        return _("Not stable: {unstable}.").format(unstable=trial.unstable)
    if corrections:
        what = _("one setting") if len(corrections) == 1 else _("{count} settings").format(count=len(corrections))
        return _("It runs; {what} would go better.").format(what=what)
    return _("It can start as it is.")


# --- corrections ----------------------------------------------------------------------------------------------------------------


def _rate(trial: TrialFigures, config: StageConfig) -> list[Correction]:
    """Lower where the trial is not stable, higher where nothing moves."""
    if trial.unstable:
        return [_other_rate(trial, config, gentler, trial.unstable)]
    tokens = config.generation.response_length if isinstance(config, RunConfig) else 1
    if trial.moved < HARDLY_MOVE * tokens and trial.spread > NO_SPREAD:
        why = _("an update moved the policy by {moved:.1g} nats an answer, which is next to nothing").format(moved=trial.moved)
        return [_other_rate(trial, config, bolder, why)]
    return []


def _other_rate(trial: TrialFigures, config: StageConfig, choose: Callable[[float, float | None], float], why: str) -> Correction:
    ((setting, new),) = other_rate(config, trial.weights, choose, trial.examples).items()
    return Correction(setting, getattr(config, config.stage).learning_rate, new, why)


def _memory(trial: TrialFigures, config: StageConfig) -> list[Correction]:
    if not trial.peak > NEAR_LIMIT * trial.limit:
        return []
    why = _("{peak} of {limit} were held").format(peak=format_bytes(trial.peak), limit=format_bytes(trial.limit))
    changed = less_memory(config).items()
    return [Correction(name, getattr(getattr(config, name.split(".")[0]), name.split(".")[1]), value, why) for name, value in changed]


def _length(trial: TrialFigures, config: StageConfig, night: Night, most_tokens: int | None) -> list[Correction]:
    """Twice the limit where most answers are cut; not where that would leave too few steps, nor where none ends at all."""
    if not isinstance(config, RunConfig) or not 1 - trial.ended > MOST_CUT or _none_ends(trial):
        return []
    old = config.generation.response_length
    new = min(2 * old, LONGEST if most_tokens is None else most_tokens)
    if new <= old or night.seconds * old / new < min(trial.planned, fitting.ENOUGH_STEPS) * trial.seconds:
        return []
    each = _with_longer(trial, old, new)
    cost = _("a step would take about {each}, and {each_2:,} fit {until}").format(
        each=duration(each), each_2=_fitting(each, night), until=night.until
    )
    why = _("{value} of the answers were cut at {old} tokens; {cost}").format(value=percent(1 - trial.ended), old=old, cost=cost)
    return [Correction("generation.response_length", old, new, why)]


def _none_ends(trial: TrialFigures) -> bool:
    return trial.ended == 0 and trial.answers >= SEEN


def _steps(trial: TrialFigures, config: StageConfig, night: Night) -> list[Correction]:
    fits = _fitting(trial.seconds, night)
    if not 0 < fits < trial.planned:
        return []
    why = _("{planned:,} steps of {seconds} do not fit {until}").format(
        planned=trial.planned, seconds=duration(trial.seconds), until=night.until
    )
    rows = [Correction(config.steps_setting, config.planned_steps, fits, why)]
    warmup, section = fitting.warm_up(fits), getattr(config, config.stage)
    if section.warmup_steps > max(1, warmup.value):
        rows.append(Correction(f"{config.stage}.warmup_steps", section.warmup_steps, warmup.value, warmup.why))
    return rows


def _with_longer(trial: TrialFigures, old: int, new: int) -> float:
    """Seconds of a step with a longer limit, of which most answers would use all."""
    return trial.seconds * new / old


def _fitting(seconds: float, night: Night) -> int:
    """How many steps of so many seconds the night has room for."""
    return int(night.seconds / seconds) if seconds > 0 else 0


# --- sentences ------------------------------------------------------------------------------------------------------------------


def _time(trial: TrialFigures, fits: int, night: Night) -> str:
    longest = [f"{word} {duration(time)}" for word, time in list(trial.phases.items())[:2]]
    parts = f" ({', '.join(longest)})" if longest else ""
    text = _("A step took {seconds}{parts}: {fits:,} steps fit {until}").format(
        seconds=duration(trial.seconds), parts=parts, fits=fits, until=night.until
    )
    if 0 < trial.planned <= fits:
        text += _("; the {planned:,} planned take {value}").format(planned=trial.planned, value=duration(trial.planned * trial.seconds))
    return f"{text}."


def _memory_held(trial: TrialFigures) -> str:
    if not isfinite(trial.peak):
        return ""
    of = _(", of {bytes}").format(bytes=format_bytes(trial.limit)) if isfinite(trial.limit) else ""
    return _("At most {peak} of memory was held{of}.").format(peak=format_bytes(trial.peak), of=of)


def _scores(trial: TrialFigures) -> str:
    if not isfinite(trial.spread):
        return _("No answer was scored.")
    if trial.spread <= NO_SPREAD:
        return _("Where all answers earn the same, no answer is better than another: look at the reward with texts of your own.")
    return _("The model's own answers scored {score:.3g} on average, with a spread of {spread:.3g}.").format(
        score=trial.score, spread=trial.spread
    )


def _answers(trial: TrialFigures, config: RunConfig) -> str:
    if not isfinite(trial.ended):
        return ""
    text = _("{ended} of {answers:,} answers ended by themselves").format(ended=percent(trial.ended), answers=trial.answers)
    if _none_ends(trial):
        return _("{text}: the model may not know how to end one, or {response_length} tokens are far too few.").format(
            text=text, response_length=config.generation.response_length
        )
    return (
        _("{text}; the others were cut at {response_length} tokens.").format(text=text, response_length=config.generation.response_length)
        if trial.ended < 0.995
        else f"{text}."
    )


def _movement(trial: TrialFigures) -> str:
    left = {0: _("no minibatch was"), 1: _("1 minibatch was")}.get(
        trial.left_out, _("{count} minibatches were").format(count=trial.left_out)
    )
    if trial.steps < 2:
        return _("{capitalize} left out.").format(capitalize=left.capitalize())
    kl = "about 0" if abs(trial.kl) < ABOUT_NONE else f"{trial.kl:.3g}"
    updates = "1 update" if trial.steps == 2 else _("{count} updates").format(count=trial.steps - 1)
    return _("After {updates} the KL was {kl} nats an answer; {left} left out.").format(updates=updates, kl=kl, left=left)


def _kl(trial: TrialFigures, config: RunConfig, steps: int) -> str:
    """What the KL may be in the end: a guess."""
    if trial.unstable or not steps or not _pace(trial) > 0:
        return ""
    kl, limit = expected_kl(trial, config, steps)
    if config.ppo.kl_controller == "adaptive" and kl >= config.ppo.kl_target:
        return _("After {steps:,} steps the KL may be about {kl_target:.2g} nats an answer, the target that the controller holds.").format(
            steps=steps, kl_target=config.ppo.kl_target
        )
    if limit < kl:
        why = _("there its price ({kl_coef:g}) balances the spread of the scores").format(kl_coef=config.ppo.kl_coef)
    else:
        what = _("an update moved the policy") if isnan(trial.grew) else _("it grew with an update")
        why = _("{what} by {trial:.2g} nats an answer at the full rate; {steps:,} of these are {value}").format(
            what=what, trial=_pace(trial), steps=steps, value=_short(_pace(trial) * steps)
        )
        why += _(FALLING[config.ppo.lr_schedule])
    text = _("about {kl} nats an answer, a guess: {why}").format(kl=_short(min(kl, limit)), why=why)
    far = _(". That is far from the model that the reward was made for") if min(kl, limit) > FAR_KL else ""
    return _("After {steps:,} steps the KL may be {text}{far}.").format(steps=steps, text=text, far=far)


def expected_kl(trial: TrialFigures, config: RunConfig, steps: int) -> tuple[float, float]:
    """(the KL of so many steps at the trial's pace, the most that the KL's price allows), nats per answer.

    With the price β the best policy multiplies the reference by exp(score / β). Scores that are normal with the spread σ then have a KL of
    σ² / (2 β²). Infinity without a price, or where scores are scaled before they are paid.
    """
    price = config.ppo.kl_coef if config.reward.scaling == "none" and config.ppo.kl_controller == "fixed" else 0.0
    most = (trial.spread / price) ** 2 / 2 if price > 0 else float("inf")
    return _pace(trial) * steps * OF_SCHEDULE[config.ppo.lr_schedule], most


def _pace(trial: TrialFigures) -> float:
    """Nats per answer and update: as the KL grew, or where that is no more than chance, as far as an update moved the policy."""
    return trial.moved if isnan(trial.grew) else trial.grew


def _noise(trial: TrialFigures, config: RunConfig, steps: int) -> str:
    """Which rise can be told from chance: see :func:`~rlhf_studio.analysis.doctor.expectation.steps_if_it_rises`."""
    if steps < 2 or not trial.spread > NO_SPREAD:
        return ""
    shows = (SURE_AT_END + NINE_OF_TEN) * sqrt(12 / (steps * config.ppo.batch_size))
    rise = f"{shows * trial.spread:.2g}"
    answers = _("In {steps:,} steps of {batch_size} answers").format(steps=steps, batch_size=config.ppo.batch_size)
    if shows <= MATTERS:
        return _("{answers} even a rise of {rise} points would show, which is small beside the spread.").format(answers=answers, rise=rise)
    if shows <= 1:
        return _("{answers} a rise of {rise} points would show; a smaller one cannot be told from chance.").format(
            answers=answers, rise=rise
        )
    return _("{answers} only a rise of {rise} points would show, more than the spread of the answers: these are too few to tell.").format(
        answers=answers, rise=rise
    )


def _short(value: float) -> str:
    """In two digits: ``4``, ``9.3``, ``1,700``."""
    return f"{float(f'{value:.2g}'):,g}"
