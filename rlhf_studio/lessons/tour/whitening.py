"""Whitening: advantages with mean 0 and variance 1 over the whole batch."""

from __future__ import annotations

import statistics

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table

NUMBER = 8


def whitened(run: LessonRun, step: float, sample: float) -> Numbers:
    """Advantages before and after, and the mean and deviation that they were scaled by."""
    line = line_of(run, step, sample)
    again = line.again()
    before, after = line.all(again.advantages), line.all(again.whitened_advantages)
    batch = again.advantages[line.of.mask].tolist()
    mean, deviation = statistics.fmean(batch), statistics.stdev(batch)
    turned = sum((a > 0) != (b > 0) for a, b in zip(before, after, strict=True))
    return {
        "columns": line.tokens,
        "rows": rows_of(line, advantages=again.advantages, whitened=again.whitened_advantages),
        "after": after,
        "before": before,
        "mean": mean,
        "deviation": deviation,
        "tokens": len(batch),
        "turned": turned,
        "count": len(before),
        "turns": turned > 0,
        "largest": max(abs(x) for x in after),
        "far": max(abs(x) for x in after) > 3,
    }


SCENES = (Scene("line", whitened, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
