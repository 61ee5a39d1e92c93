"""Products with prepacked weights, against those of the layers and of the model itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rlhf_studio.engine.compute.lanes import Lanes
from rlhf_studio.engine.loop.generate import generate
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.sampling.decode import sample_responses
from rlhf_studio.engine.sampling.prepacked import PrepackedWeight, layers_to_prepack, min_rows_per_lane, prepack, using_packed
from rlhf_studio.engine.sampling.same_numbers import CannotTrace
from rlhf_studio.engine.sampling.traced_step import trace_step
from rlhf_studio.inputs.estimate.cpu import LEAST_TOKENS
from rlhf_studio.inputs.estimate.device import processor

pytestmark = [
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN"),
    pytest.mark.usefixtures("traced"),
]


@pytest.fixture
def matrices_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlhf_studio.engine.sampling.prepacked.LEAST_NUMBERS", 1)


def small_layers() -> list[nn.Module]:
    torch.manual_seed(0)
    convolution = Conv1D(24, 40)
    nn.init.normal_(convolution.bias)
    return [nn.Linear(40, 24), nn.Linear(40, 7, bias=False), convolution]


def prepacked(layers: list[nn.Module]) -> list[PrepackedWeight]:
    return prepack(layers, [layer.weight.data_ptr() for layer in layers])


def packed(layers: list[nn.Module]) -> list[Tensor]:
    return [weights.packed for weights in prepacked(layers)]


@pytest.mark.parametrize("shape", [(1, 40), (33, 40), (5, 1, 40)])
@torch.no_grad()
def test_a_product_is_the_layers_own(shape: tuple[int, ...]) -> None:
    layers, x = small_layers(), torch.randn(shape)
    own = [layer(x) for layer in layers]
    with using_packed(layers, packed(layers)):
        ours = [layer(x) for layer in layers]
        layers[0].weight.add_(1)
        torch.testing.assert_close(layers[0](x), own[0])  # the packed weights are a copy
    for mine, expected in zip(ours, own, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(layers[0](x), own[0])  # and the layer's own weights are back in use


@pytest.mark.parametrize("frozen", [True, False])
@torch.no_grad()
def test_changed_weights_are_prepacked_in_the_same_memory(frozen: bool) -> None:
    layers = small_layers()
    for layer in layers:
        layer.requires_grad_(not frozen)
    kept = prepacked(layers)
    before, x = [weights.packed for weights in kept], torch.randn(4, 40)
    for layer in layers:
        layer.weight.copy_(torch.randn_like(layer.weight))  # as a resumed run does, frozen or not
    own = [layer(x) for layer in layers]
    Lanes(2).map(PrepackedWeight.refresh, kept)
    with using_packed(layers, before):
        for layer, expected in zip(layers, own, strict=True):
            torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)


def test_only_frozen_weights_without_adapters_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = small_layers()
    layers[0].requires_grad_(False)
    layers[1].requires_grad_(False)
    addresses = [layer.weight.data_ptr() for layer in layers]
    layers[1].weight.data = layers[1].weight.data + 1  # an adapter is added
    kept = prepack(layers, addresses)
    assert [weights.frozen for weights in kept] == [True, False, False]
    monkeypatch.setattr("rlhf_studio.engine.sampling.prepacked._reorder", lambda layer: pytest.fail("packed again"))
    kept[0].refresh()
    for weights in kept[1:]:
        with pytest.raises(pytest.fail.Exception):
            weights.refresh()


def test_layers_multiply_by_their_own_weights_again_after_a_failure() -> None:
    layers = small_layers()
    with pytest.raises(ValueError, match="stop"), using_packed(layers, packed(layers)):
        raise ValueError("stop")
    assert not any("forward" in vars(layer) for layer in layers)


def test_large_matrices_in_full_precision_are_prepacked() -> None:
    large, small, half = nn.Linear(1024, 512), nn.Linear(1024, 511), nn.Linear(1024, 1024, dtype=torch.bfloat16)
    model = nn.ModuleList([large, small, half, Conv1D(1024, 768), nn.Embedding(1024, 1024)])
    assert layers_to_prepack(model, LEAST_TOKENS) == [large, model[3]]
    assert layers_to_prepack(model, LEAST_TOKENS - 1) == []


@pytest.mark.parametrize(("total", "chosen"), [(8 * 40 * 24 * 4, 1), (8 * 40 * 24 * 4 - 1, 0), (None, 1)])
def test_they_take_an_eighth_of_the_memory_at_most(
    monkeypatch: pytest.MonkeyPatch, matrices_of_any_size: None, total: int | None, chosen: int
) -> None:
    monkeypatch.setattr("rlhf_studio.engine.sampling.prepacked.processor", lambda: replace(processor(), total=total))
    assert len(layers_to_prepack(small_layers()[0], LEAST_TOKENS)) == chosen


@pytest.mark.parametrize(("family", "lora"), [("llama", {}), ("gpt2", {"enabled": True, "r": 4})], ids=["full", "lora"])
def test_sampling_gives_the_models_own_numbers_after_updates_too(
    make_trainer: Callable[..., Trainer], matrices_of_any_size: None, family: str, lora: dict[str, Any]
) -> None:
    settings = {"response_length": LEAST_TOKENS}
    trainer = make_trainer(family, lora=lora, model={"value_head_init": "normal"}, generation=settings)
    step = trainer.models.traced_step
    assert step is not None and len(step._prepacked) > 4
    batch, recorded = trainer.prompts.batch([0, 1, 2, 3, 4, 5] * 3), []
    for _ in range(2):
        ours, own = (
            generate(models, batch, trainer.config.generation, torch.Generator().manual_seed(0), recorded=2)
            for models in (trainer.models, replace(trainer.models, traced_step=None))
        )
        assert torch.equal(ours[0].response_ids, own[0].response_ids)
        for name in ("logprobs", "entropy", "values"):
            torch.testing.assert_close(getattr(ours[1], name), getattr(own[1], name), atol=2e-5, rtol=1e-5)
        recorded.append(ours[1].logprobs[:, 0])
        trainer.step()
    assert not torch.allclose(*recorded, atol=1e-5)  # the update did change what is computed


def test_prepacked_again_it_gives_the_same_bits(make_trainer: Callable[..., Trainer], matrices_of_any_size: None) -> None:
    """A run that was resumed packs its weights at another time."""
    trainer = make_trainer(generation={"response_length": LEAST_TOKENS})
    batch = trainer.prompts.batch([0, 1, 2])
    first, *later = (generate(trainer.models, batch, trainer.config.generation, torch.Generator().manual_seed(0))[1] for _ in range(4))
    assert all(torch.equal(output.logprobs, first.logprobs) for output in later)


def test_a_lane_of_its_own_takes_more_rows_where_reading_weights_is_most_of_a_step() -> None:
    large, small = nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1023, bias=False)
    assert min_rows_per_lane(nn.ModuleList([large, small]), [large]) == 16
    assert min_rows_per_lane(nn.ModuleList([large, small]), [small]) == 8
    assert min_rows_per_lane(nn.ModuleList([large, small]), []) == 8


@pytest.mark.parametrize(("with_step", "parts"), [(True, [18]), (False, [9, 9])])
def test_threads_with_few_rows_of_a_large_model_sample_together(
    make_trainer: Callable[..., Trainer], matrices_of_any_size: None, monkeypatch: pytest.MonkeyPatch, with_step: bool, parts: list[int]
) -> None:
    trainer, played = make_trainer(generation={"response_length": LEAST_TOKENS}), []
    models = replace(trainer.models, compute=replace(trainer.compute, lanes=Lanes(2)))
    if not with_step:
        models = replace(models, traced_step=None)

    def count(policy: Policy, prompt_ids: Tensor, *rest: Any, **named: Any) -> Any:
        played.append(len(prompt_ids))
        return sample_responses(policy, prompt_ids, *rest, **named)

    monkeypatch.setattr("rlhf_studio.engine.loop.generate.sample_responses", count)
    generate(models, trainer.prompts.batch([0, 1, 2] * 6), trainer.config.generation, torch.Generator().manual_seed(0))
    assert played == parts


def test_wrong_packed_weights_are_refused(
    make_trainer: Callable[..., Trainer], matrices_of_any_size: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(generation={"response_length": LEAST_TOKENS})

    def pack_another(layers: list[nn.Module], addresses: list[int]) -> list[PrepackedWeight]:
        other = nn.Linear(*reversed(layers[-1].weight.shape)).requires_grad_(False)
        return prepack([*layers[:-1], other], [*addresses[:-1], other.weight.data_ptr()])

    monkeypatch.setattr("rlhf_studio.engine.sampling.traced_step.prepack", pack_another)
    with pytest.raises(CannotTrace, match="gives other numbers"):
        trace_step(trainer.models.policy, trainer.config.generation)
