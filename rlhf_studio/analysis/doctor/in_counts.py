"""What a PPO run came to, in shares of its answers that a person can picture: one sentence for its end, with the outcome first.

Compared are the first step and the last tenth, as everywhere; of each step all episodes where they were kept, else the recorded responses.
Every count is one that can be counted again: of the first step's answers, and of all answers of the last tenth. The two are of different
numbers of answers, so that the sentence says per cent of each, and the counts stand beside it; below :data:`FEWEST_FOR_SHARES` answers it
says the counts themselves. A judge says which answers are poor:

* the gold score of the review world: below 0, which is a review that dislikes the film, or text that is none (``inputs/world/gold.py``);
* any other gold score, and the score where there is no gold score: below the mean of the first step. A score only where it is the same
  quantity in all these steps: neither scaled as a run goes on, nor of another reward since.

The verdict knows all steps, and is never contradicted: a count is told as a change only where it goes the verdict's way, and by more than
the draw of so few answers explains (:data:`CLEAR`). Where that fails, or too few answers are on record, there is no such sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlhf_studio.analysis.doctor import judges
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.texts import FEWEST_RESPONSES, MOST_RESPONSES
from rlhf_studio.analysis.records import VerdictKind
from rlhf_studio.analysis.series import evenly
from rlhf_studio.language import N_, _, ngettext, together
from rlhf_studio.runs.rows import tenth
from rlhf_studio.units import percent

CLEAR = 2.5  # standard deviations of the difference of two shares, if there were no difference
MOST_STEPS = 20  # of the last tenth that are read, evenly spread
FEWEST_FOR_SHARES = 20  # answers: of fewer, one more answer is more than 5 %
PHRASES = {
    "ends": N_("{count} of {of} end with “{text}”"),
    "opens": N_("{count} of {of} begin with “{text}”"),
    "is in": N_("{count} of {of} say “{text}”"),
}
SHARED_PHRASES = {
    "ends": N_("{share} end with “{text}”"),
    "opens": N_("{share} begin with “{text}”"),
    "is in": N_("{share} say “{text}”"),
}

REVIEWS = (
    N_("{share} of the reviews are unfriendly or broken"),
    N_("{count} of {of} reviews is unfriendly or broken"),
    N_("{count} of {of} reviews are unfriendly or broken"),
)
BY_GOLD = (
    N_("{share} of the answers have a gold score below the mean of step 1"),
    N_("{count} of {of} answers has a gold score below the mean of step 1"),
    N_("{count} of {of} answers have a gold score below the mean of step 1"),
)
BY_SCORE = (
    N_("{share} of the answers have a score below the mean of step 1"),
    N_("{count} of {of} answers has a score below the mean of step 1"),
    N_("{count} of {of} answers have a score below the mean of step 1"),
)


@dataclass(frozen=True)
class Poor:
    """How many answers a judge finds poor: ``was`` of the first step's ``of``, and ``now`` of the ``now_of`` of the last tenth.

    ``shared`` says it of a ``{share}``, ``one`` and ``many`` of one answer and of several, with ``{count}`` and ``{of}``; :func:`_`
    translates them.
    """

    was: int
    of: int
    now: int
    now_of: int
    shared: str
    one: str
    many: str

    @property
    def change(self) -> int:
        """1 for more poor answers than at the start, -1 for fewer, 0 where chance may be all of it."""
        share = (self.was + self.now) / (self.of + self.now_of)
        error = np.sqrt(share * (1 - share) * (1 / self.of + 1 / self.now_of))
        difference = self.now / self.now_of - self.was / self.of
        return int(np.sign(difference)) if abs(difference) > CLEAR * error else 0

    @property
    def in_shares(self) -> str:
        """In per cent; in counts where they are of few answers."""
        if min(self.of, self.now_of) < FEWEST_FOR_SHARES:
            return str(self)
        now = _(self.shared).format(share=share_of(self.now, self.now_of))
        return _("{now} now, {before} at the start").format(now=now, before=share_of(self.was, self.of))

    def __str__(self) -> str:
        now = ngettext(self.one, self.many, self.now)
        if self.now_of == self.of:
            return _("{now} now, {before} at the start").format(now=now.format(count=self.now, of=self.of), before=self.was)
        newest = now.format(count=self.now, of=the_last(self.now_of))
        return _("{now}, {before} of {of} at the start").format(now=newest, before=self.was, of=self.of)


def the_last(many: int) -> str:
    """What a count is of, where it is of the answers of several steps."""
    return _("the last {many}").format(many=many)


def share_of(count: int, of: int) -> str:
    """In per cent; 0 % and 100 % only where it is none, and all."""
    whole = percent(count / of)
    return percent(count / of, 1) if 0 < count < of and whole in (percent(0), percent(1)) else whole


class Told(NamedTuple):
    """The sentence, and the counts behind its shares; empty where the sentence has them itself, and where there is none."""

    sentence: str = ""
    counts: str = ""


def in_counts(run: RunData, kind: VerdictKind, *, with_phrase: bool = True) -> Told:
    """The sentence for a run that has ended and of which this is the verdict; empty where the verdict's own says it better.

    ``with_phrase``: with a second sentence about the phrase that took over, where one did.
    """
    steps = [int(step) for step in run.steps]
    if run.reader is None or not run.ended or run.state == "failed" or len(steps) < 2:
        return Told()
    gold = judges.gold(run) is not None
    poor = _poor(run, steps, gold)
    if poor is None:
        return Told()
    phrase = _phrase(run) if with_phrase else Told()
    sentence = _sentence(kind, poor, gold, phrase.sentence)
    if not sentence or poor.in_shares == str(poor):
        return Told(sentence)
    counts = _("In counts: {poor}.").format(poor=poor)
    is_said = phrase.counts and phrase.sentence in sentence
    return Told(sentence, together(counts, _("{phrase}.").format(phrase=phrase.counts) if is_said else ""))


def _sentence(kind: VerdictKind, found: Poor, gold: bool, phrase: str) -> str:
    """What the verdict's kind makes of it; empty where the two do not agree."""
    poor = found.in_shares
    if kind in ("improved", "improving"):
        if found.change < 0:
            said = (_("It worked: {poor}.") if gold else _("The score rose: {poor}.")).format(poor=poor)
            return together(said, _("But {phrase}.").format(phrase=phrase) if phrase else "")
        return _("The score rose, but gold says that the answers are no better: {poor}.").format(poor=poor) if gold else ""
    if kind == "exploiting the reward" and gold and found.change > 0:
        fooled = _("The judge was fooled: its score rose, but {poor}.").format(poor=poor)
        return together(fooled, _("{phrase}.").format(phrase=phrase) if phrase else "")
    if kind == "nothing learned" and found.change == 0:
        return _("Nothing was learned: {poor}, which may be chance.").format(poor=poor)
    if kind == "cannot tell yet" and found.change == 0:
        return _("Cannot tell yet: {poor}, which may be chance.").format(poor=poor)
    if kind == "cannot be told" and found.change == 0:
        return _("Cannot be told: {poor}, which may be chance.").format(poor=poor)
    if kind == "rising" and found.change < 0:
        return _("It seems to work, but is not certain yet: {poor}.").format(poor=poor)
    return _("The model collapsed: {poor}.").format(poor=poor) if kind == "collapsed" and found.change > 0 else ""


def _poor(run: RunData, steps: list[int], gold: bool) -> Poor | None:
    last = steps[-tenth(len(steps)) :]
    last = [last[index] for index in evenly(len(last), MOST_STEPS)]
    before, after = _values(run, steps[0], gold), [values for step in last if (values := _values(run, step, gold)) is not None]
    changed = any(setting != "reward.gold" or gold for step, setting in run.reward_changes if step < steps[-1])
    scaled = not gold and (not run.settings_known or run.config.reward.scaling != "none")
    if before is None or not after or changed or scaled:
        return None
    world = gold and run.settings_known and run.config.reward.gold == "world"
    limit = 0.0 if world else float(before.mean())
    words = REVIEWS if world else BY_GOLD if gold else BY_SCORE
    now = np.concatenate(after)
    return Poor(int((before < limit).sum()), len(before), int((now < limit).sum()), len(now), *words)


def _values(run: RunData, step: int, gold: bool) -> np.ndarray | None:
    """The judge's values of a step's answers, finite ones only; None where there are too few."""
    name = "gold" if gold else "scores"
    values = run.reader.episode_arrays(step, [name]).get(name) if run.reader else None
    if values is None:
        rows = run.responses.get(step) or (run.reader.rollouts(step)[:MOST_RESPONSES] if run.reader else [])
        values = np.array([np.nan if (value := row.gold if gold else row.score) is None else value for row in rows], float)
    values = values[np.isfinite(values)]
    return values if len(values) >= FEWEST_RESPONSES else None


def _phrase(run: RunData) -> Told:
    """How many answers have the phrase that took over, as "What did it learn?" counts them; empty where none did."""
    newest = run.rising.get(max(run.rising, default=0))
    if newest is None or not newest.takes_over:
        return Told()
    counts = _(PHRASES[newest.verb]).format(count=newest.after, of=the_last(newest.after_of), text=newest.text)
    share = _(SHARED_PHRASES[newest.verb]).format(share=share_of(newest.after, newest.after_of), text=newest.text)
    return Told(share if newest.after_of >= FEWEST_FOR_SHARES else counts, counts)
