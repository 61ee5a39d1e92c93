"""What a PPO run came to, in counts of answers that a person can picture: one sentence for its end.

Two steps are compared: the first, and the newest one that has answers on record; of each all episodes where they were kept, else the
recorded responses. A judge says which answers are poor:

* the gold score of the review world: below 0, which is a review that dislikes the film, or text that is none (``inputs/world/gold.py``);
* any other gold score, and the score where there is no gold score: below the mean of the first step. A score only where it is the same
  quantity in both steps: neither scaled as a run goes on, nor of another reward since.

The verdict knows all steps, and is never contradicted: a count is told as a change only where it goes the verdict's way, and by more than
the draw of so few answers explains (:data:`CLEAR`). Where that fails, or too few answers are on record, there is no such sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.doctor import judges
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.texts import FEWEST_RESPONSES, MOST_RESPONSES
from rlhf_studio.analysis.records import VerdictKind
from rlhf_studio.language import _, ngettext
from rlhf_studio.units import percent

CLEAR = 2.5  # standard deviations of the difference of two shares, if there were no difference


@dataclass(frozen=True)
class Poor:
    """How many answers a judge finds poor in the first step, ``was`` of ``was_of``, and in the newest, ``now`` of ``now_of``.

    ``by`` is the judge: ``world``, ``gold`` or ``score``.
    """

    was: int
    was_of: int
    now: int
    now_of: int
    by: str

    @property
    def change(self) -> int:
        """1 for more poor answers than at the start, -1 for fewer, 0 where chance may be all of it."""
        share = (self.was + self.now) / (self.was_of + self.now_of)
        error = np.sqrt(share * (1 - share) * (1 / self.was_of + 1 / self.now_of))
        difference = self.now / self.now_of - self.was / self.was_of
        return int(np.sign(difference)) if abs(difference) > CLEAR * error else 0

    def __str__(self) -> str:
        before = str(self.was) if self.was_of == self.now_of else _("{was} of {was_of}").format(was=self.was, was_of=self.was_of)
        return _of_poor(self.by, self.now).format(now=self.now, now_of=self.now_of, before=before)


def _of_poor(by: str, now: int) -> str:
    if by == "world":
        return ngettext(
            "{now} of {now_of} reviews is unfriendly or broken now, {before} at the start",
            "{now} of {now_of} reviews are unfriendly or broken now, {before} at the start",
            now,
        )
    if by == "gold":
        return ngettext(
            "{now} of {now_of} answers has a gold score below the mean of step 1 now, {before} at the start",
            "{now} of {now_of} answers have a gold score below the mean of step 1 now, {before} at the start",
            now,
        )
    return ngettext(
        "{now} of {now_of} answers has a score below the mean of step 1 now, {before} at the start",
        "{now} of {now_of} answers have a score below the mean of step 1 now, {before} at the start",
        now,
    )


def in_counts(run: RunData, kind: VerdictKind) -> str:
    """The sentence for a run that has ended and of which this is the verdict; empty where the verdict's own says it better."""
    steps = [int(step) for step in run.steps]
    if run.reader is None or not run.ended or run.state == "failed" or len(steps) < 2:
        return ""
    gold = judges.gold(run) is not None
    newest = next((step for step in reversed(steps[-max(1, len(steps) // 10) :]) if _values(run, step, gold) is not None), None)
    poor = None if newest is None else _poor(run, steps[0], newest, gold)
    if poor is None or newest is None:
        return ""
    phrase = _phrase(run)
    if kind in ("improved", "improving"):
        if poor.change < 0:
            return _worked(gold, bool(phrase)).format(poor=poor, phrase=phrase)
        return _("The score rose, but the answers are no better by the gold score: {poor}.").format(poor=poor) if gold else ""
    if kind == "exploiting the reward" and gold and poor.change > 0:
        fooled = (
            _("The judge was fooled: its score rose, but {poor}. {phrase}.")
            if phrase
            else _("The judge was fooled: its score rose, but {poor}.")
        )
        return fooled.format(poor=poor, phrase=phrase)
    if kind == "nothing learned" and poor.change == 0:
        return _("Nothing learned: {poor}, which may be chance.").format(poor=poor)
    if kind == "cannot tell yet" and poor.change == 0:
        return _("Cannot tell yet: {poor}, which may be chance.").format(poor=poor)
    if kind == "rising" and poor.change < 0:
        return _("Rising, not yet certain: {poor}.").format(poor=poor)
    return _("Collapsed: {poor}.").format(poor=poor) if kind == "collapsed" and poor.change > 0 else ""


def _worked(gold: bool, phrase: bool) -> str:
    """The sentence of a success; with ``phrase`` it has a slot for what a phrase takes away from it."""
    if phrase:
        return _("It worked: {poor}; but {phrase}.") if gold else _("The score rose: {poor}; but {phrase}.")
    return _("It worked: {poor}.") if gold else _("The score rose: {poor}.")


def _poor(run: RunData, first: int, newest: int, gold: bool) -> Poor | None:
    before, after = _values(run, first, gold), _values(run, newest, gold)
    changed = any(setting != "reward.gold" or gold for step, setting in run.reward_changes if step < newest)
    scaled = not gold and (not run.settings_known or run.config.reward.scaling != "none")
    if before is None or after is None or first == newest or changed or scaled:
        return None
    world = gold and run.settings_known and run.config.reward.gold == "world"
    limit = 0.0 if world else float(before.mean())
    by = "world" if world else "gold" if gold else "score"
    return Poor(int((before < limit).sum()), len(before), int((after < limit).sum()), len(after), by)


def _values(run: RunData, step: int, gold: bool) -> np.ndarray | None:
    """The judge's values of a step's answers, finite ones only; None where there are too few."""
    name = "gold" if gold else "scores"
    values = run.reader.episode_arrays(step, [name]).get(name) if run.reader else None
    if values is None:
        rows = run.responses.get(step) or (run.reader.rollouts(step)[:MOST_RESPONSES] if run.reader else [])
        values = np.array([np.nan if (value := row.gold if gold else row.score) is None else value for row in rows], float)
    values = values[np.isfinite(values)]
    return values if len(values) >= FEWEST_RESPONSES else None


def _phrase(run: RunData) -> str:
    """Which share of the answers of the last tenth has the phrase that took over, as "What did it learn?" counts them; empty where none
    did. A share, because those are other answers than the ones that are counted beside it."""
    newest = run.rising.get(max(run.rising, default=0))
    if newest is None or not newest.takes_over:
        return ""
    words = {
        "ends": _("{share} of recent ones end with “{text}”"),
        "opens": _("{share} of recent ones begin with “{text}”"),
        "is in": _("{share} of recent ones say “{text}”"),
    }
    return words[newest.verb].format(share=percent(newest.after / newest.after_of), text=newest.text)
