"""Writes data/trl_0_11_step.json: what TRL 0.11.4's own PPOTrainer.step gives. Run it where that release can be imported:

pip install trl==0.11.4 && python make_step_vectors.py
"""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from small_program import CASES, fill, make_model, make_step, make_tokenizer


def numbers(value: object) -> object:
    """Eight digits are enough, and make a small file."""
    if isinstance(value, np.ndarray | torch.Tensor):
        return [numbers(entry) for entry in value.tolist()] if value.ndim else float(f"{float(value):.8g}")
    return [numbers(entry) for entry in value] if isinstance(value, list) else float(f"{float(value):.8g}")


def run(name: str) -> dict[str, object]:
    """The steps of one case: their statistics, and some of the weights after each."""
    from trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer

    np.random.permutation = lambda count: np.arange(count)  # the order of episodes is no part of the comparison
    random.seed(0)
    with tempfile.TemporaryDirectory() as folder:
        make_model(1).save_pretrained(folder)
        model, reference = (AutoModelForCausalLMWithValueHead.from_pretrained(folder) for _ in range(2))
    fill(model.v_head, 7, 0.2)
    fill(reference.pretrained_model, 2)
    trainer = PPOTrainer(PPOConfig(**CASES[name]), model, reference, make_tokenizer())
    steps = []
    for number in range(1 if name == "gradient" else 2):
        queries, responses, scores, masks = make_step(number, masked=name == "masked")
        stats = trainer.step(queries, responses, scores, response_masks=masks)
        whole, starts = stats["objective/logprobs"], [len(query) - 1 for query in queries]
        logprobs = [whole[row][start : start + len(responses[row])] for row, start in enumerate(starts)]
        scalars = {key: numbers(value) for key, value in stats.items() if not key.startswith("time/") and np.ndim(value) == 0}
        state = model.state_dict()
        weights = {
            key: numbers(state[key]) for key in ("transformer.h.0.mlp.c_proj.weight", "v_head.summary.weight", "v_head.summary.bias")
        }
        kept = {"logprobs": [numbers(row) for row in logprobs], "kl_dist": numbers(stats["objective/kl_dist"])}
        steps.append({"scalars": scalars, "weights": weights, **kept, "next_kl_coef": float(trainer.kl_ctl.value)})
    return {"options": CASES[name], "steps": steps}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    path = Path(__file__).parent / "data" / "trl_0_11_step.json"
    path.write_text(json.dumps({name: run(name) for name in CASES}), encoding="utf-8")
