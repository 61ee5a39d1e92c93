"""prime-rl: ``enable_token_export`` writes token_exports/step_N/rank_R.jsonl (schemas 1 and 2, ``trainer/rl/token_export.py``).

Lists over prompt and response together, aligned with the tokens; the reward of a response stands at each of its tokens. There are no texts.
"""

from __future__ import annotations

from typing import Any

from rlhf_studio.analysis.logs.forms.form import Form, Reading, Record, each, is_number
from rlhf_studio.analysis.logs.shape import LogFields
from rlhf_studio.language import S_

ARRAYS = {
    "logprobs": "inference_logprobs",
    "new_logprobs": "trainer_logprobs",
    "advantages": "advantages",
    "entropy": "entropy",
    "ratio": "importance_ratio",
    "clipped": "is_masked",
}
USED = {"step", "export_step", "token_ids", "loss_mask", "rewards", *ARRAYS.values()}
PLACES = {"schema_version", "rank", "micro_step", "micro_sequence_idx", "export_sequence_idx", "position_ids", "run_id", "sample_id"}


def _line(record: Record, reading: Reading) -> LogFields | None:
    mask, ids = record["loss_mask"], record["token_ids"]
    if not isinstance(mask, list) or not isinstance(ids, list) or len(mask) != len(ids) or not any(mask):
        return {"step": record["step"], "prompt": "", "response_tokens": ids, "response_ids": mask}  # to be refused by its name
    reading.pass_over(record, USED | PLACES)
    reading.note(reading.cutter.note_of_ids)
    start = mask.index(True)
    own = mask[start:]
    pieces = reading.cutter.pieces(ids)
    step = record.get("export_step")
    line: LogFields = {
        "step": record["step"] if step is None else step,
        "prompt": "".join(pieces[:start]),
        "prompt_tokens": pieces[:start],
        "prompt_ids": ids[:start],
        "response_tokens": pieces[start:],
        "response_ids": ids[start:],
    }
    if not all(own):
        reading.note(S_("Some tokens inside responses were not the policy's own (loss_mask is false there): their numbers are unknown."))
    line |= {ours: _where(own, record[theirs][start:]) for ours, theirs in ARRAYS.items() if _known(record.get(theirs), len(ids))}
    rewards: Any = record.get("rewards")
    if _known(rewards, len(ids)) and is_number(rewards[start]):
        line["reward"] = rewards[start]
    return line


def _known(numbers: Any, length: int) -> bool:
    """Whether a list has a number at all: what was not computed is a list of nulls."""
    return isinstance(numbers, list) and len(numbers) == length and any(number is not None for number in numbers)


def _where(own: list[bool], numbers: list[Any]) -> list[Any]:
    return [number if mine else None for mine, number in zip(own, numbers, strict=True)]


FORM = Form(
    "prime-rl",
    S_("prime-rl's token exports"),
    ("step", "token_ids", "loss_mask", "inference_logprobs"),
    each(_line),
    {"response_ids": "loss_mask", "response_tokens": "token_ids", "reward": "rewards", **ARRAYS},
)
