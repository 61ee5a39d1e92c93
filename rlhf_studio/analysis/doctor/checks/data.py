"""Data and tokenizers."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.check import Course, check
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.series import levels
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.language import _
from rlhf_studio.units import percent

FAMILY = "Data"

FEWEST_PROMPTS = 32  # recorded prompts; with fewer the check says nothing
FEW_DISTINCT, VERY_FEW_DISTINCT = 0.5, 0.1  # share of them that are distinct, after responses per prompt are counted once

PAD_IS_END = "pad token equals its end token"  # of the event that the engine writes when it loads such a tokenizer
OTHER_TOKENIZER = "has another tokenizer than the policy"  # the same


@check(
    "duplicate-prompts",
    FAMILY,
    title="The same prompts come again and again",
    rule=f"of the first {FEWEST_PROMPTS} or more recorded prompts fewer than {percent(FEW_DISTINCT)} (warning: "
    f"{percent(VERY_FEW_DISTINCT)}) are distinct",
    cause="The prompts file is small or has many repeats, so the policy learns these prompts by heart.",
    advice="Use more prompts, or drop repeats.",
)
def duplicate_prompts(run: RunData) -> Course | None:
    each = run.config.ppo.responses_per_prompt
    step_levels = np.zeros(len(run.steps), dtype=np.int8)
    prompts: list[str] = []
    text = ""
    for step, rows in run.looks:
        prompts += list(dict.fromkeys(row.prompt for row in rows)) if each > 1 else [row.prompt for row in rows]
        if len(prompts) >= FEWEST_PROMPTS:
            share = len(set(prompts)) / len(prompts)
            step_levels[run.steps >= step] = 2 if share < VERY_FEW_DISTINCT else 1 if share < FEW_DISTINCT else 0
            text = _("{prompts} distinct among {prompts2} recorded prompts").format(prompts=len(set(prompts)), prompts2=len(prompts))
            break
    changes = {} if run.config.data.drop_duplicates else {"data.drop_duplicates": True}
    return Course(step_levels, lambda since, last: [Evidence(text, step=int(run.steps[since]))], changes=changes, from_start=True)


@check(
    "pad-is-end",
    FAMILY,
    title="The pad token is the end token",
    rule="the policy's tokenizer has one token for both",
    cause="Programs that find padding by its id then hide the real ends from learning. Here masks come from lengths, so nothing is wrong.",
    advice="Nothing to do here. Mind it when you use the trained model with other programs.",
)
def pad_is_end(run: RunData) -> Course | None:
    return _from_event(run, PAD_IS_END)


@check(
    "tokenizers-differ",
    FAMILY,
    title="The reward model reads other tokens than the policy writes",
    rule="the engine says that a reward model has another tokenizer",
    cause="The response is turned into text and tokenised again for the reward model. What no text can say, such as "
    "special tokens, is lost on "
    "the way.",
    advice="Try the reward on a few texts and see that its scores make sense; compare with the model's own example.",
)
def tokenizers_differ(run: RunData) -> Course | None:
    return _from_event(run, OTHER_TOKENIZER)


def _from_event(run: RunData, words: str) -> Course | None:
    events = [event for event in run.events if event.kind == "health" and words in event.text]
    if not events:
        return None
    evidence = [Evidence(events[0].text.rstrip("."))]
    return Course(levels(note=np.ones(len(run.steps), dtype=bool)), lambda since, last: evidence, from_start=True)
