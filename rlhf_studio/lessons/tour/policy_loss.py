"""The ratio, the clip, and the policy's loss of each token."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table

NUMBER = 10


def clipped(run: LessonRun, step: float, sample: float) -> Numbers:
    """The loss of each token in the last pass of a step."""
    line = line_of(run, step, sample)
    again, eps = line.again(), line.of.settings.cliprange
    ratio, advantages, loss = (line.all(x) for x in (again.ratio, again.whitened_advantages, again.policy_loss))
    silent = [bool(x) for x in line.all(again.clipped)]
    outside = [not 1 - eps <= x <= 1 + eps for x in ratio]
    changes = [a - b for a, b in zip(line.all(line.of.new_logprobs), line.all(line.of.logprobs), strict=True)]
    return {
        "columns": line.tokens,
        "rows": rows_of(
            line,
            logprobs_diff=line.of.new_logprobs - line.of.logprobs,
            ratio=again.ratio,
            whitened=again.whitened_advantages,
            clipped=again.clipped,
            loss=again.policy_loss,
        ),
        "loss": loss,
        "advantages": advantages,
        "ratio": ratio,
        "exponentials": [math.exp(x) for x in changes],
        "eps": eps,
        "count": len(ratio),
        "silent": sum(silent),
        "outside": sum(outside),
        "some_silent": any(silent),
        "all_outside_silent": silent == outside,
        "mean": sum(loss) / len(loss),
    }


SCENES = (Scene("line", clipped, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
