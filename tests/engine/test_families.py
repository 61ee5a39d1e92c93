"""Invariants that every model family keeps: padding shifts nothing, the first ratio is 1, the first KL is 0, others can load the result.

The weights are spread so widely that the order of the words matters, and the families with a sliding window have one that is
shorter than prompt and response together.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.engine.loop.generate import generate
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import save_model
from rlhf_studio.engine.types import TokenBatch
from tests.engine.conftest import collect
from tests.engine.small_models import save_policy

pytestmark = pytest.mark.slow

DAILY = ["gpt2", "llama", "gemma2", "opt", "bloom"]  # positions: learned, rotated, in a window (with capped logits), with an offset, none
LONG = [pytest.param(family, marks=pytest.mark.long) for family in ("gpt_neox", "mistral", "qwen2", "qwen3", "phi3", "falcon")]
LORA = {"enabled": True, "r": 4, "dropout": 0.3}
Build = Callable[..., Trainer]


def no_timer(phase: str) -> nullcontext[None]:
    return nullcontext()


@pytest.fixture
def build(make_trainer: Build, tmp_path: Path) -> Build:
    """A trainer of the family; its policy's folder is ``tmp_path / family``."""

    def make(family: str, **changes: dict[str, object]) -> Trainer:
        if not (tmp_path / family).exists():
            save_policy(tmp_path / family, family, spread=0.2)
        return make_trainer("gpt2", model={"policy": str(tmp_path / family)}, **changes)

    return make


def plain_model(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True).eval()


def episodes(tokens: TokenBatch) -> list[tuple[Tensor, Tensor]]:
    """Prompt and response of each episode without padding."""
    kept = [(tokens.prompt_ids[row][tokens.prompt_mask[row]], tokens.response_ids[row][tokens.mask[row]]) for row in range(len(tokens))]
    assert len({len(prompt) for prompt, _ in kept}) > 1
    return kept


@torch.no_grad()
def alone(model: torch.nn.Module, prompt: Tensor, response: Tensor) -> Tensor:
    """Independent answer: logits (T, V) of one episode, no padding, no position ids, no mask, straight from transformers."""
    return model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]


def assert_same_logits(ours: Tensor, model: torch.nn.Module, tokens: TokenBatch) -> None:
    expected = torch.cat([alone(model, prompt, response) for prompt, response in episodes(tokens)])
    torch.testing.assert_close(ours, expected, atol=5e-5, rtol=0)


@pytest.mark.parametrize(("family", "lora"), [("gpt2", {}), ("gemma2", LORA)])  # all others: tests/families
def test_two_updates_and_what_is_saved(build: Build, tmp_path: Path, family: str, lora: dict[str, object]) -> None:
    trainer = build(family, lora=lora)
    models = trainer.models
    first, second = trainer.step().metrics, trainer.step().metrics
    assert first["policy/first_log_ratio"] <= 1e-4 and second["policy/first_log_ratio"] <= 1e-4
    assert abs(first["objective/kl"]) <= 1e-4
    assert abs(second["objective/kl"]) > 1e-4  # the update moved the policy away from the reference
    assert first["optim/steps"] == 2 * 2  # passes times minibatches

    tokens, _ = generate(models, trainer.prompts.batch(list(range(6))), trainer.config.generation, torch.Generator().manual_seed(3))
    start = plain_model(tmp_path / family)
    with torch.no_grad():
        ours, (reference_ours, _) = models.policy(tokens)[0], _reference(trainer, tokens)
    assert_same_logits(reference_ours, start, tokens)  # whatever the policy learned, the reference is the starting model

    save_model(models.policy.model, tmp_path / "saved", tmp_path / "base")
    saved = PeftModel.from_pretrained(start, tmp_path / "saved") if lora else plain_model(tmp_path / "saved")
    assert_same_logits(ours, saved, tokens)
    assert not (tmp_path / "base").exists()


def _reference(trainer: Trainer, tokens: TokenBatch) -> tuple[Tensor, Tensor]:
    with trainer.models.reference.active() as reference:
        return reference(tokens)


@pytest.mark.parametrize("family", [*DAILY, *LONG])
def test_log_probabilities_gradients_and_samples_are_those_of_the_plain_model(build: Build, tmp_path: Path, family: str) -> None:
    """Of each episode alone, without padding. The order of the words matters to the weights, and the window where there is one."""
    trainer = build(family, generation={"response_length": 6, "temperature": 0.7})
    plain = plain_model(tmp_path / family)
    assert_sharp(plain, tmp_path / family)
    rollout = collect(trainer.models, trainer.prompts.next_batch(8), 0.1, torch.Generator().manual_seed(0))
    for row, (prompt, response) in enumerate(episodes(rollout.tokens)):
        expected = torch.log_softmax(alone(plain, prompt, response) / 0.7, dim=-1).gather(1, response[:, None])[:, 0]
        torch.testing.assert_close(rollout.logprobs[row][: len(response)], expected, atol=5e-5, rtol=0)

    assert_same_gradients(trainer, rollout.tokens, plain)

    coldest = trainer.config.generation.model_copy(update={"temperature": 1e-6})  # every sampled token is the likeliest
    models = trainer.models.using(trainer.config.model_copy(update={"generation": coldest}))
    tokens, _ = generate(models, trainer.prompts.batch(list(range(6))), coldest, torch.Generator().manual_seed(0))
    for prompt, response in episodes(tokens):
        logits = alone(plain, prompt, response)
        chosen = logits.gather(1, response[:, None])[:, 0]
        torch.testing.assert_close(chosen, logits.max(dim=-1).values, atol=5e-5, rtol=0)


def assert_same_gradients(trainer: Trainer, tokens: TokenBatch, plain: PreTrainedModel) -> None:
    """Of log-probabilities and entropy, through whatever the family does to its logits (Gemma 2 caps them), padding or not."""
    policy = trainer.models.policy
    logprobs, entropy = consume_logits(policy(tokens)[0], tokens.response_ids[tokens.mask], 0.7)
    (logprobs.sum() + 0.3 * entropy.sum()).backward()
    total = torch.zeros(())
    for prompt, response in episodes(tokens):
        logits = plain(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        distribution = torch.log_softmax(logits / 0.7, dim=-1)
        total = total + distribution.gather(1, response[:, None]).sum() - 0.3 * (distribution.exp() * distribution).sum()
    total.backward()
    expected = {name: parameter.grad for name, parameter in plain.named_parameters() if parameter.grad is not None}
    actual = {name: parameter.grad for name, parameter in policy.model.named_parameters() if parameter.grad is not None}
    assert actual.keys() == expected.keys() and len(actual) > 12
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, atol=2e-3 * float(gradient.abs().max()) + 1e-5, rtol=1e-3)


@torch.no_grad()
def assert_sharp(model: PreTrainedModel, folder: Path) -> None:
    """Swapped words, and for a windowed family a wider window, change the logits."""
    ids, swapped = torch.tensor([[2, 3, 4, 5, 6, 7, 8]]), torch.tensor([[2, 3, 4, 6, 5, 7, 8]])
    logits = model(ids).logits[:, -1]
    assert (logits - model(swapped).logits[:, -1]).abs().max() > 1e-3
    if getattr(model.config, "sliding_window", None):
        wide = AutoModelForCausalLM.from_pretrained(folder, sliding_window=64).eval()
        assert (logits - wide(ids).logits[:, -1]).abs().max() > 1e-3
