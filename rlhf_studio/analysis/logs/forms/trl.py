"""TRL: ``log_completions`` writes completions/completions_STEP.parquet (TRL 1.12 to 1.16, ``log`` of the GRPO and RLOO trainers).

The total that the advantages were computed from is not in the file, as the functions' weights are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rlhf_studio.analysis.logs.forms.form import Form, Reading, Record, is_number, numbers_in
from rlhf_studio.analysis.logs.shape import LogFields
from rlhf_studio.runs.messages import text_of

USED = {"step", "prompt", "completion", "advantage"}
CLOSE = 1e-3  # of the largest advantage of a group


def _translate(records: Sequence[Record], reading: Reading) -> Iterator[tuple[int, LogFields]]:
    rewards = _rewards(records, reading)
    said = hash(tuple((repr(record["prompt"]), repr(record["completion"])) for record in records))
    if said == reading.memory.get("said"):
        reading.note("Some steps have the same responses as the step before: one generation served several of the trainer's steps.")
    reading.memory["said"] = said
    for number, record in enumerate(records):
        components = numbers_in(record, USED)
        reading.pass_over(record, USED | {name for name, value in record.items() if is_number(value) or value is None})
        tokens = reading.tokens_of(text_of(record["completion"]))
        advantage, count = record["advantage"], len(tokens.get("response_tokens", ()))
        line = {"step": record["step"], "prompt": text_of(record["prompt"]), **tokens, "components": components}
        line |= {"advantages": [advantage] * count} if is_number(advantage) and count else {}
        yield number, line | ({} if rewards is None or math.isnan(rewards[number]) else {"reward": rewards[number]})


def _rewards(records: Sequence[Record], reading: Reading) -> list[float] | None:
    """The total reward of each response; None where the columns do not add up to what the advantages say.

    A column that the trainer's user has logged beside the reward functions looks like one of them.
    """
    names = list(dict.fromkeys(name for record in records for name in numbers_in(record, USED)))
    if not names:
        return None
    table = np.array([[numbers_in(record, USED).get(name, math.nan) for name in names] for record in records])
    totals = np.where(np.isnan(table).all(axis=1), math.nan, np.nansum(table, axis=1))
    if len(names) > 1:
        if not any(_agrees(totals, records, groups) for groups in _groups(records)):
            reading.note(
                f"The columns {', '.join(names)} do not add up to what the advantages were computed from (TRL's reward_weights are not in "
                "the file), so the reward is unknown; each column is a component."
            )
            return None
        reading.note(f"The reward is the sum of the columns {', '.join(names)}, with which the advantages agree.")
    return [float(total) for total in totals]


def _groups(records: Sequence[Record]) -> list[list[list[int]]]:
    """The responses to one prompt, twice: those that lie together, as the trainer writes them, and all of a text."""
    together: list[list[int]] = []
    by_prompt: dict[str, list[int]] = {}
    before = None
    for number, prompt in enumerate(repr(record["prompt"]) for record in records):
        by_prompt.setdefault(prompt, []).append(number)
        if prompt != before:
            together.append([])
        together[-1].append(number)
        before = prompt
    return [together, list(by_prompt.values())]


def _agrees(totals: np.ndarray, records: Sequence[Record], groups: list[list[int]]) -> bool:
    """Whether advantages are the totals less their group's mean, times some positive number, in each group."""
    advantages = np.array([record["advantage"] if is_number(record["advantage"]) else math.nan for record in records], float)
    told = 0
    for rows in groups:
        own, theirs = totals[rows] - totals[rows].mean(), advantages[rows]
        if not np.isfinite([*own, *theirs]).all():
            return False
        differ = float(np.abs(own).max()) > 0
        scale = float(own @ theirs) / float(own @ own) if differ else 0.0
        if (differ and scale <= 0) or np.abs(theirs - scale * own).max() > CLOSE * max(np.abs(theirs).max(), 1e-6):
            return False
        told += differ
    return told > 0


FORM = Form(
    "TRL",
    "TRL's completions",
    ("step", "prompt", "completion", "advantage"),
    "`step`, `prompt`, `completion` (texts or chat messages), `advantage`; a column of numbers for each reward function",
    _translate,
    {"response": "completion", "advantages": "advantage"},
)
