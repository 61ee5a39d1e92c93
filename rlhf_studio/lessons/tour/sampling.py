"""Sampling: a token drawn from each distribution, its log-probability kept."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table

NUMBER = 2


def sampled(run: LessonRun, step: float, sample: float) -> Numbers:
    """A response as it was drawn, and the likeliest token at each position, computed by the policy that sampled."""
    line = line_of(run, step, sample)
    chosen = line.sample
    distributions = run.distributions(int(step) - 1, run.batch([chosen.prompt_ids], [chosen.ids]))
    best = distributions.argmax(dim=-1).tolist()
    recomputed = [float(distributions[index, token]) for index, token in enumerate(chosen.ids)]
    logprobs = line.all(line.of.logprobs)
    rarest = min(range(len(recomputed)), key=lambda index: recomputed[index])
    return {
        "columns": line.tokens,
        "rows": rows_of(line, response_ids=line.of.ids, mask=line.of.mask, logprobs=line.of.logprobs, values=line.of.values),
        "count": len(chosen.ids),
        "likeliest": sum(token == first for token, first in zip(chosen.ids, best, strict=True)),
        "always": chosen.ids == best,
        "rarest": chosen.pieces[rarest].strip(),
        "chance": math.exp(recomputed[rarest]),
        "stopped": chosen.stopped,
        "largest_difference": max(abs(a - b) for a, b in zip(recomputed, logprobs, strict=True)),
    }


SCENES = (Scene("line", sampled, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
