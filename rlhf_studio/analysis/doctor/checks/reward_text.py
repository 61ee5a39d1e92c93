"""What the reward reads: whether the texts fit into what a reward model takes."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.check import Course, check
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.series import levels
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.language import _
from rlhf_studio.units import percent

FAMILY = "Reward"

METRIC = "tokens/reward_cut"
MANY_CUT = 0.05  # share of a step's texts: fewer are the few longest prompts of a data set, most steps have none of them
ALL_CUT = 0.95  # share that counts as all of them


@check(
    "reward-text-cut",
    FAMILY,
    title="The reward model does not read the whole text",
    rule=f"a note where any text of a step lost its beginning; at {percent(MANY_CUT)} or more a warning, at {percent(ALL_CUT)} an alarm",
    cause="Prompt and response together are longer than the reward model's longest text, so it scores their end alone: first the prompt is "
    "lost, then the beginning of the answer.",
    advice="Raise the component's longest text (max_tokens) as far as the model has positions, or use shorter prompts or responses.",
    stages=("ppo", "evaluation"),
)
def reward_text_cut(run: RecordedRun) -> Course | None:
    share = run.column(METRIC)
    if not run.has(METRIC):
        return None

    def evidence(since: int, last: int) -> list[Evidence]:
        return [_cut_evidence(run, index, share) for index in dict.fromkeys([since, last])]

    return Course(levels(note=share > 0, warning=share >= MANY_CUT, alarm=share >= ALL_CUT), evidence, from_start=True)


def _cut_evidence(run: RecordedRun, index: int, share: np.ndarray) -> Evidence:
    """How many texts of a step were cut, and what was left of that which lost most."""
    step, words = int(run.steps[index]), _("{share} of the texts were cut").format(share=percent(float(share[index])))
    reading = None if run.reader is None else run.reader.episode_arrays(step, ["reading"]).get("reading")
    if reading is not None:
        lost = reading[:, 1] - reading[:, 0]
        read, length = reading[int(lost.argmax())].tolist()
        words += _("; of one the reward model read the last {read:,} of {length:,} tokens").format(read=read, length=length)
    return Evidence(words, step=step, metric=METRIC)
