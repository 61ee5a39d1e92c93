"""Every run holds its numbers against the models' own forward passes, and stops before the first step where they differ.

The independent answer is a plain model of transformers, loaded by the test, one row at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DistilBertForSequenceClassification

from rlhf_studio.engine.critic import Trunk
from rlhf_studio.engine.numbering import Numbering
from rlhf_studio.engine.policy import Policy, Reference, ResponseModel
from rlhf_studio.engine.proof import prove
from rlhf_studio.engine.trainer import Trainer
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.engine.worker import BAD_INPUT, run_engine
from rlhf_studio.engine.yardstick import UnprovenError
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config
from tests.engine.small_models import save_policy, save_reward_model

Make = Callable[..., Trainer]


@pytest.fixture
def make(make_trainer: Make, tmp_path: Path) -> Make:
    """A trainer whose policy has weights so wide that the order of the words matters."""

    def built(family: str = "gpt2", *, model: dict[str, Any] | None = None, **changes: dict[str, Any]) -> Trainer:
        folder = tmp_path / f"wide {family}"
        if not folder.exists():
            save_policy(folder, family, spread=0.2)
        return make_trainer("gpt2", model={"policy": str(folder), **(model or {})}, **changes)

    return built


@pytest.mark.parametrize("lora", [{}, {"enabled": True, "r": 4}], ids=["full", "lora"])
@pytest.mark.parametrize("family", ["gpt2", "gemma2"])
def test_what_is_right_is_proven_and_nothing_stays_changed(make: Make, family: str, lora: dict[str, Any]) -> None:
    trainer, other = make(family, lora=lora), make(family, lora=lora)
    before = torch.get_rng_state()
    proof = prove(trainer.player, trainer.prompts)
    assert 0 < proof.largest < 1e-5 and "largest difference" in proof.sentence()
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.step().metrics["objective/kl"] == other.step().metrics["objective/kl"]


def broken_sampling(patch: pytest.MonkeyPatch) -> None:
    """Left padding counts as positions."""
    patch.setattr(Numbering, "__call__", lambda self, ids, real: torch.arange(ids.shape[1]).expand_as(ids))


def broken_mask(patch: pytest.MonkeyPatch) -> None:
    """Sampling attends to the padding."""
    original = ResponseModel.next_logits
    patch.setattr(
        ResponseModel, "next_logits", lambda self, ids, attention, *rest: original(self, ids, torch.ones_like(attention), *rest)
    )


def broken_reading(patch: pytest.MonkeyPatch) -> None:
    """Every response token is told from the place of the next one."""
    original = TokenBatch.predicting
    patch.setattr(TokenBatch, "predicting", lambda self, hidden: original(self, hidden).roll(1, dims=0))


@pytest.mark.parametrize("broken", [broken_sampling, broken_mask, broken_reading])
def test_a_wrong_pass_stops_the_run_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    policy = save_policy(tmp_path / "gemma2", "gpt2" if broken is broken_sampling else "gemma2", spread=0.2)
    broken(monkeypatch)
    create_run(tmp_path / "run", small_config(tmp_path, model={"policy": str(policy)}), name="run", state="loading")
    assert run_engine(tmp_path / "run", resume=False) == BAD_INPUT
    status = RunReader(tmp_path / "run").status()
    assert status.state == "failed" and status.step == 0
    assert status.cause.startswith("model.policy: ") and "its own forward pass" in status.cause and "nothing was trained" in status.cause
    assert not RunReader(tmp_path / "run").watched()


def broken_update(patch: pytest.MonkeyPatch) -> None:
    """With gradients the model says something else."""
    original = Policy.logits_and_values

    def shifted(self: Policy, batch: TokenBatch, **settings: bool) -> tuple[Tensor, Tensor]:
        logits, values = original(self, batch, **settings)
        return logits + 0.05 * torch.arange(logits.shape[1]), values

    patch.setattr(Policy, "logits_and_values", shifted)


def broken_reference(patch: pytest.MonkeyPatch) -> None:
    original = Reference.active

    @contextlib.contextmanager
    def hotter(self: Reference) -> Iterator[ResponseModel]:
        with original(self) as model, pytest.MonkeyPatch.context() as inner:
            inner.setattr(ResponseModel, "forward", lambda model, batch, plain=ResponseModel.forward: (plain(model, batch)[0] * 1.1, None))
            yield model

    patch.setattr(Reference, "active", hotter)


def broken_critic(patch: pytest.MonkeyPatch) -> None:
    """Its positions begin at 1."""
    original = Trunk.forward

    def shifted(self: Trunk, batch: TokenBatch) -> Tensor:
        with pytest.MonkeyPatch.context() as inner:
            plain = Numbering.of_inputs
            inner.setattr(Numbering, "of_inputs", lambda numbering, inputs: {
                **plain(numbering, inputs), "position_ids": inputs["position_ids"] + 1,
            })  # fmt: skip
            return original(self, batch)

    patch.setattr(Trunk, "forward", shifted)


def broken_rewards(patch: pytest.MonkeyPatch) -> None:
    """The padding mask is ignored."""
    original = DistilBertForSequenceClassification.forward
    patch.setattr(
        DistilBertForSequenceClassification, "forward", lambda self, input_ids, attention_mask=None: original(self, input_ids)
    )


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (broken_update, r"model\.policy: .* log-probabilities \(what the update reads\)"),
        (broken_reference, r"model\.reference: .* log-probabilities of the reference"),
        (broken_critic, r"critic\.start: the critic .* values \(what is read of the responses\)"),
        (broken_rewards, r"reward\.components\.0: .*judge cannot be used here: its scores"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_pass_is_looked_at(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None], said: str
) -> None:
    judge = save_reward_model(tmp_path / "judge", "distilbert", labels=1)
    trainer = make(critic={"kind": "separate", "start": "policy"}, reward={"components": [{"kind": "reward_model", "model": str(judge)}]})
    prove(trainer.player, trainer.prompts)
    broken(monkeypatch)
    with pytest.raises(UnprovenError, match=said):
        prove(trainer.player, trainer.prompts)
