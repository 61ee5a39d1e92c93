"""The static decoding step, without a graph and on a CPU, against the model's own: the numbers that a GPU replays."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.generate import generate
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.sampling.decode import sample_responses
from rlhf_studio.engine.sampling.draw import Drawn, StepInputs, draw_next
from rlhf_studio.engine.sampling.same_numbers import CannotTrace, example
from rlhf_studio.engine.sampling.static_step import StaticStep, static_step
from rlhf_studio.engine.types import ForwardOutput, TokenBatch
from rlhf_studio.inputs.families import TESTED_FAMILIES
from tests.engine.small_models import save_policy

pytestmark = pytest.mark.slow

CPU = Compute(torch.device("cpu"), torch.float32)
BFLOAT16 = replace(CPU, dtype=torch.bfloat16)
LORA = {"enabled": True, "r": 4}


def static(trainer: Trainer, compute: Compute = CPU) -> StaticStep:
    return static_step(trainer.models.policy, trainer.config.generation, compute, captured=False)


@pytest.mark.parametrize(
    ("family", "lora", "compute"),
    [
        ("gpt2", {}, CPU),
        ("llama", LORA, BFLOAT16),
        *(
            pytest.param(family, lora, compute, marks=pytest.mark.long)
            for family in sorted(TESTED_FAMILIES - {"phi3"})  # phi3 has a window
            for lora in ({}, LORA)
            for compute in (CPU, BFLOAT16)
        ),
    ],
)
def test_it_gives_the_models_own_numbers_after_updates_too(
    make_trainer: Callable[..., Trainer], tmp_path: Path, family: str, lora: dict[str, Any], compute: Compute
) -> None:
    save_policy(tmp_path / family, family, spread=0.2)
    config = tmp_path / family / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": None}))  # with a window there is no static step
    trainer = make_trainer(model={"policy": str(tmp_path / family)}, lora=lora)
    policy, settings, recorded = trainer.models.policy, trainer.config.generation, []
    step = static(trainer, compute)
    bound = 1e-5 if compute is CPU else 0.03  # bfloat16: a logit's last binary digit
    for _ in range(2):
        with policy.merged(), torch.no_grad(), compute.autocast():
            assert step.ready(settings) is step
            for rows, length in ((4, 9), (1, 1), (7, 30), (2, 40)):
                ours = step(example(policy, rows, length, step))
                own = draw_next(policy, settings, example(policy, rows, length))
                torch.testing.assert_close(ours.shifted_logits - ours.log_total, own.shifted_logits - own.log_total, atol=bound, rtol=bound)
                torch.testing.assert_close(ours.values, own.values, atol=bound, rtol=bound)
            recorded.append(ours.shifted_logits)
        trainer.step()
    assert not torch.allclose(*recorded, atol=1e-4)  # the update did change what is computed


def test_sampling_with_it_gives_the_same_episodes(make_trainer: Callable[..., Trainer]) -> None:
    """Half of the rows leave when half have ended, which is looked at after every third token."""
    trainer = make_trainer(model={"value_head_init": "normal"}, generation={"response_length": 16})
    models, settings, step = trainer.models, trainer.config.generation, static(trainer)
    batch = trainer.prompts.batch([0, 1, 2, 3, 4, 5] * 3)
    limits = torch.tensor([3, 5, 16] * 6)
    uniforms = torch.rand((18, 16), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows: list[int] = []

    def counted(inputs: StepInputs) -> Drawn:
        rows.append(len(inputs.ids))
        return StaticStep.__call__(step, inputs)

    class Counting(StaticStep):
        __call__ = staticmethod(counted)  # type: ignore[assignment]

    step.__class__ = Counting

    def sampled(**options: Any) -> tuple[TokenBatch, ForwardOutput]:
        ends = {"stop_ids": models.stop_ids, "pad_id": models.pad_id, "top_rows": 4, "limits": limits}
        return sample_responses(models.policy, batch.ids, batch.mask, settings, uniforms=uniforms, **ends, **options)

    (tokens, output), (others, own) = sampled(later_step=step.ready(settings), look_every=3), sampled()
    assert {18, 9} <= set(rows) and rows == sorted(rows, reverse=True)
    assert torch.equal(tokens.response_ids, others.response_ids) and torch.equal(tokens.mask, others.mask)
    assert output.top is not None and own.top is not None and torch.equal(output.top.ids[tokens.mask[:4]], own.top.ids[tokens.mask[:4]])
    for ours, theirs in ((output.logprobs, own.logprobs), (output.entropy, own.entropy), (output.values, own.values)):
        assert isinstance(ours, Tensor) and isinstance(theirs, Tensor)
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_a_rollout_uses_the_weights_as_they_are_now(make_trainer: Callable[..., Trainer]) -> None:
    """Rollout, update, rollout with LoRA, through the engine's own way of sampling."""
    trainer = make_trainer(lora=LORA)
    models = replace(trainer.models, traced_step=static(trainer))
    batch = trainer.prompts.batch([0, 1, 2, 3])
    for _ in range(2):
        ours, own = (
            generate(each, batch, trainer.config.generation, torch.Generator().manual_seed(0))
            for each in (models, replace(models, traced_step=None))
        )
        assert torch.equal(ours[0].response_ids, own[0].response_ids)
        torch.testing.assert_close(ours[1].logprobs, own[1].logprobs, atol=1e-5, rtol=1e-5)
        trainer.step()


def test_a_step_with_other_numbers_is_refused(
    make_trainer: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask that shows one token too few, as if the new token's position were counted wrongly."""
    save_policy(tmp_path / "spread", "gpt2", spread=0.2)
    trainer = make_trainer(model={"policy": str(tmp_path / "spread")})
    own = StaticStep.__call__

    def blind(self: StaticStep, inputs: StepInputs) -> Drawn:
        attention = inputs.attention.clone()
        attention[:, -2] = 0
        return own(self, inputs._replace(attention=attention))

    monkeypatch.setattr(StaticStep, "__call__", blind)
    for compute in (CPU, BFLOAT16):
        with pytest.raises(CannotTrace, match="gives other numbers"):
            static(trainer, compute)


def test_other_settings_are_drawn_without_it(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    step = static(trainer)
    for changed in ({"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.9}):
        assert step.ready(trainer.config.generation.model_copy(update=changed)) is None
