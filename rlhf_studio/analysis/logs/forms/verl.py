"""verl: ``trainer.rollout_data_dir``, a file STEP.jsonl for each step (verl 0.9.1, ``_write_generations`` of the PPO trainers)."""

from __future__ import annotations

from rlhf_studio.analysis.logs.forms.form import Form, Reading, Record, each, numbers_in
from rlhf_studio.analysis.logs.shape import LogFields
from rlhf_studio.language import S_

USED = {"input", "output", "score", "step"}


def _line(record: Record, reading: Reading) -> LogFields:
    """``score`` is the sum of the token-level scores; numbers beside it come from the reward function (``acc`` ...).

    Of numpy's values verl writes true and false as texts.
    """
    values = {name: value == "True" if value in ("True", "False") else value for name, value in record.items()}
    components = numbers_in(values, USED | {"gts"})
    reading.pass_over(record, USED | components.keys())
    line = {"step": record["step"], "prompt": record["input"], "reward": record["score"], **reading.tokens_of(record["output"])}
    return line | ({"components": components} if components else {})


FORM = Form(
    "verl",
    S_("verl's rollouts"),
    ("input", "output", "score", "step"),
    each(_line),
    {"prompt": "input", "response": "output", "reward": "score"},
)
