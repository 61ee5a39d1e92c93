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
    ids, mask = pad_left([response.prompt_ids for response in samples], 0)
    own, width = len(samples[row].prompt_ids), ids.shape[1]
    columns = range(max(width - MOST, 0), width)
    texts = [str(run.tokenizer.decode([token])).strip() if keep else "" for token, keep in zip(ids[row], mask[row], strict=True)]
    return {
        "columns": [texts[column] or "·" for column in columns],
        "rows": {
            label("ids", ids): [str(ids[row, column].item()) for column in columns],
            label("mask", mask): [str(mask[row, column].item()) for column in columns],
        },
        "prompt": samples[row].prompt,
        "tokens": own,
        "width": width,
        "padding": width - own,
        "batch": len(samples),
        "padded": width > own,
        "real": [int(x) for x in mask[row]],
        "same_length": len({len(response.prompt_ids) for response in samples}) == 1,
    }


SCENES = (Scene("line", padded, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
