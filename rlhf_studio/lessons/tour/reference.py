"""The reference reads the same tokens; the difference is the KL."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers, Scene, Word
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table

NUMBER = 5


def compared(run: LessonRun, step: float, sample: float) -> Numbers:
    """Both log-probabilities of each token, and the KL between them."""
    line = line_of(run, step, sample)
    kl, old, ref = (line.all(x) for x in (line.again().kl, line.of.logprobs, line.of.ref_logprobs))
    per_response = [float(row[keep].sum()) for row, keep in zip(line.again().kl, line.of.mask, strict=True)]
    most = max(range(len(kl)), key=lambda index: abs(kl[index]))
    return {
        "columns": line.tokens,
        "rows": rows_of(line, logprobs=line.of.logprobs, ref_logprobs=line.of.ref_logprobs, kl=line.again().kl),
        "total": sum(kl),
        "mean": sum(per_response) / len(per_response),
        "below": sum(x < 0 for x in per_response),
        "batch": len(per_response),
        "negative": sum(kl) < 0,
        "moved": line.sample.pieces[most].strip(),
        "way": Word("likelier" if kl[most] >= 0 else "rarer"),
        "kl": kl,
        "differences": [a - b for a, b in zip(old, ref, strict=True)],
        "estimator": line.of.settings.kl_estimator,
    }


SCENES = (Scene("line", compared, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
