"""``generation.batch_size``: how many responses are sampled together changes memory and time, and nothing that comes out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlhf_studio.engine.loop import generate as generate_module
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.sampling.traced_step import TracedStep
from rlhf_studio.engine.types import Rollout
from tests.engine.conftest import play
from tests.engine.test_lanes import with_lanes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced")]

ENDS = {"response_length": 9, "response_length_min": 2}  # limits are drawn, and some rows end before them


def played(make_trainer: Callable[..., Trainer], family: str, together: int, lanes: int = 1, **changes: Any) -> Rollout:
    """16 episodes of a policy that has moved away from its reference."""
    ppo = {"batch_size": 16, "mini_batch_size": 8}
    trainer = make_trainer(family, ppo=ppo, engine={"record_samples": 7}, generation={**ENDS, "batch_size": together}, **changes)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in [*trainer.models.policy.model_parameters(), *trainer.models.policy.value_head.parameters()]:
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    with_lanes(trainer, lanes)
    return play(trainer, size=16)


@pytest.mark.parametrize(  # with a traced step, and through the model itself
    ("family", "changes"), [("gpt2", {"critic": {"kind": "separate"}}), ("bloom", {"lora": {"enabled": True}})]
)
def test_the_episodes_are_the_same(make_trainer: Callable[..., Trainer], family: str, changes: dict[str, Any]) -> None:
    whole = played(make_trainer, family, 0, **changes)
    assert len({int(length) for length in whole.tokens.lengths}) > 3  # parts of the batch end at different places
    for together, lanes in ((1, 1), (5, 2)):
        parts = played(make_trainer, family, together, lanes, **changes)
        assert torch.equal(parts.tokens.mask, whole.tokens.mask)
        assert torch.equal(parts.tokens.response_ids, whole.tokens.response_ids)  # bit for bit, padding too
        assert torch.equal(parts.tokens.prompt_ids, whole.tokens.prompt_ids)
        assert (parts.responses, parts.prompts) == (whole.responses, whole.prompts)
        for name in ("logprobs", "ref_logprobs", "values", "entropy", "rewards", "advantages"):
            torch.testing.assert_close(getattr(parts, name), getattr(whole, name), atol=1e-5, rtol=1e-5)
        mask = whole.tokens.mask[:7]
        assert torch.equal(parts.top.ids[mask], whole.top.ids[mask])


@pytest.mark.parametrize(("family", "together", "lanes"), [("gpt2", 3, 1), ("bloom", 5, 2)])
def test_no_more_rows_than_that_are_sampled_at_once(
    make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch, family: str, together: int, lanes: int
) -> None:
    """Rows of every call to the model, counted at the model, and of all lanes together."""
    trainer = make_trainer(family, generation={**ENDS, "batch_size": together}, engine={"watch_prompts": 6})
    calls: list[int] = []
    trainer.models.policy.model.register_forward_pre_hook(lambda _, args, given: calls.append(len(given["input_ids"])), with_kwargs=True)
    step = TracedStep.__call__
    monkeypatch.setattr(TracedStep, "__call__", lambda self, inputs: (calls.append(len(inputs.ids)), step(self, inputs))[1])
    with_lanes(trainer, lanes)
    own, lock, now, most = generate_module.sample_responses, threading.Lock(), [0], [0]

    def counted(policy: Any, prompt_ids: Any, *others: Any, **more: Any) -> Any:
        with lock:
            now[0] += len(prompt_ids)
            most[0] = max(most[0], now[0])
        try:
            return own(policy, prompt_ids, *others, **more)
        finally:
            with lock:
                now[0] -= len(prompt_ids)

    monkeypatch.setattr(generate_module, "sample_responses", counted)
    batch = trainer.prompts.next_batch(40)
    tokens, _ = generate_module.generate(trainer.models, batch, trainer.config.generation, torch.Generator().manual_seed(0))
    assert len(tokens) == 40 and max(calls) <= together and together // lanes <= max(calls)
    assert most[0] <= together
    calls.clear()
    trainer.watched()[0]  # the watched prompts too
    assert 0 < max(calls) <= together


def test_first_ratio_is_1_and_kl_0(make_trainer: Callable[..., Trainer]) -> None:
    """Each part's log-probabilities are in its own rows: the first minibatch computes exactly the same ones again."""
    trainer = make_trainer(generation={**ENDS, "batch_size": 3}, engine={"watch_prompts": 0})
    record = trainer.step()
    assert abs(record.metrics["objective/kl"]) < 1e-5
    first = trainer.updater.update(play(trainer), 1, torch.Generator().manual_seed(0))
    assert first.first_log_ratio < 1e-5
