"""Started in each process of tests/engine/test_supervised_ranks.py: trains each kind of objective for a few steps, and writes the losses.

python -m tests.engine.supervised_ranks RESULT.json
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import torch

from rlhf_studio.config import DPOConfig, RewardTrainingConfig, SFTConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.ranks import Ranks, join_ranks
from rlhf_studio.engine.compute.sharding import full_state_dict, shard
from rlhf_studio.engine.stages.dpo import DPOObjective
from rlhf_studio.engine.stages.reward_model.training import BradleyTerryObjective
from rlhf_studio.engine.stages.sft import LanguageModelObjective
from rlhf_studio.engine.stages.supervised.trainer import SupervisedTrainer
from tests.engine.test_supervised_trl import EXAMPLES, PAIRS, make_model


def train(ranks: Ranks) -> dict[str, Any]:
    """Losses, gradient norms, mean loss and one weight of three trainings. The last batch of each epoch has one item."""
    cpu, found = torch.device("cpu"), {}
    for name, labels, items, config in (
        ("sft", 0, [*EXAMPLES, EXAMPLES[0]], SFTConfig),
        ("reward", 1, [*PAIRS, PAIRS[1]], RewardTrainingConfig),
        ("dpo", 0, [*PAIRS, PAIRS[1]], DPOConfig),
    ):
        model = make_model("gpt2", labels)
        objective = {"sft": LanguageModelObjective, "reward": lambda: BradleyTerryObjective(0)}.get(name)
        made = objective() if objective else DPOObjective(0.5, reference=copy.deepcopy(model))
        if ranks.sharded:
            shard(model, ranks, cpu, torch.float32)
        settings = config(batch_size=2, micro_batch_size=1, epochs=2, learning_rate=1e-3)
        trainer = SupervisedTrainer(model, items, made, settings, Compute(cpu, torch.float32, ranks), 0)
        steps = [trainer.step() for _ in range(trainer.total_steps)]
        weights = full_state_dict(model)
        found[name] = {
            "losses": [step.loss for step in steps],
            "norms": [step.grad_norm for step in steps],
            "mean_loss": trainer.mean_loss(items),
            "read": [float(one.sum()) if isinstance(one, torch.Tensor) else one.margin for one in trainer.read(items)],
            "weights": {
                key: float(weights[key].detach().double().square().sum()) for key in ("transformer.wte.weight", "transformer.ln_f.bias")
            },
        }
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    joined = join_ranks(cpu=True)
    result = train(joined)
    if joined.is_main:
        Path(sys.argv[1]).write_text(json.dumps(result), encoding="utf-8")
