"""The moments of a run that matter, each with one sentence from its numbers. Every one of them comes from a rule of the doctor's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor import judges
from rlhf_studio.analysis.doctor.check import figure
from rlhf_studio.analysis.doctor.phrases import SURE, Rising
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.series import streak
from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.analysis.records import OF_SETTINGS, Finding
from rlhf_studio.config.live import LIVE_SETTINGS
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.language import N_, _, pgettext
from rlhf_studio.units import score_text

MOST_MOMENTS, MOST_CHECKPOINTS = 8, 40
KL_STEPS = 2
"""Steps in a row above a limit before it counts as passed: one step alone may be above it by chance."""
USUAL_KL = next(metric.usual[1] for metric in METRICS if metric.name == "objective/kl" and metric.usual)
QUIET_STEPS, QUIET_PARTS = 12, 3
"""A stretch without a moment is long with more steps than the first, and than this part of all steps."""
CURVES = {N_("score"): "objective/scores", N_("gold"): "gold/score", "KL": "objective/kl"}
CLIPPING = ("clip-fraction-high", "steps-too-large")
ORDER = ("gold_turns", "kl", "alarm", "takes_over", "score", "clipping", "phrase", "settings")
"""What stays where there are more than :data:`MOST_MOMENTS`, the most telling first."""
FOOLED = N_("The judge is fooled from here")
"""The moment that people look for has a name, which stands beside its mark."""
TAKEN_OVER = {
    "ends": N_("“{text}” now ends {counts}."),
    "opens": N_("“{text}” now opens {counts}."),
    "is in": N_("“{text}” is now in {counts}."),
}
SPREADS = {
    "ends": N_("“{text}” spreads: it ends {counts}."),
    "opens": N_("“{text}” spreads: it opens {counts}."),
    "is in": N_("“{text}” spreads: it is in {counts}."),
}

Moment = dict[str, Any]
"""``step``, ``kind``, ``sentence``; and ``name`` where it has one."""


def moments_of(run: RunData, findings: Sequence[Finding]) -> list[Moment]:
    """The moments of a run, ascending by step; ``findings`` are the doctor's of the same run."""
    with np.errstate(invalid="ignore", divide="ignore"):
        kl = [*_kl(run)]
        told = (*CLIPPING, "kl-exploding") if kl else CLIPPING  # alarms that have a moment of another kind
        found = [*_gold_turns(run, findings), *_phrases(run), *kl, *_score(run), *_other_findings(findings, told), *_settings(run)]
    telling = sorted(found, key=lambda moment: (ORDER.index(moment["kind"]), moment["step"]))[:MOST_MOMENTS]
    renamed = [moment | {"kind": "phrase"} if moment["kind"] == "takes_over" else moment for moment in telling]
    return sorted(renamed, key=lambda moment: moment["step"])


def told(run: RunData, moments: Sequence[Moment], outcome: str) -> list[Moment]:
    """The moments, so that somebody who watches always has one sentence to read: with the numbers that the run begins with, what has
    changed inside each long stretch without a moment, and at its last step the ``outcome``, where there is one."""
    first, last = int(run.steps[0]), int(run.steps[-1])
    known = sorted({first, last, *(moment["step"] for moment in moments)})
    longest = max(QUIET_STEPS, (last - first) // QUIET_PARTS)
    between = [pair for one, other in pairwise(known) for pair in pairwise(_parts(run, one, other, longest)) if pair[1] < other]
    begins = [] if any(moment["step"] == first for moment in moments) else [("start", first, _begins(run))]
    quiet = [("stretch", now, _changed(run, before, now)) for before, now in between]
    added = [_moment(step, kind, sentence) for kind, step, sentence in (*begins, *quiet, ("end", last, outcome)) if sentence]
    return sorted([*moments, *added], key=lambda moment: moment["step"])


def _parts(run: RunData, one: int, other: int, longest: int) -> list[int]:
    """The steps that part a stretch into pieces that are no longer than this: its ends, and recorded steps between them."""
    parts = -(-(other - one) // longest)
    inside = [int(run.steps[np.searchsorted(run.steps, one + (other - one) * part // parts)]) for part in range(1, parts)]
    return sorted({one, *inside, other})


def _begins(run: RunData) -> str:
    values = _values_at(run, int(run.steps[0]))
    numbers = pgettext("clauses", ", ").join(f"{_(name)} {value}" for name, value in values.items())
    return _("It begins: {numbers}.").format(numbers=numbers) if values else ""


def _changed(run: RunData, before: int, now: int) -> str:
    old, new = _values_at(run, before), _values_at(run, now)
    changes = pgettext("clauses", ", ").join(f"{_(name)} {old[name]} → {value}" for name, value in new.items() if name in old)
    return _("Since step {step:,}: {changes}.").format(step=before, changes=changes) if changes else ""


def _values_at(run: RunData, step: int) -> dict[str, str]:
    at = int(np.searchsorted(run.steps, step))
    columns = {name: run.column(metric)[at] for name, metric in CURVES.items() if run.has(metric)}
    known = {name: float(value) for name, value in columns.items() if np.isfinite(value)}
    return {name: f"{value:z.1f}".replace("-", "\u2212") if name == "KL" else score_text(value) for name, value in known.items()}


def marks_of(run: RunData) -> list[Moment]:
    """Small marks: the first and the last step, and the newest checkpoints."""
    first, last = int(run.steps[0]), int(run.steps[-1])
    checkpoints = [step for step in run.checkpoints if first <= step <= last][-MOST_CHECKPOINTS:]
    marks = [_moment(step, "checkpoint", _("A checkpoint was kept after step {step:,}.").format(step=step)) for step in checkpoints]
    return sorted(
        [
            _moment(first, "first", _("The first recorded step is {first:,}.").format(first=first)),
            *marks,
            _moment(last, "last", _("The newest step is {last:,}.").format(last=last)),
        ],
        key=lambda mark: mark["step"],
    )


def _moment(step: int, kind: str, sentence: str) -> Moment:
    return {"step": int(step), "kind": kind, "sentence": without_secrets(sentence)}


def _gold_turns(run: RunData, findings: Sequence[Finding]) -> Iterator[Moment]:
    gold, score = judges.gold(run), judges.score(run)
    for finding in (finding for finding in findings if finding.check == "judge-falls"):
        if gold is None:
            return
        since = int(np.searchsorted(run.steps, finding.since))
        until = np.searchsorted(gold.known, judges.fall(gold).best_at[since], side="right")
        window = gold.known[: max(1, int(until))][-judges.WINDOW :]
        top = int(window[np.argmax(gold.values[window])])
        falls, rises = gold.values < gold.values[top], score.values > score.values[top]
        at = _first(falls & rises, since)
        fooled = bool(falls[at] and rises[at])
        at = at if fooled else _first(falls, since)
        sentence = (
            _("The judge is fooled: gold turns at step {step:,}, certain at {at:,} ({gold}), and the score still rises ({score}).")
            if fooled
            else _("Gold turns: since step {step:,} gold falls ({gold}), and the score does not rise ({score}).")
        )
        gold_words, scores = (f"{score_text(line.values[top])} \u2192 {score_text(line.values[at])}" for line in (gold, score))
        name = {"name": _(FOOLED)} if fooled else {}
        yield (
            _moment(
                run.steps[at], "gold_turns", sentence.format(step=int(run.steps[top]), at=int(run.steps[at]), gold=gold_words, score=scores)
            )
            | name
        )


def _first(holds: np.ndarray, since: int) -> int:
    """The first index from ``since`` on at which this holds; ``since`` where it never does.

    The doctor's rules look at means of several steps. A moment's numbers are those that the lines show at its steps, which say the same
    there or soon after.
    """
    later = np.flatnonzero(holds[since:])
    return since + int(later[0]) if len(later) else since


def _phrases(run: RunData) -> Iterator[Moment]:
    """Of each phrase the step at which its rise is more than chance for the first time, and the step at which it takes over."""
    seen: list[tuple[Rising, str]] = []
    for step, phrase in sorted(run.rising.items()):
        if phrase is None or phrase.z <= SURE:
            continue
        kind = "takes_over" if phrase.takes_over else "phrase"
        alike = [(other, other_kind) for other, other_kind in seen if _overlap(phrase.words, other.words)]
        if any(other_kind in (kind, "takes_over") for _, other_kind in alike):  # said already
            continue
        if kind == "phrase" and any(len(other.words) > len(phrase.words) for other, _ in alike):  # less: "a" after "a masterpiece"
            continue
        seen.append((phrase, kind))
        counts = _("{after} of {of} answers, {before} of {before_of} at the start") if phrase.before_of else _("{after} of {of} answers")
        if phrase.before_of == phrase.after_of:
            counts = _("{after} of {of} answers, {before} at the start")
        counts = counts.format(after=phrase.after, of=phrase.after_of, before=phrase.before, before_of=phrase.before_of)
        words = TAKEN_OVER if phrase.takes_over else SPREADS
        yield _moment(step, kind, _(words[phrase.verb]).format(text=phrase.text, counts=counts))


def _overlap(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Whether one phrase is a part of the other."""
    long, short = (first, second) if len(first) >= len(second) else (second, first)
    return any(long[at : at + len(short)] == short for at in range(len(long) - len(short) + 1))


def _kl(run: RunData) -> Iterator[Moment]:
    kl, adaptive = run.column("objective/kl"), run.settings_known and run.config.ppo.kl_controller == "adaptive"
    limit = run.setting("ppo.kl_target") if adaptive else np.full(len(kl), USUAL_KL)
    passed = streak(kl > limit, KL_STEPS)
    if passed.any():
        at = int(np.argmax(passed))
        sentence = (
            _("KL is above its target of {limit:g} nats: {kl} nats for each answer.")
            if adaptive
            else _("KL leaves the usual range: {kl} nats for each answer, more than {limit:g}.")
        )
        yield _moment(run.steps[at], "kl", sentence.format(limit=limit[at], kl=figure(kl[at])))


def _score(run: RunData) -> Iterator[Moment]:
    score = judges.score(run)
    risen = judges.risen(score)
    if risen.any():
        first = score.values[score.known[0]]
        at = _first(score.values > first, int(np.argmax(risen)))
        change = f"{score_text(first)} → {score_text(score.values[at])}"
        yield _moment(run.steps[at], "score", _("The score rises, by more than chance: {change}.").format(change=change))


def _other_findings(findings: Sequence[Finding], told: tuple[str, ...]) -> Iterator[Moment]:
    """The earliest sign that single updates are too large, and the doctor's other alarms about what happened, but for those ``told``."""
    clipping = [finding for finding in findings if finding.check in CLIPPING]
    for finding in sorted(clipping, key=lambda finding: finding.since)[:1]:
        yield _moment(finding.since, "clipping", _sentence(finding))
    for finding in findings:
        if finding.level == "alarm" and not finding.check.startswith((OF_SETTINGS, *told)):
            yield _moment(finding.since, "alarm", _sentence(finding))


def _sentence(finding: Finding) -> str:
    since = next((evidence.text for evidence in finding.evidence if evidence.step == finding.since), "")
    return _("{title}: {since}.").format(title=finding.title, since=since) if since else _("{title}.").format(title=finding.title)


def _settings(run: RunData) -> Iterator[Moment]:
    changes = [change for change in run.changes if run.steps[0] < change.step <= run.steps[-1] and change.setting in LIVE_SETTINGS]
    for step, group in groupby(sorted(changes, key=lambda change: change.step), key=lambda change: change.step):
        parts = [f"{LIVE_SETTINGS[change.setting]} {_value(change.old)} → {_value(change.new)}" for change in group]
        yield _moment(step, "settings", _("Settings changed: {parts}.").format(parts=", ".join(parts)))


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
