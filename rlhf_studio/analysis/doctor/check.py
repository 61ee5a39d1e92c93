"""What a check of the doctor is, the registry of all checks, and how the result of a check becomes a finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.records import Evidence, Finding, Level
from rlhf_studio.config import Stage
from rlhf_studio.language import _

SUPERVISED: tuple[Stage, ...] = ("sft", "reward_model", "dpo")
TRAINING: tuple[Stage, ...] = ("ppo", *SUPERVISED)
EVERY: tuple[Stage, ...] = (*TRAINING, "evaluation")

LEVELS: tuple[Level, ...] = ("note", "warning", "alarm")


@dataclass(frozen=True)
class Course:
    """What a check says of every step of a run.

    Attributes:
        levels: shape (S,); 0 for nothing, then as in :mod:`.series`. Each step's level depends on it and earlier steps only.
        evidence: called with the indices of the first and the last step at the finding's level; gives what a person can look at.
        title, cause, advice: replace the check's own texts where more is known; empty keeps them.
        changes: settings that a fork would try.
        length: how many steps the check looked at before it reported; a fork starts before them.
        from_start: the settings were wrong from the beginning, so that a fork begins there.
    """

    levels: np.ndarray
    evidence: Callable[[int, int], list[Evidence]]
    title: str = ""
    cause: str = ""
    advice: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    length: int = 1
    from_start: bool = False


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: stable and short.
        family: the file that it is in, in words.
        title: what is wrong, in a few words.
        rule: the threshold in words and figures.
        cause: where this usually comes from.
        advice: what to do.
        stages: the stages whose runs it looks at.
        course: the check itself, called with the run (a :class:`RunData` for PPO); None where the run lacks what it needs.
    """

    name: str
    family: str
    title: str
    rule: str
    cause: str
    advice: str
    stages: tuple[Stage, ...]
    course: Callable[[Any], Course | None]


AGAINST_SETTINGS = {"unstable-start", "kl-above-target", "learning-rate-gone", "score-pinned"}
"""Checks that compare a run with its own settings. They are left out for a log that does not give the settings."""

CHECKS: dict[str, Check] = {}
"""All checks by name, in the order of the docs. :mod:`.checks` fills it."""


_Function = TypeVar("_Function", bound=Callable[[Any], Course | None])


def check(
    name: str, family: str, *, title: str, rule: str, cause: str, advice: str, stages: tuple[Stage, ...] = ("ppo",)
) -> Callable[[_Function], _Function]:
    """Turn a function into a check, and register it."""

    def register(function: _Function) -> _Function:
        CHECKS[name] = Check(name, family, title, rule, cause, advice, stages, function)
        return function

    return register


def courses(run: RecordedRun) -> dict[str, Course]:
    """The result of every check of the run's stage, by the check's name. Checks whose data the run lacks are left out."""
    if not len(run.steps):
        return {}
    own = {name: registered for name, registered in CHECKS.items() if run.config.stage in registered.stages}
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        results = {name: registered.course(run) for name, registered in own.items() if run.settings_known or name not in AGAINST_SETTINGS}
    return {name: course for name, course in results.items() if course is not None}


def finding(run: RecordedRun, registered: Check, course: Course) -> Finding | None:
    """The finding of a check, from its result at every step; None where no step has a level above 0."""
    gravest = int(course.levels.max(initial=0))
    if gravest == 0:
        return None
    since = int(np.argmax(course.levels == gravest))
    last = int(np.flatnonzero(course.levels)[-1])
    last_gravest = int(np.flatnonzero(course.levels == gravest)[-1])
    fork_step = None
    if course.changes and not course.from_start:
        latest = int(run.steps[since]) - course.length
        fork_step = max((step for step in run.checkpoints if 0 < step <= latest), default=None)
    return Finding(
        check=registered.name,
        level=LEVELS[gravest - 1],
        title=_(course.title or registered.title),
        since=int(run.steps[since]),
        threshold=_(registered.rule),
        evidence=course.evidence(since, last_gravest),
        cause=_(course.cause or registered.cause),
        advice=_(course.advice or registered.advice),
        changes=course.changes if run.settings_known else {},
        fork_step=fork_step,
        until=None if last == len(course.levels) - 1 else int(run.steps[last]),
    )


def metric_evidence(run: RecordedRun, metric: str, words: str, digits: int = 3) -> Callable[[int, int], list[Evidence]]:
    """Evidence from one metric: its values at the finding's first and last step. ``words`` has one ``{}`` for the value."""

    def evidence(since: int, last: int) -> list[Evidence]:
        column = run.column(metric)
        indices = [since] if since == last else [since, last]
        return [Evidence(words.format(figure(column[at], digits)), step=int(run.steps[at]), metric=metric) for at in indices]

    return evidence


def figure(value: float, digits: int = 3) -> str:
    """A number for people: without an exponent if possible, and never a negative zero."""
    if not np.isfinite(value):
        return _("not a finite number")
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 10 ** max(digits, 3):
        return f"{value:,.0f}" if size < 1e9 else f"{value:.1e}"
    if size < 1e-4:
        return f"{value:.1e}"
    decimals = max(0, digits - 1 - int(np.floor(np.log10(size))))
    return f"{value:.{decimals}f}"


def worst_token(run: RunData, step: int, quantity: str, words: str) -> list[Evidence]:
    """The recorded token of a step where a quantity is furthest from 0; none where tokens were not recorded. ``words`` has ``{}``."""
    rows = run.responses.get(step) or []
    if run.reader is None or not rows:
        return []
    sample = max(rows, key=lambda row: abs(row.kl) if row.kl is not None and np.isfinite(row.kl) else 0.0).sample
    tokens = run.reader.rollout(step, sample).tokens
    values = None if tokens is None else np.nan_to_num(tokens.arrays.get(quantity, np.zeros(0)))
    if tokens is None or values is None or not len(values):
        return []
    token = int(np.argmax(np.abs(values)))
    value = words.format(figure(float(values[token])))
    text = _("{value} at the token {token!r}").format(value=value, token=tokens.response_pieces[token])
    return [Evidence(text, step=step, sample=sample, token=token)]
