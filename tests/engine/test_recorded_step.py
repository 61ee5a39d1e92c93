"""The recorded decoding step against the model's own, and every way to do without one."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.build import build_trainer
from rlhf_studio.engine.device import choose_compute
from rlhf_studio.engine.drawing import Drawn, draw_next
from rlhf_studio.engine.fused import _tanh_gelu
from rlhf_studio.engine.recorded_step import RECORDED_FAMILIES, CannotRecord, DecodingStep, _example, _Step, record_step
from rlhf_studio.engine.rollout import sample
from rlhf_studio.engine.trainer import Trainer
from tests.engine.conftest import small_config
from tests.engine.small_models import save_policy

pytestmark = pytest.mark.slow

LORA = {"enabled": True, "r": 4}


def ready(trainer: Trainer) -> DecodingStep:
    assert trainer.player.recorded_step is not None
    step = trainer.player.recorded_step.ready(trainer.config.generation)
    assert step is not None
    return step


def assert_same(ours: Drawn, own: Drawn) -> None:
    for mine, expected in zip(ours, own, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lora", [{}, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("family", sorted(RECORDED_FAMILIES))
def test_it_gives_the_models_own_numbers_after_updates_too(
    make_trainer: Callable[..., Trainer], tmp_path: Path, family: str, lora: dict[str, Any]
) -> None:
    save_policy(tmp_path / family, family, spread=0.2)
    config = tmp_path / family / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": None}))  # some have one; without it they are recorded
    trainer = make_trainer(model={"policy": str(tmp_path / family)}, lora=lora)
    policy, seen = trainer.player.policy, []
    for _ in range(2):
        with policy.merged(), torch.no_grad():
            step = ready(trainer)
            for rows, length in ((4, 9), (1, 1), (7, 30)):
                ours = step(*_example(policy, rows, length))
                assert_same(ours, draw_next(policy, trainer.config.generation, *_example(policy, rows, length)))
            seen.append(ours.distribution)
        trainer.step()
    assert not torch.allclose(*seen, atol=1e-4)  # the update did change what is computed


def test_several_steps_with_rows_that_leave(make_trainer: Callable[..., Trainer]) -> None:
    policy = (trainer := make_trainer()).player.policy
    found = []
    for ask in (ready(trainer), functools.partial(draw_next, policy, trainer.config.generation)):
        ids, attention, positions, uniforms, cache = _example(policy, rows=5, length=4)
        cache.layers = [type(layer)(9) for layer in cache.layers]
        with torch.no_grad():
            policy.next_logits(torch.full((5, 4), 3), attention[:, :-1], torch.arange(4).expand(5, 4), cache)
            first = ask(ids, attention, positions, uniforms, cache)
            kept = torch.tensor([0, 3])
            cache.batch_select_indices(kept)
            attention = torch.cat([attention[kept], torch.ones(2, 1, dtype=torch.int64)], dim=1)
            found.append((first, ask(first.tokens[kept, None], attention, positions[kept] + 1, uniforms[kept], cache)))
        assert cache.get_seq_length() == 6
    for ours, own in zip(*found, strict=True):
        assert_same(ours, own)


def test_it_gives_the_same_bits_the_first_time_and_later(make_trainer: Callable[..., Trainer]) -> None:
    """TorchScript looks at the first calls and then goes over its program again: a run that was resumed would be at another call."""
    policy = (trainer := make_trainer()).player.policy
    step = ready(trainer)
    sizes = [(6, 9), (3, 12), (6, 9), (1, 5)] * 5
    distributions: dict[tuple[int, int], Tensor] = {}
    for size in sizes:
        distribution = step(*_example(policy, *size)).distribution
        assert torch.equal(distributions.setdefault(size, distribution), distribution)


def test_it_keeps_nothing_of_its_example(make_trainer: Callable[..., Trainer]) -> None:
    """Weights laid out anew are among the inputs: as much memory as the model again."""
    step = make_trainer().player.recorded_step
    assert step is not None and list(step._script._c._retrieve_traced_inputs()) == []


@pytest.mark.parametrize("changed", [{"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.9}])
def test_other_settings_are_drawn_without_it(make_trainer: Callable[..., Trainer], changed: dict[str, Any]) -> None:
    trainer = make_trainer()
    settings = trainer.config.generation.model_copy(update=changed)
    step = trainer.player.recorded_step
    assert step is not None and step.ready(trainer.config.generation) is not None and step.ready(settings) is None
    batch = trainer.prompts.batch([0, 1, 2, 3])
    ours, own = (
        sample(player, batch, settings, torch.Generator().manual_seed(0))[1]
        for player in (trainer.player, replace(trainer.player, recorded_step=None))
    )
    assert torch.equal(ours.logprobs, own.logprobs) and torch.equal(ours.entropy, own.entropy)


def test_sampling_with_and_without_it_gives_the_same_episodes(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(model={"value_head_init": "normal"}, generation={"response_length": 12})
    batch = trainer.prompts.batch([0, 1, 2, 3, 4, 5] * 3)
    both = []
    for player in (trainer.player, replace(trainer.player, recorded_step=None)):
        both.append(sample(player, batch, trainer.config.generation, torch.Generator().manual_seed(0), recorded=2))
    (tokens, said), (others, others_said) = both
    assert torch.equal(tokens.response_ids, others.response_ids) and torch.equal(tokens.mask, others.mask)
    assert not tokens.mask.all()  # rows ended, and left
    for name in ("logprobs", "entropy", "values"):
        torch.testing.assert_close(getattr(said, name), getattr(others_said, name), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("bloom", "models of the family bloom are not recorded"),
        ("phi3", "its key-value cache is of a kind of its own"),  # it has a window
    ],
)
def test_what_is_not_recorded_is_sampled_all_the_same_and_told(tmp_path: Path, family: str, why: str) -> None:
    save_policy(tmp_path / family, family)
    config = small_config(tmp_path, model={"policy": str(tmp_path / family)})
    trainer, notes = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    assert trainer.player.recorded_step is None
    assert f"Sampling goes through the model step by step, which is slower: {why}." in notes
    trainer.step()


def test_rotations_that_grow_are_not_recorded(make_trainer: Callable[..., Trainer]) -> None:
    policy = make_trainer("llama").player.policy
    record_step(policy, GenerationConfig())
    policy.model.config.rope_parameters["rope_type"] = "dynamic"
    with pytest.raises(CannotRecord, match="its rotary embedding is dynamic"):
        record_step(policy, GenerationConfig())


def test_a_recording_that_gives_other_numbers_is_refused(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_trainer().player.policy
    own = _Step.forward

    def forward(self: _Step, *inputs: Tensor) -> tuple[Tensor, ...]:
        tokens, logprobs, *rest = own(self, *inputs)
        return tokens, logprobs * 1.001, *rest

    monkeypatch.setattr(_Step, "forward", forward)
    with pytest.raises(CannotRecord, match="gives other numbers"):
        record_step(policy, GenerationConfig())


def test_a_recording_that_keeps_a_number_of_the_example_is_refused(
    make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The activation in blocks would keep how many the example has."""
    policy = make_trainer().player.policy
    monkeypatch.setattr("rlhf_studio.engine.fused.GELU_BLOCK", 64)
    monkeypatch.setattr("rlhf_studio.engine.fused._few_tanh_gelu", lambda x: _tanh_gelu(x, None))
    with pytest.raises(CannotRecord, match="its step cannot be recorded"):
        record_step(policy, GenerationConfig())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("not for a recording\nand more"), "not for a recording"),
        (ValueError("too many values"), "too many values"),
        (TypeError(), "TypeError"),
    ],
)
def test_a_model_that_cannot_be_recorded_is_refused(
    make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def fail(self: _Step, *inputs: Tensor) -> tuple[Tensor, ...]:
        raise error

    policy = make_trainer().player.policy
    monkeypatch.setattr(_Step, "forward", fail)
    with pytest.raises(CannotRecord, match=rf"its step cannot be recorded \({told}\)"):
        record_step(policy, GenerationConfig())


def test_only_one_cpu_with_full_precision_records(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlhf_studio.engine.build.record_step", lambda *_: pytest.fail("recorded"))
    assert make_trainer(model={"dtype": "bfloat16"}).player.recorded_step is None
