"""Rollouts as other programs write them: each function is that program's own way to write, copied in shape, for one step.

Each takes the folder that the program's user names, and the step as the program counts it. ``GROUPS`` are the prompts; of each there are
two responses, with rewards 0 and 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

GROUPS = ("What is 1+1?", "What is 2+2?")
ROWS = [(prompt, f"It is {number}, {prompt[8]} or so.", float(number % 2)) for prompt in GROUPS for number in range(2)]


def verl(folder: Path, step: int) -> None:
    """verl 0.9.1, ``RayPPOTrainer._write_generations``."""
    folder.mkdir(parents=True, exist_ok=True)
    scores = [reward for *_, reward in ROWS]
    base_data: dict[str, list[Any]] = {
        "input": [f"user\n{prompt}\nassistant\n" for prompt, *_ in ROWS],
        "output": [response for _, response, _ in ROWS],
        "gts": ["2", "2", "4", "4"],
        "score": scores,
        "step": [step] * len(ROWS),
        "acc": [np.bool_(score == 1) for score in scores],  # written as a text: default=str
        "pred": ["0", "1", "0", "1"],
    }
    with open(folder / f"{step}.jsonl", "w") as file:
        for row in range(len(ROWS)):
            entry = {key: values[row] for key, values in base_data.items()}
            file.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")


def trl(folder: Path, step: int) -> None:
    """TRL 1.12 (the same lines in 1.16), ``GRPOTrainer.log`` with ``log_completions``: two reward functions and a logged column."""
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    short = [0.5, 0.5, 0.5, float("nan")]
    totals = [reward + (0 if part != part else part) for (*_, reward), part in zip(ROWS, short, strict=True)]
    advantages = []
    for first in (0, 2):
        mean = sum(totals[first : first + 2]) / 2
        spread = abs(totals[first] - totals[first + 1]) / 2**0.5
        advantages += [(total - mean) / (spread + 1e-4) for total in totals[first : first + 2]]
    table = {
        "step": [step] * len(ROWS),
        "prompt": [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}] for prompt, *_ in ROWS],
        "completion": [[{"role": "assistant", "content": response}] for _, response, _ in ROWS],
        "accuracy_reward": [reward for *_, reward in ROWS],
        "length_reward": short,
        "solution": ["2", "2", "4", "4"],
        "advantage": advantages,
    }
    pd.DataFrame(table).to_parquet(folder / "completions" / f"completions_{step:05d}.parquet")


def prime_rl(folder: Path, step: int) -> None:
    """prime-rl, ``TokenExporter.export`` of schema 1 (commit 004274e): two ranks, and a response with a token of the environment."""
    for rank in (0, 1):
        export_dir = folder / "token_exports" / f"step_{step}"
        export_dir.mkdir(parents=True, exist_ok=True)
        for index, (_, _, reward) in enumerate(ROWS[2 * rank : 2 * rank + 2]):
            mask = [False, False, True, False, True]
            record = {
                **{"schema_version": 1, "step": step, "export_step": step, "rank": rank, "micro_step": 0, "micro_sequence_idx": index},
                **{"export_sequence_idx": index, "run_id": None, "env_name": "sums", "token_ids": [40 + rank, 41, 50, 51, 52]},
                **{"position_ids": [0, 1, 2, 3, 4], "loss_mask": mask, "advantages": [0.0, 0.0, reward - 0.5, 0.0, reward - 0.5]},
                **{"losses": [{"rl": {"advantage": 0.0, "mask": own}} for own in mask], "rewards": [reward] * 5},
                **{"inference_logprobs": [0.0, 0.0, -0.5, 0.0, -0.25], "trainer_logprobs": [-9.0, -1.0, -0.75, -2.0, -0.25]},
                **{"entropy": [1.0, 1.0, 0.5, 1.0, 0.75], "mismatch_kl": [0.0] * 5, "log_importance_ratio": [0.0] * 5},
                **{"importance_ratio": [1.0, 1.0, 0.75, 1.0, 1.0], "prob_delta": [0.0] * 5},
                **{"is_masked": [False, False, True, False, False], "is_masked_high": [None] * 5, "is_masked_low": [None] * 5},
            }
            with (export_dir / f"rank_{rank}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")
    for stable in (folder / "token_exports").glob("step_*"):
        (stable / "STABLE").touch()


def tinker(folder: Path, step: int) -> None:
    """tinker-cookbook (commit 08ee6ea), ``serialize_rollout_summaries`` with the trace of ``ProblemEnv``; and an evaluation's."""
    iteration = folder / f"iteration_{step:06d}"
    iteration.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{\n  "model": "m"\n}\n')
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "env/all/reward/total": 0.5}) + "\n")
    for split, base in (("eval/test", "eval_test"), ("train", "train")):
        with open(iteration / f"{base}_rollout_summaries.jsonl", "w") as file:
            for index, (prompt, response, reward) in enumerate(ROWS):
                said = {"type": "conversation", "messages": [{"role": "assistant", "content": response}]}
                asked = {"type": "conversation", "messages": [{"role": "user", "content": prompt}]}
                only = {
                    **{"step_idx": 0, "ob_len": 7, "ac_len": 9, "reward": reward, "episode_done": True},
                    **{"stop_reason": "stop" if reward else "length", "metrics": {"format": 1.0, "correct": reward}, "logs": {}},
                    "trace": {"prompt": asked, "policy_response": said, "reward": {"reference_answer": "2", "correct": bool(reward)}},
                }
                record = {
                    **{"schema_version": 1, "split": split, "iteration": step, "group_idx": index // 2, "traj_idx": index % 2},
                    **{"tags": ["problems"], "sampling_client_step": None, "total_reward": reward, "final_reward": 0.0},
                    **{"trajectory_metrics": {}, "steps": [only], "final_ob_len": 0},
                }
                file.write(json.dumps(record) + "\n")


def openrlhf(folder: Path, step: int) -> None:
    """OpenRLHF 0.11.2, ``WandbLogger.log_train``: a table with all samples so far, as wandb keeps it among the run's files."""
    table = folder / "files" / "media" / "table" / "train"
    table.mkdir(parents=True, exist_ok=True)
    before = max(table.iterdir(), default=None, key=lambda file: file.stat().st_size)
    rows = json.loads(before.read_text())["data"] if before else []
    rows.append([step, f"{ROWS[1][0]} {ROWS[1][1]}", ROWS[1][2]])
    text = json.dumps({"columns": ["global_step", "text", "reward"], "data": rows})
    (table / f"generated_samples_{2 * step}_{step:020x}.table.json").write_text(text)


def board(folder: Path, step: int) -> None:
    """RL Logging Board's own sample, a poem task: one file that grows, texts alone."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "data.jsonl").open("a", encoding="utf-8") as file:
        for prompt, response, reward in ROWS:
            line = {"prompt": prompt, "response": response, "reward": reward, "step": step, "ref_response": "Two.", "ref_reward": 0.0}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def board_tokens(folder: Path, step: int) -> None:
    """The line of RL Logging Board's README: its list of tokens ends with padding that its lists of numbers do not have. A file a rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in (0, 1):
        with (folder / f"rank{rank}.jsonl").open("a", encoding="utf-8") as file:
            for prompt, _, reward in ROWS[2 * rank : 2 * rank + 2]:
                line = {
                    **{"prompt": f"<PAD>{prompt}", "response": "道德似梅。<EOD><PAD>"},
                    "response_tokens": ["道德", "似", "梅", "。", "<EOD>", "<PAD>"],
                    "logprobs": [-4.711000442504883, -0.79, -4.159769535064697, -0.00083, -2.3e-05],
                    "ref_logprobs": [-4.71875, -0.80078125, -4.15625, -0.00083160400390625, -2.3245811462402344e-05],
                    "values": [-0.302734375, -0.353515625, -0.1474609375, 0.08642578125, -0.09765625],
                    "token_rewards": [-0.00154, -0.00026, 0.0007, -2.8e-07, -4.7e-08],
                    **{"reward": reward, "step": step},
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def ours(folder: Path, step: int) -> None:
    """Lines of this program's own form, with metrics, in one file."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
        for prompt, response, reward in ROWS:
            line = {
                "step": step,
                "prompt": prompt,
                "response_tokens": [response[:3], response[3:]],
                "logprobs": [-1, -0.5],
                "reward": reward,
            }
            file.write(json.dumps(line) + "\n")
        file.write(json.dumps({"kind": "step", "step": step, "metrics": {"lr": 0.5}}) + "\n")


WRITERS: dict[str, Callable[[Path, int], None]] = {
    writer.__name__: writer for writer in (verl, trl, prime_rl, tinker, openrlhf, board, board_tokens, ours)
}
