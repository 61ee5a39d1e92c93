"""The models of a run, and what they need to work: what stays the same from step to step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import rows_worth_a_lane
from rlhf_studio.engine.models.forward import ForwardPass
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.engine.rewards.scorer import Scorer
from rlhf_studio.engine.sampling.same_numbers import CannotTrace
from rlhf_studio.engine.sampling.static_step import StaticStep, static_step
from rlhf_studio.engine.sampling.traced_step import TracedStep, trace_step
from rlhf_studio.inputs.ends import Ends
from rlhf_studio.language import S_


@dataclass(frozen=True)
class Models:
    """Policy (with its critic), reference and reward models of one run.

    Attributes:
        scorer: the reward components, with their reward models.
        stop_ids: the tokens that end a response; empty where only the length does.
        ends: the tokens that end what the policy writes, whatever the settings say.
        pad_id: fills padding; its value never matters.
        traced_step: the policy's decoding step, traced for a CPU or captured for a GPU; None asks the policy itself.
    """

    policy: Policy
    reference: Reference
    scorer: Scorer
    tokenizer: PreTrainedTokenizerBase
    config: RunConfig
    compute: Compute
    stop_ids: tuple[int, ...]
    ends: Ends
    pad_id: int
    traced_step: TracedStep | StaticStep | None = None

    @property
    def forward_pass(self) -> ForwardPass:
        """Forward passes in parts of a micro-batch, at the sampling temperature."""
        least = rows_worth_a_lane(self.policy)
        return ForwardPass(self.compute, self.config.generation.temperature, self.config.ppo.micro_batch, least)

    def using(self, config: RunConfig) -> Models:
        """The same models with other settings; the decoding step is traced anew where it samples in another way."""
        same = config.generation == self.config.generation
        return replace(self, config=config, traced_step=self.traced_step if same else traced(self.policy, config, self.compute)[0])


def traced(policy: Policy, config: RunConfig, compute: Compute) -> tuple[TracedStep | StaticStep | None, list[str]]:
    """The policy's decoding step, traced for the lanes of a CPU or captured for a GPU, and a note where it has to do without."""
    on_gpu = compute.device.type == "cuda"
    if compute.ranks.sharded or (not on_gpu and compute.dtype is not torch.float32):
        return None, []
    try:
        return static_step(policy, config.generation, compute) if on_gpu else trace_step(policy, config.generation), []
    except CannotTrace as error:
        return None, [S_(f"Sampling goes through the model step by step, which is slower: {error}.")]
