"""TRL: ``log_completions`` writes completions/completions_STEP.parquet (TRL 1.12 to 1.16, ``log`` of the GRPO and RLOO trainers).

The total that the advantages were computed from is not in the file, as the functions' weights are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rlhf_studio.analysis.logs.forms.form import Form, Reading, Record, is_number, numbers_in
from rlhf_studio.analysis.logs.shape import LogFields
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.language import S_
from rlhf_studio.runs.messages import text_of
from rlhf_studio.runs.records import reward_told
from rlhf_studio.visible import visible

USED = {"step", "prompt", "completion", "advantage"}


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


def _columns(records: Sequence[Record], reading: Reading) -> list[str]:
    """The columns of numbers so far, as they came.

    One without a value is among them until it has a text: a reward function may return None.
    """
    seen: dict[str, bool] = reading.memory.setdefault("columns", {})
    for record in records:
        for name, value in record.items():
            gap = value is None or (isinstance(value, float) and math.isnan(value))
            if name not in USED:
                seen[name] = seen.get(name, True) and (gap or is_number(value))
    return [name for name, numbers in seen.items() if numbers]


def _rewards(records: Sequence[Record], reading: Reading) -> list[float] | None:
    """The reward of each response, where there is one column of numbers. None with several: they may be anything that was logged, and
    advantages cannot tell their weights: TRL divides them by the spread of their group, and what is constant in a group drops out.
    """
    names = _columns(records, reading)
    if reading.weights:
        return _weighted(records, reading, names)
    if not names:
        return None
    if len(names) > 1:
        reading.note(
            " ".join(
                (
                    S_(
                        f"The reward is unknown: it is a sum of some of the columns {', '.join(names)}, with TRL's reward_weights, which "
                        "are not in the file."
                    ),
                    S_("Each column is a component."),
                    S_(f"Give the weights to see a score: --reward-weights, here {','.join('1' * len(names))} with TRL's defaults."),
                )
            )
        )
        return None
    return [numbers_in(record, USED).get(names[0], math.nan) for record in records]


def _weighted(records: Sequence[Record], reading: Reading, names: list[str]) -> list[float]:
    """The sum of the columns with the weights that a person gave, without parts that are not known. A response without any is unknown."""
    if len(names) != len(reading.weights):
        given = S_("1 reward weight is") if len(reading.weights) == 1 else S_(f"{len(reading.weights)} reward weights are")
        columns = S_("1 column") if len(names) == 1 else S_(f"{len(names)} columns")
        raise ConfigError([Problem("", f"{given} given for {columns} of numbers ({', '.join(names)}); give each column one")])
    reading.reward = reward_told(reading.weights, names)
    reading.note(f"The reward is the sum {reading.reward}, with the weights that were given.")
    sums = []
    for record in records:
        parts = numbers_in(record, USED)
        known = [weight * parts[name] for name, weight in zip(names, reading.weights, strict=True) if name in parts]
        sums.append(math.fsum(known) if known else math.nan)
    return sums


def weights_of(text: str) -> list[float]:
    """Reward weights as a person writes them, with commas between. Raises ConfigError."""
    try:
        weights = [float(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        weights = [math.nan]
    if not all(map(math.isfinite, weights)):
        raise ConfigError(
            [Problem("", f"reward weights are numbers with commas between, such as 1,1; not {visible(text, lines=False)[:60]}")]
        )
    return weights


FORM = Form(
    "TRL",
    S_("TRL's completions"),
    ("step", "prompt", "completion", "advantage"),
    _translate,
    {"response": "completion", "advantages": "advantage"},
)
