"""What a PPO verdict says where a rise is not sure: how large it can be, how many more steps would tell, what to expect of them."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.bounds import MATTERS, by_kl, by_scores
from rlhf_studio.analysis.doctor.check import figure
from rlhf_studio.analysis.doctor.expectation import NIGHT, Outlook
from rlhf_studio.analysis.doctor.judges import ScoreSeries
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.units import duration, score_text


def nothing_words(run: RunData, score: ScoreSeries, change: str, compared: str) -> tuple[str, str]:
    """Sentence and reason of "nothing learned": the rise that is excluded, and by what."""
    so_far = "" if run.over else " so far"
    most, near = float(by_scores(score)[1][-1]), float(by_kl(run, score)[-1])
    matters = f"{figure(MATTERS * score.spread, 2)} would matter ({MATTERS:g} times the spread of single scores)"
    if score.known.size and np.ptp(score.values[score.known]) <= 1e-9:
        return f"Nothing learned{so_far}: all scores are the same. {change}.", f"{compared}: there is no chance to compare with."
    if near < most:
        kl = figure(float(run.column("objective/kl_k3")[-1]), 2)
        sentence = f"Nothing learned{so_far}: the policy is where it began. {change}."
        reason = f"The KL is {kl} nats: no policy so near to another scores higher by more than {figure(near, 2)}, and {matters}."
        return sentence, reason
    rose = f"rose by {score_text(most)} at most" if most > 0 else "did not rise"
    by_steps = " Its error is estimated from how far the means of successive steps lie apart." if score.by_steps else ""
    sentence = f"Nothing learned{so_far}: the score {rose}, and {figure(MATTERS * score.spread, 2)} would matter. {change}."
    return sentence, f"{compared}: {interval(score)}{by_steps}"


def interval(score: ScoreSeries) -> str:
    """Between what the rise lies, and what would matter, as a sentence."""
    least, most = (float(part[-1]) for part in by_scores(score))
    matters = f"{figure(MATTERS * score.spread, 2)} would matter, {MATTERS:g} times the spread of single scores"
    return f"the rise lies between {score_text(least)} and {score_text(most)} (each end with 95 %); {matters}."


def more_steps(expected: Outlook) -> str:
    """How many more steps would tell."""
    rises, stays = expected.if_it_rises, expected.if_it_stays
    if rises is None and stays is None:
        return "Many times as many steps would tell no more than larger batches: take more responses in each step."
    parts = [] if rises is None else [f"about {_steps(rises)} more would tell if the score goes on rising as it does"]
    parts += [] if stays is None else [f"about {_steps(stays)} more if it does not rise"]
    sentence = ", ".join(parts)
    if rises is None:
        sentence = f"about {_steps(stays or 0)} more would tell if the score does not rise"
    longest = max(rises or 0, stays or 0) * expected.pace
    time = f" ({duration(longest)} at {duration(expected.pace)} a step)" if expected.pace > 0 else ""
    return f"{sentence[0].upper()}{sentence[1:]}{time}."


def expectation(expected: Outlook) -> str:
    """The score to expect, after how many steps, and what that assumes."""
    steps, time = expected.steps, expected.steps * expected.pace
    at = f"the {_steps(steps)} that {'is' if steps == 1 else 'are'} left" if expected.planned else f"{steps:,} more steps"
    if time > 0:
        night = "a night of " if not expected.planned and 0.9 * NIGHT < time < 1.1 * NIGHT else ""
        at += f" ({night}{duration(time)} at {duration(expected.pace)} a step)"
    kl = f", with a KL of up to {figure(expected.kl, 2)} nats" if np.isfinite(expected.kl) else ""
    limits = "the lower if it gains nothing more, the higher if it goes on at most as it did so far"
    return f"Expect a score of {score_text(expected.low)} to {score_text(expected.high)} after {at}{kl}: {limits}."


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"
