"""Losses and gradients against GRPOTrainer of TRL 1.16, with ratios that were clipped. Needs ``python -m benchmarks.peers trl-1.16``."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.peers import folder, interpreter
from rlhf_studio.ppo import Minibatch, NewPass, ObjectiveSettings, ppo_objective

NAME = "trl-1.16"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (folder() / NAME).exists(), reason=f"python -m benchmarks.peers {NAME} makes the environment"),
]

AVERAGE = {"grpo": "responses", "bnpo": "tokens", "dapo": "tokens", "dr_grpo": "constant"}
LIMITS: list[dict[str, Any]] = [
    {"epsilon": 0.2, "epsilon_high": 0.2, "delta": None, "beta": 0.0},
    {"epsilon": 0.1, "epsilon_high": 0.28, "delta": 1.5, "beta": 0.3},
]
CASES = [
    {"loss_type": loss, "importance_sampling_level": level, "max_completion_length": 9, **limits}
    for loss, level, limits in itertools.product(AVERAGE, ("token", "sequence"), LIMITS)
]


def test_every_loss_and_level(mask: torch.Tensor, noise: Callable[..., torch.Tensor]) -> None:
    old, ref, moved = (noise(4, 6, dtype=torch.float64) for _ in range(3))
    new = old + 0.3 * moved + torch.tensor([[0.3], [-0.4], [0.5], [0.0]])  # whole responses move too, so that their ratios are clipped
    advantages = torch.tensor([1.3, -0.4, -2.0, 0.7], dtype=torch.float64)
    batch = {"mask": mask, "new": new, "old": old, "ref": ref, "advantages": advantages}
    done = subprocess.run(
        [interpreter(NAME), Path(__file__).with_name("trl_losses.py")],
        input=json.dumps({"batch": {name: x.tolist() for name, x in batch.items()}, "cases": CASES}),
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for case, theirs in zip(CASES, json.loads(done.stdout), strict=True):
        limits = {"cliprange": case["epsilon"], "cliprange_high": case["epsilon_high"], "dual_clip": case["delta"]}
        kinds = {"ratio_level": case["importance_sampling_level"], "loss_average": AVERAGE[case["loss_type"]], "longest": 9}
        settings = ObjectiveSettings(**limits, **kinds, kl_coef=case["beta"], kl_in_loss="k3" if case["beta"] else None)
        ours = new.clone().requires_grad_()
        given = Minibatch(mask, old, ref, None, advantages[:, None].expand(4, 6), None)
        loss, sums = ppo_objective(given, NewPass(ours, None, torch.zeros_like(old)), settings)
        loss = loss / settings.divisor(mask)
        (gradient,) = torch.autograd.grad(loss, ours)
        assert 0 < theirs["clipped"] < 1 and 0 < sums.clipped < sums.tokens, case
        assert loss.item() == pytest.approx(theirs["loss"], abs=1e-6), case
        torch.testing.assert_close(gradient, torch.tensor(theirs["gradient"], dtype=torch.float64), rtol=0, atol=1e-6)
