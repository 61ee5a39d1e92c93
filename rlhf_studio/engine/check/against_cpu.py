"""Recorded tokens read again on the CPU: one row at a time, by transformers alone, in float32 with plain attention.

A run's own parity check compares passes that all compute on the same device, so a kernel that is wrong in each of them passes it. Here
the weights are loaded anew, from the files that the run started from or kept, and nothing of the engine computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.engine.parity.tolerance import Tolerance, with_rounding_noise
from rlhf_studio.language import S_
from rlhf_studio.runs.paths import snapshot_dir
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord

FLOAT32_ALLOWED = 1e-3
"""Of a log-probability, in nats. Correct float32 passes differ by some 1e-6 of the largest logit; wrong ones by 1e-2 and more."""
QUANTITIES = {"logprobs": S_("the policy"), "ref_logprobs": S_("the reference")}


@dataclass(frozen=True)
class Agreement:
    """How far the numbers of one model lie from the CPU's.

    Attributes:
        of: which log-probabilities.
        tokens: how many were compared.
        largest: largest difference of a token, in nats.
        size, allowed: of the worst row, as :meth:`~rlhf_studio.engine.parity.tolerance.Tolerance.measure` gives them: in float32 the
            largest difference, in bfloat16 the root mean square.
        rms: root mean square of all differences.
    """

    of: str
    tokens: int
    largest: float
    size: float
    allowed: float
    rms: float

    @property
    def holds(self) -> bool:
        return self.size <= self.allowed


def read_again(reader: RunReader, step: int) -> list[Agreement]:
    """Compare the recorded log-probabilities of a step, of policy and reference, with the CPU's.

    The weights with which a later step sampled are the snapshot of the step before it.
    """
    config = reader.config()
    assert isinstance(config, RunConfig)
    rollouts = [reader.rollout(step, listed.sample) for listed in reader.rollouts(step)]  # a list of them has no tokens
    half = "bfloat16" in reader.status().device or config.model.quantization != "none"
    start = load(config, None)
    own = start if step == 1 else load(config, snapshot_dir(reader.run_dir, step - 1) / "policy")
    models = {"logprobs": own, "ref_logprobs": start}
    return [_agreement(config, models[name], rollouts, name, half) for name in QUANTITIES]


def load(config: RunConfig, folder: Path | None) -> PreTrainedModel:
    """The model of a policy's folder, or without one the model that the run started from, on the CPU in float32."""
    adapter = folder is not None and (folder / "adapter_config.json").exists()
    where: Any = config.model.policy if folder is None or adapter else folder
    options = {"revision": config.model.revision} if where == config.model.policy and config.model.revision else {}
    where = bundled_path(str(where)) or where
    model: Any = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, attn_implementation="eager", **options)
    if adapter:
        model = PeftModel.from_pretrained(model, str(folder), torch_device="cpu")  # peft would take a GPU where there is one
    loaded: PreTrainedModel = model.eval()
    return loaded


def _agreement(config: RunConfig, model: PreTrainedModel, rollouts: list[RolloutRecord], name: str, half: bool) -> Agreement:
    recorded = [torch.from_numpy(rollout.tokens.arrays[name].copy()) for rollout in rollouts if rollout.tokens]
    expected, scale = _passes(config, model, rollouts)
    noise = 0.0
    if half:
        with with_rounding_noise(model):
            disturbed, _ = _passes(config, model, rollouts)
        noise = max(_rms(one - other) for one, other in zip(disturbed, expected, strict=True))
    differences = [one - other for one, other in zip(recorded, expected, strict=True)]
    rows = [_measure(difference, half, scale, noise) for difference in differences]
    size, allowed = max(rows, key=lambda row: row[0] / row[1] if math.isfinite(row[0]) else math.inf)
    together = torch.cat(differences)
    return Agreement(name, len(together), float(together.abs().max()), size, allowed, _rms(together))


def _measure(difference: Tensor, half: bool, scale: float, noise: float) -> tuple[float, float]:
    return Tolerance(half).measure(difference, scale, noise) if half else (float(difference.abs().max()), FLOAT32_ALLOWED)


def _passes(config: RunConfig, model: PreTrainedModel, rollouts: list[RolloutRecord]) -> tuple[list[Tensor], float]:
    """The log-probabilities (T,) of each response, and the largest logit by size over the temperature."""
    rows = list(_rows(config, model, rollouts))
    return [logprobs for logprobs, _ in rows], max(scale for _, scale in rows)


@torch.no_grad()
def _rows(config: RunConfig, model: PreTrainedModel, rollouts: list[RolloutRecord]) -> Iterator[tuple[Tensor, float]]:
    for tokens in (rollout.tokens for rollout in rollouts if rollout.tokens):
        prompt, response = (torch.from_numpy(ids.astype("int64")) for ids in (tokens.prompt_ids, tokens.response_ids))
        logits = model(input_ids=torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1] / config.generation.temperature
        yield logits.log_softmax(dim=-1).gather(1, response[:, None]).squeeze(1), float(logits.abs().max())


def _rms(numbers: Tensor) -> float:
    return float(numbers.double().square().mean().sqrt())
