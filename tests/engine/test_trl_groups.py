"""RLOO and GRPO against TRL 1.12's own RLOOTrainer and GRPOTrainer: the same model, prompts and responses.

Each trainer samples and scores a batch by itself. Its advantages must be ours from the same scores, and from log-probabilities that our
own forward pass gives; and for one minibatch the gradient of its loss must be that of ours:

- GRPO with loss_type "bnpo" is a mean over the batch's tokens, as ours always is. ("grpo", "dapo" and "dr_grpo" divide otherwise.)
  With use_bias_correction_kl TRL multiplies the k3 by the ratio; Shao et al. do not, and so do we not.
- RLOO weighs whole responses: its ratio is that of a response, and its mean is over responses. While the ratio is 1 that gives our
  gradient times tokens per response. Ours clips token by token, as PPO does: that is a choice, and docs/from-trl.md says so.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from rlhf_studio.ppo import (
    Minibatch,
    NewPass,
    ObjectiveSettings,
    grpo_advantages,
    kl_per_token,
    ppo_objective,
    rloo_advantages,
    shape_rewards,
)
from tests.engine.conftest import PROMPTS, small_config

pytest.importorskip("trl", reason="trl 1.12 is not installed")

pytestmark = pytest.mark.slow

GROUP, ROWS, BETA, TEMPERATURE = 4, 8, 0.3, 0.8
EXACT = {"rtol": 1e-6, "atol": 1e-6}


class Batch:
    """What TRL computed of one batch.

    Attributes:
        trainer: TRL's.
        output: the batch by TRL's names.
        scores: (B,) float64, what TRL's reward function was asked for and gave.
    """

    def __init__(self, folder: Path, kind: str, **arguments: Any):
        from datasets import Dataset

        trainer, config = trl_classes(kind)
        self.given: list[float] = []
        settings = {
            **{"per_device_train_batch_size": ROWS, "num_generations": GROUP, "max_completion_length": 6, "beta": BETA},
            **{"temperature": TEMPERATURE, "bf16": False, "use_cpu": True, "report_to": "none", "seed": 3, "disable_tqdm": True},
            **{"output_dir": str(folder / kind), "gradient_checkpointing": False, "learning_rate": 1e-9},
        }
        torch.manual_seed(0)
        self.trainer = trainer(
            model=AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32),
            reward_funcs=self.score,
            args=config(**{**settings, **arguments}),
            train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
            processing_class=PreTrainedTokenizerFast.from_pretrained(folder / "policy", padding_side="left"),
        )
        noise = torch.Generator().manual_seed(3)
        with torch.no_grad():  # away from the reference, which was loaded from the same folder
            for parameter in self.trainer.model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=noise))
        rows = [{"prompt": prompt} for prompt in PROMPTS[: ROWS // GROUP] for _ in range(GROUP)]
        self.trainer.model.train()
        for module in self.trainer.model.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
        self.output = self.trainer._generate_and_score_completions(rows)
        self.scores = torch.tensor(self.given)

    def score(self, completions: list[str], **_: Any) -> list[float]:
        """Anything that differs between responses: how often words with odd numbers come, and one at the start."""
        scores = [sum(int(word[1:]) % 7 for word in text.split() if word[1:].isdigit()) / 3 + len(text) % 5 for text in completions]
        self.given = scores
        return scores

    @property
    def mask(self) -> Tensor:
        return self.output["completion_mask"].bool()

    def logprobs(self, model: Any) -> Tensor:
        """(B, T) of the responses by a plain forward pass of each row without padding."""
        ids, actual = self.output["completion_ids"], torch.zeros(self.mask.shape)
        rows = []
        for row in range(len(ids)):
            prompt = self.output["prompt_ids"][row][self.output["prompt_mask"][row].bool()]
            response = ids[row][self.mask[row]]
            logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
            own = logits.log_softmax(-1).gather(1, response[:, None])[:, 0]
            rows.append(torch.cat([own, actual.new_zeros(actual.shape[1] - len(own))]))
        return torch.stack(rows)


def trl_classes(kind: str) -> tuple[Any, Any]:
    """TRL's trainer and its configuration.

    Both trainers' files import TRL's client of a vLLM server, which needs two HTTP libraries that nothing here uses: empty modules take
    their place where they are not installed.
    """
    missing = {
        name: module_from_spec(ModuleSpec(name, None))
        for name in ("requests", "requests.adapters", "urllib3", "urllib3.util", "urllib3.util.retry")
        if find_spec(name.partition(".")[0]) is None
    }
    for name, member in (("requests", "ConnectionError"), ("requests.adapters", "HTTPAdapter"), ("urllib3.util.retry", "Retry")):
        if name in missing:
            setattr(missing[name], member, object)
    sys.modules.update(missing)
    try:
        trl = import_module("trl")
        return getattr(trl, f"{kind.upper()}Trainer"), getattr(trl, f"{kind.upper()}Config")
    finally:
        for name in missing:
            del sys.modules[name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    path = tmp_path_factory.mktemp("groups")
    small_config(path, "llama")  # rotary positions: TRL gives GPT-2 those of a row without padding, whatever stands before it
    return path


def gradients(model: torch.nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [weight for weight in model.parameters() if weight.requires_grad], allow_unused=True))


def reference_of(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32).eval()


def our_loss(batch: Batch, advantages: Tensor, reference: Any, **settings: Any) -> Tensor:
    """Ours of the whole batch, before any optimizer step, as a mean over its tokens."""
    new = batch.logprobs(batch.trainer.model)
    ref = batch.logprobs(reference).detach()
    old = Minibatch(batch.mask, new.detach(), ref, None, advantages, None)
    objective = functools.partial(ppo_objective, settings=ObjectiveSettings(**settings))
    return objective(old, NewPass(new, None, torch.zeros_like(new))).loss_sum / batch.mask.sum()


def close(ours: list[Tensor], theirs: list[Tensor], factor: float = 1.0) -> None:
    assert max(float(gradient.abs().max()) for gradient in theirs) > 1e-3
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own * factor, other, rtol=1e-4, atol=1e-5)


def test_rloo(folder: Path) -> None:
    batch, reference = Batch(folder, "rloo"), reference_of(folder)
    with torch.no_grad():
        kl = kl_per_token(batch.logprobs(batch.trainer.model), batch.logprobs(reference), "k1")
    assert float(kl[batch.mask].abs().mean()) > 0.01 and batch.scores.std() > 0.1
    advantages = rloo_advantages(shape_rewards(kl, batch.scores, batch.mask, BETA), batch.mask, GROUP)
    torch.testing.assert_close(advantages, batch.output["advantages"][:, None] * batch.mask, **EXACT)
    theirs = gradients(batch.trainer.model, batch.trainer.compute_loss(batch.trainer.model, batch.output))
    ours = gradients(batch.trainer.model, our_loss(batch, advantages, reference))
    close(ours, theirs, float(batch.mask.sum()) / ROWS)


def test_grpo(folder: Path) -> None:
    batch, reference = Batch(folder, "grpo", scale_rewards="group", loss_type="bnpo", use_bias_correction_kl=False), reference_of(folder)
    assert batch.scores.std() > 0.1
    advantages = grpo_advantages(batch.scores, batch.mask, GROUP)
    torch.testing.assert_close(advantages, batch.output["advantages"][:, None] * batch.mask, **EXACT)
    batch.trainer.current_gradient_accumulation_steps = 1
    loss = batch.trainer.compute_loss(batch.trainer.model, batch.output)
    mine = our_loss(batch, advantages, reference, kl_coef=BETA, kl_in_loss="k3")
    torch.testing.assert_close(mine, loss, **EXACT)
    close(gradients(batch.trainer.model, mine), gradients(batch.trainer.model, loss))
