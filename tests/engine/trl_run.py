"""TRL 1.12's own PPOTrainer on a small model, with given responses, and everything that it computed along the way.

Its ``train`` is one long function; what it holds is read from its frame at two places: where it whitens the advantages (the
rollout is complete there) and where it calls backward (a micro-batch's losses are complete there).
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.types import TokenBatch

PAD, EOS = 0, 1


@dataclass
class TrlRun:
    """What one run of TRL computed.

    Attributes:
        rollouts: tensors of each batch by TRL's own names, taken where the advantages are about to be whitened.
        micro_batches: tensors of each micro-batch by TRL's own names, taken at the call of backward.
        metrics: what TRL logged, per batch.
        weights: the policy's weights at the end.
        critic: the critic's weights at the end.
        optimizer_steps: steps that really happened.
    """

    rollouts: list[dict[str, Tensor]] = field(default_factory=list)
    micro_batches: list[dict[str, Tensor]] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    critic: dict[str, Tensor] = field(default_factory=dict)
    optimizer_steps: int = 0

    def tokens(self) -> TokenBatch:
        """The first batch as our engine holds it."""
        first = self.rollouts[0]
        prompts, responses = first["queries"], first["responses"]
        return TokenBatch(prompts, prompts != PAD, responses, ~first["padding_mask"])


def given_responses(batch: int, length: int, *, short: bool) -> Tensor:
    """(batch, length) ids of ordinary words; when ``short``, three of four rows end early with the end token and are padded."""
    ids = torch.randint(2, 30, (batch, length), generator=torch.Generator().manual_seed(5))
    if short:
        for row in range(batch):
            if row % 4 < 3:
                end = 1 + row % (length - 1)
                ids[row, end], ids[row, end + 1 :] = EOS, PAD
    return ids


def run_trl(folder: Path, policy: Policy, *, short: bool = False, rows: int = 24, updates: int = 1, **arguments: Any) -> TrlRun:
    """Train with TRL for a few batches of eight, starting from the weights of our ``policy`` and with a critic of the same values.

    The reference and the tokenizer are the saved policy's, the reward model is ``folder / "reward"``. ``arguments`` go to PPOConfig.
    """
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    from datasets import Dataset
    from trl.experimental.ppo import PPOConfig, PPOTrainer, ppo_trainer

    settings = {
        **{"per_device_train_batch_size": 8, "num_ppo_epochs": 1, "response_length": 6, "stop_token": "eos" if short else None},
        **{"learning_rate": 1e-3, "lr_scheduler_type": "constant", "adam_epsilon": 1e-5, "kl_coef": 0.1, "temperature": 1.0},
        **{"num_sample_generations": 0, "total_episodes": 8 * updates, "optim": "adamw_torch", "gradient_checkpointing": False},
        **{"bf16": False, "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "output_dir": str(folder / "trl")},
        **arguments,
    }
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "policy")
    trainer = PPOTrainer(
        args=PPOConfig(**settings),
        processing_class=tokenizer,
        model=_causal_lm(folder, policy),
        ref_model=AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32),
        reward_model=AutoModelForSequenceClassification.from_pretrained(folder / "reward", dtype=torch.float32),
        value_model=_critic(folder, policy),
        train_dataset=Dataset.from_dict(
            {"input_ids": [[2 + (row * 7 + index) % 28 for index in range(1 + row % 5)] for row in range(rows)]}
        ),
    )
    run = TrlRun()
    trainer.optimizer.optimizer.register_step_post_hook(lambda *_: setattr(run, "optimizer_steps", run.optimizer_steps + 1))
    trainer.log = lambda metrics, *_: run.metrics.append(dict(metrics))
    with _watched(ppo_trainer, trainer, run, given_responses(8, settings["response_length"], short=short)):
        trainer.train()
    run.weights, run.critic = (
        {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        for model in (trainer.policy_model, trainer.value_model)
    )
    return run


def _causal_lm(folder: Path, policy: Policy) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    model.load_state_dict(policy.model.state_dict())
    return model


def _critic(folder: Path, policy: Policy) -> Any:
    """A separate model that gives our values: the critic's trunk (or the policy's), the same row of weights (the bias is 0)."""
    model = AutoModelForSequenceClassification.from_pretrained(folder / "policy", num_labels=1, dtype=torch.float32)
    trunk = policy.model.base_model if policy.critic is None else policy.critic.model
    getattr(model, model.base_model_prefix).load_state_dict(trunk.state_dict())
    with torch.no_grad():
        model.score.weight.copy_(policy.value_head.weight)
    assert float(policy.value_head.bias.detach()) == 0
    return model


@contextlib.contextmanager
def _watched(module: Any, trainer: Any, run: TrlRun, responses: Tensor) -> Iterator[None]:
    """Give TRL the responses and keep what it computes."""
    whiten, backward = module.masked_whiten, trainer.accelerator.backward

    def generate(model: Any, queries: Tensor, pad: int, generation: Any) -> tuple[Tensor, Tensor]:
        whole = torch.cat([queries, responses], dim=1)
        # What generate() returns as scores: the logits that each response token was drawn from, divided by the temperature.
        logits = module.forward(model, whole, pad).logits[:, queries.shape[1] - 1 : -1]
        return whole, logits / generation.temperature

    def watched_whiten(values: Tensor, mask: Tensor, shift_mean: bool = True) -> Tensor:
        if shift_mean:  # the advantages; rewards are whitened without shifting their mean
            run.rollouts.append(_tensors(inspect.currentframe().f_back) | {"whitened": whiten(values, mask)})
        return whiten(values, mask, shift_mean)

    def watched_backward(loss: Tensor) -> None:
        run.micro_batches.append(_tensors(inspect.currentframe().f_back))
        backward(loss)

    with (
        mock.patch.object(module, "generate", torch.no_grad()(generate)),
        mock.patch.object(module, "masked_whiten", watched_whiten),
        mock.patch.object(trainer.accelerator, "backward", watched_backward),
    ):
        yield


def _tensors(frame: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in frame.f_locals.items() if isinstance(value, Tensor)}
