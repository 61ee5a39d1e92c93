"""The first station: a batch of prompts, padded on the left."""

from __future__ import annotations

from rlhf_studio.engine.padding import pad_left
from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import MOST, NEEDS, SAMPLE, STEP, label, table

NUMBER = 1


def padded(run: LessonRun, step: float, sample: float) -> Numbers:
    """The prompts of a step as the engine pads them, and one row of them."""
    samples, row = run.samples(int(step)), int(sample) - 1
    ids, mask = pad_left([one.prompt_ids for one in samples], 0)
    own, width = len(samples[row].prompt_ids), ids.shape[1]
    shown = range(max(width - MOST, 0), width)
    texts = [str(run.tokenizer.decode([token])).strip() if keep else "" for token, keep in zip(ids[row], mask[row], strict=True)]
    return {
        "columns": [texts[place] or "·" for place in shown],
        "rows": {
            label("ids", ids): [str(ids[row, place].item()) for place in shown],
            label("mask", mask): [str(mask[row, place].item()) for place in shown],
        },
        "prompt": samples[row].prompt,
        "tokens": own,
        "width": width,
        "padding": width - own,
        "batch": len(samples),
        "padded": width > own,
        "real": [int(x) for x in mask[row]],
        "same_length": len({len(one.prompt_ids) for one in samples}) == 1,
    }


SCENES = (
    Scene(
        "line",
        padded,
        controls=(STEP, SAMPLE),
        needs=NEEDS,
        pictures={"tensors": table},
    ),
)
