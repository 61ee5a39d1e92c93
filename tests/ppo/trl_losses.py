"""Runs under TRL 1.16: GRPOTrainer's own loss of given log-probabilities, and its gradient. Reads JSON, writes JSON.

Only the loss is TRL's here. What it asks its trainer for is put in by hand: the log-probabilities are given, and there is one process.
"""

import json
import sys
from collections import defaultdict
from types import SimpleNamespace

import torch
from trl import GRPOTrainer


def trainer_with(case: dict, new: torch.Tensor) -> SimpleNamespace:
    """What ``_compute_loss`` asks of its trainer."""
    itself = SimpleNamespace(reduce=lambda x, reduction: x, gather=lambda x: x, num_processes=1, sync_gradients=True)
    return SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (new, torch.zeros_like(new), None),
        accelerator=itself,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=case["delta"], steps_per_generation=1),
        aux_loss_enabled=False,
        beta=case["beta"],
        current_gradient_accumulation_steps=1,
        epsilon_high=case["epsilon_high"],
        epsilon_low=case["epsilon"],
        importance_sampling_level=case["importance_sampling_level"],
        loss_type=case["loss_type"],
        max_completion_length=case["max_completion_length"],
        model=SimpleNamespace(training=True),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
    )


def answer(case: dict, batch: dict) -> dict:
    """Loss, gradient by the new log-probabilities, and the share of tokens or responses that were clipped."""
    new, old, reference, advantages = (torch.tensor(batch[name], dtype=torch.float64) for name in ("new", "old", "ref", "advantages"))
    new.requires_grad_()
    mask = torch.tensor(batch["mask"]).long()
    prompts = torch.ones(len(mask), 1, dtype=torch.long)
    inputs = {
        **{"prompt_ids": prompts, "prompt_mask": prompts, "completion_ids": mask, "completion_mask": mask},
        **{"advantages": advantages, "old_per_token_logps": old, "ref_per_token_logps": reference, "num_items_in_batch": mask.sum()},
    }
    trainer = trainer_with(case, new)
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    loss.backward()
    return {"loss": loss.item(), "gradient": new.grad.tolist(), "clipped": trainer._metrics["train"]["clip_ratio/region_mean"][0]}


given = json.load(sys.stdin)
json.dump([answer(case, given["batch"]) for case in given["cases"]], sys.stdout)
