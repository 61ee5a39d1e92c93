"""Scores: one number for each response."""

from __future__ import annotations

import torch

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.size import RESPONSES
from rlhf_studio.lessons.tour.line import MOST, NEEDS, SAMPLE, STEP, label, table

NUMBER = 3


def scored(run: LessonRun, step: float, sample: float) -> Numbers:
    """The scores around a response; its own, asked from the reward model again."""
    samples, row = run.samples(int(step)), int(sample) - 1
    first = min(max(row - MOST // 2, 0), RESPONSES - MOST)
    shown = range(first, first + MOST)
    scores = torch.tensor([one.score for one in samples])
    stopped = torch.tensor([one.stopped for one in samples])
    one, mean = samples[row], float(scores.mean())
    gold_mean = sum(other.gold for other in samples) / len(samples)
    again, _ = run.score([one.prompt], [one.response], stopped=one.stopped)
    return {
        "columns": [f"[{place}]" for place in shown],
        "rows": {
            label("shaped", scores): [float(scores[place]) for place in shown],
            label("stopped", stopped): [str(stopped[place].item()) for place in shown],
        },
        "at": row - first,
        "score": one.score,
        "again": again[0],
        "mean": mean,
        "gold": one.gold,
        "text": f"{one.prompt}{one.response}",
        "above": one.score > mean,
        "gold_mean": gold_mean,
        "agree": (one.gold > gold_mean) == (one.score > mean),
    }


SCENES = (
    Scene(
        "line",
        scored,
        controls=(STEP, SAMPLE),
        needs=NEEDS,
        pictures={"tensors": table},
    ),
)
