"""tinker-cookbook: iteration_N/train_rollout_summaries.jsonl (schema 1, ``rl/rollout_logging.py``).

A record is a whole trajectory. Texts are in it only where the environment keeps a ``trace``; else the lengths are all that is known.
"""

from __future__ import annotations

from typing import Any

from rlhf_studio.analysis.logs.forms.form import Form, Reading, Record, each, is_number, numbers_in
from rlhf_studio.analysis.logs.shape import LogFields
from rlhf_studio.language import S_
from rlhf_studio.runs.messages import text_of

NO_TEXTS = S_("The file has no texts of prompts and responses, only their lengths and rewards.")


def _line(record: Record, reading: Reading) -> LogFields | None:
    if record.get("split", "train") != "train":
        reading.note(S_("Only trajectories of the split train are read; those of evaluations are left out."))
        return None
    steps = [step for step in record["steps"] if isinstance(step, dict)] if isinstance(record["steps"], list) else []
    line: LogFields = {"step": record["iteration"], "reward": record["total_reward"], "components": _components(record, steps)}
    if steps and isinstance(reason := steps[-1].get("stop_reason"), str):
        line["stopped"] = reason != "length"
    lengths = [step.get("ac_len") for step in steps]
    counted = [length for length in lengths if type(length) is int]
    length = sum(counted) if lengths and len(counted) == len(lengths) else None
    texts = [_trace(step, "policy_response") for step in steps]
    prompt = _trace(steps[0], "prompt") if steps else None
    if isinstance(prompt, str) and all(isinstance(text, str) for text in texts):
        tokens = reading.tokens_of("\n".join(texts), counted=length is not None)
        return line | {"prompt": prompt} | tokens | ({} if length is None else {"length": length})
    reading.note(NO_TEXTS)
    tags = ", ".join(map(str, record.get("tags") or ()))
    return line | {"prompt": f"(group {record['group_idx']}{': ' if tags else ''}{tags})", "response": "(no text)", "length": length}


def _components(record: Record, steps: list[Record]) -> dict[str, float]:
    """The group's part of the reward, and the metrics of the trajectory and of its only step."""
    parts = numbers_in(record["trajectory_metrics"], set()) if isinstance(record.get("trajectory_metrics"), dict) else {}
    if len(steps) == 1 and isinstance(metrics := steps[0].get("metrics"), dict):
        parts |= numbers_in(metrics, set())
    return parts | ({"final_reward": float(record["final_reward"])} if is_number(record.get("final_reward")) else {})


def _trace(step: Record, name: str) -> Any:
    """The text of a conversation in a step's trace; None where there is none."""
    trace = step.get("trace")
    conversation = trace.get(name) if isinstance(trace, dict) else None
    return text_of(conversation.get("messages")) if isinstance(conversation, dict) else None


FORM = Form(
    "tinker-cookbook",
    S_("tinker-cookbook's rollout summaries"),
    ("iteration", "group_idx", "traj_idx", "total_reward", "steps"),
    each(_line),
    {"step": "iteration", "reward": "total_reward", "length": "ac_len"},
)
