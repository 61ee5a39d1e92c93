"""What a check of the doctor is, the registry of all of them, and how what one says becomes a finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from rlhf_studio.analysis.doctor.recorded import Recorded
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.records import Evidence, Finding, Level
from rlhf_studio.config import Stage

SUPERVISED: tuple[Stage, ...] = ("sft", "reward_model", "dpo")
TRAINING: tuple[Stage, ...] = ("ppo", *SUPERVISED)
EVERY: tuple[Stage, ...] = (*TRAINING, "evaluation")

LEVELS: tuple[Level, ...] = ("note", "warning", "alarm")


@dataclass(frozen=True)
class Course:
    """What a check says of every step of a run.

    Attributes:
        levels: shape (S,); 0 for nothing, then as in :mod:`.series`. Each step's level depends on it and earlier steps only.
        evidence: given the indices of the first and of the last step at the finding's level, what a person can look at.
        title, cause, advice: instead of the check's own, where more is known.
        changes: settings that a fork would try.
        length: for how many steps it had been so when it was first said; a fork goes on from before them.
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
        title: what is the matter, when it finds something.
        rule: the threshold in words and figures.
        cause: where this usually comes from.
        advice: what to do.
        stages: the stages whose runs it looks at.
        course: the check itself, given the run (of PPO a :class:`RunData`); None where the run lacks what it needs.
    """

    name: str
    family: str
    title: str
    rule: str
    cause: str
    advice: str
    stages: tuple[Stage, ...]
    course: Callable[[Any], Course | None]


AGAINST_SETTINGS = {"kl-above-target", "learning-rate-gone", "score-pinned"}
"""Checks that hold a run against its own settings. A log that does not give them leaves these checks nothing to look at."""

CHECKS: dict[str, Check] = {}
"""All checks by name, in the order of the docs. :mod:`.checks` fills it."""


_Function = TypeVar("_Function", bound=Callable[[Any], Course | None])


def check(
    name: str, family: str, *, title: str, rule: str, cause: str, advice: str, stages: tuple[Stage, ...] = ("ppo",)
) -> Callable[[_Function], _Function]:
    """Make a check of a function, and register it."""

    def register(function: _Function) -> _Function:
        CHECKS[name] = Check(name, family, title, rule, cause, advice, stages, function)
        return function

    return register


def courses(run: Recorded) -> dict[str, Course]:
    """What every check of the run's stage says of it, by the check's name; those that have nothing to look at are left out."""
    if not len(run.steps):
        return {}
    own = {name: one for name, one in CHECKS.items() if run.config.stage in one.stages}
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = {name: one.course(run) for name, one in own.items() if run.settings_known or name not in AGAINST_SETTINGS}
    return {name: course for name, course in found.items() if course is not None}


def finding(run: Recorded, one: Check, course: Course) -> Finding | None:
    """What a check says in the end; None when it found nothing at any step."""
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
        check=one.name,
        level=LEVELS[gravest - 1],
        title=course.title or one.title,
        since=int(run.steps[since]),
        threshold=one.rule,
        evidence=course.evidence(since, last_gravest),
        cause=course.cause or one.cause,
        advice=course.advice or one.advice,
        changes=course.changes if run.settings_known else {},
        fork_step=fork_step,
        until=None if last == len(course.levels) - 1 else int(run.steps[last]),
    )


def seen(run: Recorded, metric: str, words: str, digits: int = 3) -> Callable[[int, int], list[Evidence]]:
    """Evidence from one metric: its value when it was first said, and at the last step at which it was so. ``words`` has one ``{}``."""

    def evidence(since: int, last: int) -> list[Evidence]:
        column = run.column(metric)
        places = [since] if since == last else [since, last]
        return [Evidence(words.format(figure(column[at], digits)), step=int(run.steps[at]), metric=metric) for at in places]

    return evidence


def figure(value: float, digits: int = 3) -> str:
    """A number for people: no exponents where it can be helped, no negative zero."""
    if not np.isfinite(value):
        return "not a finite number"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 10 ** max(digits, 3):
        return f"{value:,.0f}" if size < 1e9 else f"{value:.1e}"
    if size < 1e-4:
        return f"{value:.1e}"
    places = max(0, digits - 1 - int(np.floor(np.log10(size))))
    return f"{value:.{places}f}"


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
    text = f"{words.format(figure(float(values[token])))} at the token {tokens.response_pieces[token]!r}"
    return [Evidence(text, step=step, sample=sample, token=token)]
