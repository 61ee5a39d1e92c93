"""Invariants that every model family keeps: padding shifts nothing, the first ratio is 1, the first KL is 0, others can load the result.

The weights are spread so widely that the order of the words matters, and the families with a sliding window have one that is
shorter than prompt and response together.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
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

FAMILIES = ["gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "opt", "falcon", "bloom"]
LORA = {"enabled": True, "r": 4, "dropout": 0.3}
MODES = pytest.mark.parametrize("lora", [{}, LORA], ids=["full", "lora"])
EACH = pytest.mark.parametrize("family", FAMILIES)
Build = Callable[..., Trainer]


def no_timer(phase: str) -> nullcontext[None]:
    return nullcontext()


@functools.cache
def _policies() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    for family in FAMILIES:
        save_policy(Path(folder.name) / family, family, spread=0.2)
    return folder


@pytest.fixture
def build(make_trainer: Build, tmp_path: Path) -> Build:
    """A trainer of the family; its policy's folder is ``tmp_path / family``."""

    def make(family: str, **changes: dict[str, object]) -> Trainer:
        if not (tmp_path / family).exists():
            shutil.copytree(Path(_policies().name) / family, tmp_path / family)
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


@MODES
@EACH
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


@EACH
def test_log_probabilities_equal_an_unpadded_pass_of_the_plain_model(build: Build, tmp_path: Path, family: str) -> None:
    trainer = build(family, generation={"response_length": 6, "temperature": 0.7})
    rollout = collect(trainer.models, trainer.prompts.next_batch(8), 0.1, torch.Generator().manual_seed(0))
    model = plain_model(tmp_path / family)
    for row, (prompt, response) in enumerate(episodes(rollout.tokens)):
        expected = torch.log_softmax(alone(model, prompt, response) / 0.7, dim=-1).gather(1, response[:, None])[:, 0]
        torch.testing.assert_close(rollout.logprobs[row][: len(response)], expected, atol=5e-5, rtol=0)


@EACH
def test_gradients_equal_those_of_the_plain_model(build: Build, tmp_path: Path, family: str) -> None:
    """Of log-probabilities and entropy, through whatever the family does to its logits (Gemma 2 caps them), padding or not."""
    trainer = build(family, generation={"response_length": 6})
    models = trainer.models
    tokens, _ = generate(models, trainer.prompts.batch(list(range(6))), trainer.config.generation, torch.Generator().manual_seed(1))
    logprobs, entropy = consume_logits(models.policy(tokens)[0], tokens.response_ids[tokens.mask], 0.7)
    (logprobs.sum() + 0.3 * entropy.sum()).backward()

    plain = plain_model(tmp_path / family)
    total = torch.zeros(())
    for prompt, response in episodes(tokens):
        logits = plain(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        distribution = torch.log_softmax(logits / 0.7, dim=-1)
        total = total + distribution.gather(1, response[:, None]).sum() - 0.3 * (distribution.exp() * distribution).sum()
    total.backward()
    expected = {name: parameter.grad for name, parameter in plain.named_parameters() if parameter.grad is not None}
    found = {name: parameter.grad for name, parameter in models.policy.model.named_parameters() if parameter.grad is not None}
    assert found.keys() == expected.keys() and len(found) > 12
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=2e-3 * float(gradient.abs().max()) + 1e-5, rtol=1e-3)


@EACH
def test_sampling_follows_the_model(build: Build, tmp_path: Path, family: str) -> None:
    """At a temperature near zero every sampled token is the likeliest one, by the plain model on each episode alone."""
    trainer = build(family, generation={"response_length": 8, "temperature": 1e-6})
    tokens, _ = generate(trainer.models, trainer.prompts.batch(list(range(6))), trainer.config.generation, torch.Generator().manual_seed(0))
    model = plain_model(tmp_path / family)
    for prompt, response in episodes(tokens):
        logits = alone(model, prompt, response)
        chosen = logits.gather(1, response[:, None])[:, 0]
        torch.testing.assert_close(chosen, logits.max(dim=-1).values, atol=5e-5, rtol=0)


@EACH
def test_the_small_models_can_tell_a_wrong_order_and_a_window(tmp_path: Path, family: str) -> None:
    """What makes the tests above sharp: swapped words, and for a windowed family a wider window, change the logits."""
    folder = Path(_policies().name) / family
    ids, swapped = torch.tensor([[2, 3, 4, 5, 6, 7, 8]]), torch.tensor([[2, 3, 4, 6, 5, 7, 8]])
    model = plain_model(folder)
    with torch.no_grad():
        logits = model(ids).logits[:, -1]
        assert (logits - model(swapped).logits[:, -1]).abs().max() > 1e-3
        if getattr(model.config, "sliding_window", None):
            wide = AutoModelForCausalLM.from_pretrained(folder, sliding_window=64).eval()
            assert (logits - wide(ids).logits[:, -1]).abs().max() > 1e-3


def test_reference_stays_while_the_policy_moves(build: Build) -> None:
    for lora in ({}, LORA):
        trainer = build("gpt2", lora=lora)
        batch = collect(trainer.models, trainer.prompts.batch([0, 1, 2, 3]), 0.1, torch.Generator().manual_seed(0)).tokens
        with torch.no_grad():
            before = _reference(trainer, batch)[0].clone()
        trainer.step()
        with torch.no_grad():
            torch.testing.assert_close(_reference(trainer, batch)[0], before, rtol=0, atol=0)
