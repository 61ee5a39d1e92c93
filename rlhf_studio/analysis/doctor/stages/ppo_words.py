"""What a PPO verdict says where a rise is not sure: how large it can be, how many more steps would tell, what to expect of them."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.bounds import MATTERS, by_kl, by_scores
from rlhf_studio.analysis.doctor.check import figure
from rlhf_studio.analysis.doctor.expectation import NIGHT, Outlook
from rlhf_studio.analysis.doctor.judges import ScoreSeries
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.language import _, ngettext
from rlhf_studio.units import duration, score_text


def nothing_words(run: RunData, score: ScoreSeries, change: str, compared: str) -> tuple[str, str]:
    """Sentence and reason of "nothing learned": the rise that is excluded, and by what."""
    so_far = "" if run.over else _(" so far")
    most, near = float(by_scores(score)[1][-1]), float(by_kl(run, score)[-1])
    matters = _("{rise} would matter ({times:g} times the spread of single scores)").format(
        rise=figure(MATTERS * score.spread, 2), times=MATTERS
    )
    if score.known.size and np.ptp(score.values[score.known]) <= 1e-9:
        return _("Nothing learned{so_far}: all scores are the same. {change}.").format(so_far=so_far, change=change), _(
            "{compared}: there is no chance to compare with."
        ).format(compared=compared)
    if near < most:
        kl = figure(float(run.column("objective/kl_k3")[-1]), 2)
        sentence = _("Nothing learned{so_far}: the policy is where it began. {change}.").format(so_far=so_far, change=change)
        reason = _("The KL is {kl} nats: no policy so near to another scores higher by more than {near}, and {matters}.").format(
            kl=kl, near=figure(near, 2), matters=matters
        )
        return sentence, reason
    rose = _("rose by {most} at most").format(most=score_text(most)) if most > 0 else _("did not rise")
    by_steps = _(" Its error is estimated from how far the means of successive steps lie apart.") if score.by_steps else ""
    sentence = _("Nothing learned{so_far}: the score {rose}, and {rise} would matter. {change}.").format(
        so_far=so_far, rose=rose, rise=figure(MATTERS * score.spread, 2), change=change
    )
    return sentence, f"{compared}: {interval(score)}{by_steps}"


def interval(score: ScoreSeries) -> str:
    """Between what the rise lies, and what would matter, as a sentence."""
    least, most = (float(part[-1]) for part in by_scores(score))
    matters = _("{rise} would matter, {times:g} times the spread of single scores").format(
        rise=figure(MATTERS * score.spread, 2), times=MATTERS
    )
    return _("the rise lies between {least} and {most} (each end with 95 %); {matters}.").format(
        least=score_text(least), most=score_text(most), matters=matters
    )


def more_steps(expected: Outlook) -> str:
    """How many more steps would tell."""
    rises, stays = expected.if_it_rises, expected.if_it_stays
    if rises is None and stays is None:
        return _("Many times as many steps would tell no more than larger batches: take more responses in each step.")
    parts = [] if rises is None else [_("about {rises} more would tell if the score goes on rising as it does").format(rises=_steps(rises))]
    parts += [] if stays is None else [_("about {stays} more if it does not rise").format(stays=_steps(stays))]
    sentence = ", ".join(parts)
    if rises is None:
        sentence = _("about {steps} more would tell if the score does not rise").format(steps=_steps(stays or 0))
    longest = max(rises or 0, stays or 0) * expected.pace
    time = _(" ({longest} at {pace} a step)").format(longest=duration(longest), pace=duration(expected.pace)) if expected.pace > 0 else ""
    return f"{sentence[0].upper()}{sentence[1:]}{time}."


def expectation(expected: Outlook) -> str:
    """The score to expect, after how many steps, and what that assumes."""
    steps, time = expected.steps, expected.steps * expected.pace
    if expected.planned:
        at = ngettext("the {count:,} step that is left", "the {count:,} steps that are left", steps).format(count=steps)
    else:
        at = _("{steps:,} more steps").format(steps=steps)
    if time > 0:
        night = _("a night of ") if not expected.planned and 0.9 * NIGHT < time < 1.1 * NIGHT else ""
        at += _(" ({night}{time} at {pace} a step)").format(night=night, time=duration(time), pace=duration(expected.pace))
    kl = _(", with a KL of up to {kl} nats").format(kl=figure(expected.kl, 2)) if np.isfinite(expected.kl) else ""
    limits = _("the lower if it gains nothing more, the higher if it goes on at most as it did so far")
    return _("Expect a score of {low} to {high} after {at}{kl}: {limits}.").format(
        low=score_text(expected.low), high=score_text(expected.high), at=at, kl=kl, limits=limits
    )


def _steps(count: int) -> str:
    return ngettext("{count:,} step", "{count:,} steps", count).format(count=count)
