"""The traced decoding step against the model's own, and every case in which there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.compute.fused import _tanh_gelu
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.generate import generate
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.sampling.draw import DecodingStep, Drawn, draw_next
from rlhf_studio.engine.sampling.same_numbers import CannotTrace, example
from rlhf_studio.engine.sampling.traced_step import _Step, trace_step
from rlhf_studio.inputs.families import TESTED_FAMILIES
from tests.engine.conftest import small_config
from tests.engine.small_models import save_policy

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced")]

LORA = {"enabled": True, "r": 4}


def ready(trainer: Trainer) -> DecodingStep:
    assert trainer.models.traced_step is not None
    step = trainer.models.traced_step.ready(trainer.config.generation)
    assert step is not None
    return step


def assert_same(ours: Drawn, own: Drawn) -> None:
    for mine, expected in zip(ours, own, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "lora"),
    [("gpt2", {}), ("llama", LORA), *(pytest.param(family, LORA, marks=pytest.mark.long) for family in sorted(TESTED_FAMILIES))],
)
def test_it_gives_the_models_own_numbers_after_updates_too(
    make_trainer: Callable[..., Trainer], tmp_path: Path, family: str, lora: dict[str, Any]
) -> None:
    save_policy(tmp_path / family, family, spread=0.2)
    config = tmp_path / family / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": None}))  # some have one; without it they are traced
    trainer = make_trainer(model={"policy": str(tmp_path / family)}, lora=lora)
    policy, recorded = trainer.models.policy, []
    for _ in range(2):
        with policy.merged(), torch.no_grad():
            step = ready(trainer)
            for rows, length in ((4, 9), (1, 1), (7, 30)):
                ours = step(example(policy, rows, length))
                assert_same(ours, draw_next(policy, trainer.config.generation, example(policy, rows, length)))
            recorded.append(ours.shifted_logits)
        trainer.step()
    assert not torch.allclose(*recorded, atol=1e-4)  # the update did change what is computed


def test_it_gives_the_same_bits_the_first_time_and_later(make_trainer: Callable[..., Trainer]) -> None:
    """TorchScript looks at the first calls and then goes over its program again: a run that was resumed would be at another call."""
    policy = (trainer := make_trainer()).models.policy
    step = ready(trainer)
    sizes = [(6, 9), (3, 12), (6, 9), (1, 5)] * 5
    distributions: dict[tuple[int, int], Tensor] = {}
    for size in sizes:
        distribution = step(example(policy, *size)).shifted_logits
        assert torch.equal(distributions.setdefault(size, distribution), distribution)


def test_it_keeps_nothing_of_itsexample(make_trainer: Callable[..., Trainer]) -> None:
    """Prepacked weights are among the inputs: as much memory as the model again."""
    step = make_trainer().models.traced_step
    assert step is not None and list(step._script._c._retrieve_traced_inputs()) == []


def test_other_settings_are_drawn_without_it(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    for changed in ({"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.9}):
        assert trainer.models.traced_step.ready(trainer.config.generation.model_copy(update=changed)) is None  # type: ignore[union-attr]
    settings = trainer.config.generation.model_copy(update={"temperature": 0.5})
    step = trainer.models.traced_step
    assert step is not None and step.ready(trainer.config.generation) is not None and step.ready(settings) is None
    batch = trainer.prompts.batch([0, 1, 2, 3])
    ours, own = (
        generate(models, batch, settings, torch.Generator().manual_seed(0))[1]
        for models in (trainer.models, replace(trainer.models, traced_step=None))
    )
    assert torch.equal(ours.logprobs, own.logprobs) and torch.equal(ours.entropy, own.entropy)


def test_sampling_with_and_without_it_gives_the_same_episodes(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(model={"value_head_init": "normal"}, generation={"response_length": 12})
    batch = trainer.prompts.batch([0, 1, 2, 3, 4, 5] * 3)
    both = []
    for models in (trainer.models, replace(trainer.models, traced_step=None)):
        both.append(generate(models, batch, trainer.config.generation, torch.Generator().manual_seed(0), recorded=2))
    (tokens, output), (others, others_output) = both
    assert torch.equal(tokens.response_ids, others.response_ids) and torch.equal(tokens.mask, others.mask)
    assert not tokens.mask.all()  # rows ended, and left
    for name in ("logprobs", "entropy", "values"):
        torch.testing.assert_close(getattr(output, name), getattr(others_output, name), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("bloom", "models of the family bloom are not traced"),
        ("phi3", "its key-value cache is of a kind of its own"),  # it has a window
    ],
)
def test_what_is_not_traced_is_sampled_all_the_same_and_told(tmp_path: Path, family: str, why: str) -> None:
    save_policy(tmp_path / family, family)
    config = small_config(tmp_path, model={"policy": str(tmp_path / family)})
    trainer, notes = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    assert trainer.models.traced_step is None
    assert f"Sampling goes through the model step by step, which is slower: {why}." in notes
    trainer.step()


def test_rotations_that_grow_are_not_traced(make_trainer: Callable[..., Trainer]) -> None:
    policy = make_trainer("llama").models.policy
    trace_step(policy, GenerationConfig())
    policy.model.config.rope_parameters["rope_type"] = "dynamic"
    with pytest.raises(CannotTrace, match="its rotary embedding is dynamic"):
        trace_step(policy, GenerationConfig())


def test_a_trace_that_gives_other_numbers_is_refused(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_trainer().models.policy
    own = _Step.forward

    def forward(self: _Step, *inputs: Tensor) -> tuple[Tensor, ...]:
        tokens, logprobs, *rest = own(self, *inputs)
        return tokens, logprobs * 1.001, *rest

    monkeypatch.setattr(_Step, "forward", forward)
    with pytest.raises(CannotTrace, match="gives other numbers"):
        trace_step(policy, GenerationConfig())


def test_a_trace_that_keeps_a_number_of_the_example_is_refused(
    make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The activation in blocks would keep how many the example has."""
    policy = make_trainer().models.policy
    monkeypatch.setattr("rlhf_studio.engine.compute.fused.GELU_BLOCK", 64)
    monkeypatch.setattr("rlhf_studio.engine.compute.fused._traceable_tanh_gelu", lambda x: _tanh_gelu(x, None))
    with pytest.raises(CannotTrace, match="its step cannot be traced"):
        trace_step(policy, GenerationConfig())


def test_a_model_that_cannot_be_traced_is_refused(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_trainer().models.policy
    for error, told in ((RuntimeError("not for tracing\nand more"), "not for tracing"), (TypeError(), "TypeError")):

        def fail(self: _Step, *inputs: Tensor, error: Exception = error) -> tuple[Tensor, ...]:
            raise error

        monkeypatch.setattr(_Step, "forward", fail)
        with pytest.raises(CannotTrace, match=rf"its step cannot be traced \({told}\)"):
            trace_step(policy, GenerationConfig())


def test_only_one_cpu_with_full_precision_traces(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlhf_studio.engine.loop.models.trace_step", lambda *_: pytest.fail("traced"))
    assert make_trainer(model={"dtype": "bfloat16"}).models.traced_step is None
