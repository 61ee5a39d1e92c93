"""Sampling: a token drawn from each distribution, its log-probability kept."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table

NUMBER = 2


def sampled(run: LessonRun, step: float, sample: float) -> Numbers:
    """A response as it was drawn, and the likeliest tokens at its places, asked from the policy that sampled."""
    line = line_of(run, step, sample)
    one = line.sample
    distributions = run.distributions(int(step) - 1, run.batch([one.prompt_ids], [one.ids]))
    best = distributions.argmax(dim=-1).tolist()
    said_again = [float(distributions[place, token]) for place, token in enumerate(one.ids)]
    logprobs = line.all(line.of.logprobs)
    rarest = min(range(len(said_again)), key=lambda place: said_again[place])
    return {
        "columns": line.tokens,
        "rows": rows_of(line, response_ids=line.of.ids, mask=line.of.mask, logprobs=line.of.logprobs, values=line.of.values),
        "count": len(one.ids),
        "likeliest": sum(token == first for token, first in zip(one.ids, best, strict=True)),
        "always": one.ids == best,
        "rarest": one.pieces[rarest].strip(),
        "chance": math.exp(said_again[rarest]),
        "stopped": one.stopped,
        "largest_difference": max(abs(a - b) for a, b in zip(said_again, logprobs, strict=True)),
    }


SCENES = (
    Scene(
        "line",
        sampled,
        controls=(STEP, SAMPLE),
        needs=NEEDS,
        pictures={"tensors": table},
    ),
)
