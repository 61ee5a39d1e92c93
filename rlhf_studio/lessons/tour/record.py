"""The record: what the run folder keeps of a step."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers, Scene, Word
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table

NUMBER = 15
FLOAT32 = 4


def recorded(run: LessonRun, step: float, sample: float) -> Numbers:
    """The columns of a response in the record, and how a metric follows from them."""
    line, number = line_of(run, step, sample), int(step)
    columns = run.reader.episodes(number)[number].tokens
    kls = [float((a - b)[keep].sum()) for a, b, keep in zip(line.of.logprobs, line.of.ref_logprobs, line.of.mask, strict=True)]
    tokens = int(line.of.mask.sum())
    logged, own = run.curve("objective/kl")[number - 1], kls[line.row]
    per_response, per_token = sum(kls) / len(kls), sum(kls) / tokens
    return {
        "columns": line.tokens,
        "rows": rows_of(
            line,
            response_ids=line.of.ids,
            logprobs=line.of.logprobs,
            ref_logprobs=line.of.ref_logprobs,
            values=line.of.values,
            new_logprobs=line.of.new_logprobs,
        ),
        "logged": logged,
        "per_response": per_response,
        "per_token": per_token,
        "which": Word("per_response" if math.isclose(logged, per_response, rel_tol=1e-4, abs_tol=1e-4) else "per_token"),
        "own": own,
        "above": own > logged,
        "bytes": FLOAT32 * len(columns),
        "tokens": tokens,
        "kilobytes": FLOAT32 * (len(columns) + 1) * tokens / 1000,
        "names": ", ".join(sorted(columns)),
    }


SCENES = (Scene("line", recorded, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
