"""Generalised advantage estimation, from the last token back to the first."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table

NUMBER = 7


def estimated(run: LessonRun, step: float, sample: float) -> Numbers:
    """Surprises, advantages and returns of a response."""
    line = line_of(run, step, sample)
    again, settings = line.again(), line.of.settings
    rewards, values, deltas, advantages = (line.all(x) for x in (again.rewards, line.of.values, again.deltas, again.advantages))
    return {
        "columns": line.tokens,
        "rows": rows_of(
            line, rewards=again.rewards, values=line.of.values, deltas=again.deltas, advantages=again.advantages, returns=again.returns
        ),
        "advantages": advantages,
        "rewards": rewards,
        "values": values,
        "gamma": settings.gamma,
        "lam": settings.lam,
        "first": advantages[0],
        "expected": values[0],
        "better": advantages[0] > 0,
        "last": advantages[-1],
        "last_delta": deltas[-1],
        "same_sign": (advantages[0] > 0) == (deltas[0] > 0),
        "first_delta": deltas[0],
    }


SCENES = (Scene("line", estimated, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
