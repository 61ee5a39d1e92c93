"""Rewards by token: the price of the KL everywhere, the score at the end."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table

NUMBER = 6


def shaped(run: LessonRun, step: float, sample: float) -> Numbers:
    """The rewards of a response."""
    line = line_of(run, step, sample)
    again = line.again()
    rewards, kl, beta, score = line.all(again.rewards), line.all(again.kl), line.of.settings.kl_coef, float(line.of.scores[line.row])
    return {
        "columns": line.tokens,
        "rows": rows_of(line, mask=line.of.mask, kl=again.kl, rewards=again.rewards),
        "rewards": rewards,
        "kl": kl,
        "beta": beta,
        "score": score,
        "paid": beta * sum(kl),
        "total": sum(rewards),
        "all_negative": all(x < 0 for x in rewards[:-1]),
        "gained": sum(x > 0 for x in rewards[:-1]),
        "before": len(rewards) - 1,
        "last": rewards[-1],
        "last_is_score": abs(rewards[-1] - score) < 5e-4,
    }


SCENES = (Scene("line", shaped, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
