"""Scores: one number for each response."""

from __future__ import annotations

import torch

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.size import RESPONSES
from rlhf_studio.lessons.tour.line import MOST, NEEDS, SAMPLE, STEP, label, table

NUMBER = 3


def scored(run: LessonRun, step: float, sample: float) -> Numbers:
    """The scores around a response; its own score is computed again by the reward model."""
    samples, row = run.samples(int(step)), int(sample) - 1
    first = min(max(row - MOST // 2, 0), RESPONSES - MOST)
    columns = range(first, first + MOST)
    scores = torch.tensor([response.score for response in samples])
    stopped = torch.tensor([response.stopped for response in samples])
    chosen, mean = samples[row], float(scores.mean())
    gold_mean = sum(other.gold for other in samples) / len(samples)
    again, _ = run.score([chosen.prompt], [chosen.response], stopped=chosen.stopped)
    return {
        "columns": [f"[{column}]" for column in columns],
        "rows": {
            label("shaped", scores): [float(scores[column]) for column in columns],
            label("stopped", stopped): [str(stopped[column].item()) for column in columns],
        },
        "at": row - first,
        "score": chosen.score,
        "again": again[0],
        "mean": mean,
        "gold": chosen.gold,
        "text": f"{chosen.prompt}{chosen.response}",
        "above": chosen.score > mean,
        "gold_mean": gold_mean,
        "agree": (chosen.gold > gold_mean) == (chosen.score > mean),
    }


SCENES = (Scene("line", scored, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
