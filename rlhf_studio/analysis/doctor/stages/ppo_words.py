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
    begin = _("Nothing learned") if run.over else _("Nothing learned so far")
    most, near, matters = float(by_scores(score)[1][-1]), float(by_kl(run, score)[-1]), figure(MATTERS * score.spread, 2)
    if score.known.size and np.ptp(score.values[score.known]) <= 1e-9:
        reason = _("{compared}: there is no chance to compare with.").format(compared=compared)
        return _("{begin}: all scores are the same. {change}.").format(begin=begin, change=change), reason
    if near < most:
        reason = _(
            "The KL is {kl} nats: no policy so near to another scores higher by more than {near}, and {matters} would matter "
            "({times:g} times the spread of single scores)."
        )
        kl = figure(float(run.column("objective/kl_k3")[-1]), 2)
        sentence = _("{begin}: the policy is where it began. {change}.").format(begin=begin, change=change)
        return sentence, reason.format(kl=kl, near=figure(near, 2), matters=matters, times=MATTERS)
    if most > 0:
        sentence = _("{begin}: the score rose by {most} at most, and {matters} would matter. {change}.")
    else:
        sentence = _("{begin}: the score did not rise, and {matters} would matter. {change}.")
    reason = _("{compared}: {interval}")
    if score.by_steps:
        reason = _("{compared}: {interval} Its error is estimated from how far the means of successive steps lie apart.")
    sentence = sentence.format(begin=begin, most=score_text(most), matters=matters, change=change)
    return sentence, reason.format(compared=compared, interval=interval(score))


def interval(score: ScoreSeries) -> str:
    """Between what the rise lies, and what would matter, as a sentence."""
    least, most = (score_text(float(part[-1])) for part in by_scores(score))
    words = _(
        "the rise lies between {least} and {most} (each end with 95 %); {matters} would matter, {times:g} times the "
        "spread of single scores."
    )
    return words.format(least=least, most=most, matters=figure(MATTERS * score.spread, 2), times=MATTERS)


def more_steps(expected: Outlook) -> str:
    """How many more steps would tell."""
    rises, stays = expected.if_it_rises, expected.if_it_stays
    if rises is None and stays is None:
        return _("Many times as many steps would tell no more than larger batches: take more responses in each step.")
    if rises is None:
        words = _("About {stays} more would tell if the score does not rise")
    elif stays is None:
        words = _("About {rises} more would tell if the score goes on rising as it does")
    else:
        words = _("About {rises} more would tell if the score goes on rising as it does, about {stays} more if it does not rise")
    sentence = words.format(rises=_steps(rises or 0), stays=_steps(stays or 0))
    if expected.pace > 0:
        longest = duration(max(rises or 0, stays or 0) * expected.pace)
        return _("{sentence} ({time} at {pace} a step).").format(sentence=sentence, time=longest, pace=duration(expected.pace))
    return _("{sentence}.").format(sentence=sentence)


def expectation(expected: Outlook) -> str:
    """The score to expect, after how many steps, and what that assumes."""
    steps, time = expected.steps, expected.steps * expected.pace
    if expected.planned:
        at = ngettext("the 1 step that is left", "the {count:,} steps that are left", steps).format(count=steps)
    else:
        at = _("{count:,} more steps").format(count=steps)
    if time > 0:
        night = not expected.planned and 0.9 * NIGHT < time < 1.1 * NIGHT
        words = _("{steps} (a night of {time} at {pace} a step)") if night else _("{steps} ({time} at {pace} a step)")
        at = words.format(steps=at, time=duration(time), pace=duration(expected.pace))
    words = _(
        "Expect a score of {low} to {high} after {steps}: the lower if it gains nothing more, the higher if it goes on at most as it did "
        "so far."
    )
    if np.isfinite(expected.kl):
        words = _(
            "Expect a score of {low} to {high} after {steps}, with a KL of up to {kl} nats: the lower if it gains nothing more, the higher "
            "if it goes on at most as it did so far."
        )
    return words.format(low=score_text(expected.low), high=score_text(expected.high), steps=at, kl=figure(expected.kl, 2))


def _steps(count: int) -> str:
    return ngettext("1 step", "{count:,} steps", count).format(count=count)
