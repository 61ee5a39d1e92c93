"""Every run holds its numbers against the models' own forward passes, and stops before the first step where they differ.

The independent answer is a plain model of transformers, loaded by the test, one row at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, DistilBertForSequenceClassification

from rlhf_studio.engine.loop import trainer as trainer_module
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.critic import Trunk
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.engine.models.position_ids import PositionScheme
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.engine.parity import check as parity_check
from rlhf_studio.engine.parity.check import check_parity
from rlhf_studio.engine.parity.gate import check_before_training
from rlhf_studio.engine.parity.tolerance import ParityError, Tolerance
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.types import Samples, TokenBatch
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from tests.engine.conftest import small_config
from tests.engine.small_models import save_policy, save_reward_model

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize(("family", "lora"), [("gpt2", {"enabled": True, "r": 4}), ("gemma2", {})], ids=["lora", "full"])
def test_a_correct_model_passes_and_nothing_stays_changed(make: Make, family: str, lora: dict[str, Any]) -> None:
    trainer, other = make(family, lora=lora), make(family, lora=lora)
    before = torch.get_rng_state()
    report = check_parity(trainer.models, trainer.prompts)
    assert 0 < report.largest < 1e-5 and "largest difference" in report.sentence()
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.step().metrics["objective/kl"] == other.step().metrics["objective/kl"]


def broken_sampling(patch: pytest.MonkeyPatch) -> None:
    """Left padding counts as positions."""
    patch.setattr(PositionScheme, "__call__", lambda self, ids, real: torch.arange(ids.shape[1]).expand_as(ids))


def broken_mask(patch: pytest.MonkeyPatch) -> None:
    """Sampling attends to the padding."""
    original = ResponseModel.next_logits
    patch.setattr(ResponseModel, "next_logits", lambda self, ids, attention, *rest: original(self, ids, torch.ones_like(attention), *rest))


def broken_reading(patch: pytest.MonkeyPatch) -> None:
    """Every response token is told from the place of the next one."""
    original = TokenBatch.predicting
    patch.setattr(TokenBatch, "predicting", lambda self, hidden: original(self, hidden).roll(1, dims=0))


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("broken", [broken_sampling, broken_mask, broken_reading])
def test_a_wrong_pass_stops_the_run_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], None]
) -> None:
    policy = save_policy(tmp_path / "gemma2", "gpt2" if broken is broken_sampling else "gemma2", spread=0.2)
    broken(monkeypatch)
    create_run(
        tmp_path / "run", small_config(tmp_path, model={"policy": str(policy)}, engine={"watch_prompts": 2}), name="run", state="loading"
    )
    assert run_engine(tmp_path / "run", "train") == BAD_INPUT
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
            plain = PositionScheme.of_inputs
            inner.setattr(PositionScheme, "of_inputs", lambda position_scheme, inputs: {
                **plain(position_scheme, inputs), "position_ids": inputs["position_ids"] + 1,
            })  # fmt: skip
            return original(self, batch)

    patch.setattr(Trunk, "forward", shifted)


def broken_rewards(patch: pytest.MonkeyPatch) -> None:
    """The padding mask is ignored."""
    original = DistilBertForSequenceClassification.forward
    patch.setattr(DistilBertForSequenceClassification, "forward", lambda self, input_ids, attention_mask=None: original(self, input_ids))


def save_judge(folder: Path) -> Path:
    """An encoder that reads both ways, with weights so wide that padding would matter."""
    save_reward_model(folder, "distilbert")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.dim() > 1 else 1)
    model.save_pretrained(folder)
    return folder


def test_each_pass_is_looked_at(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = save_judge(tmp_path / "judge")
    trainer = make(critic={"kind": "separate", "start": "policy"}, reward={"components": [{"kind": "reward_model", "model": str(judge)}]})
    check_parity(trainer.models, trainer.prompts)
    for broken, message in (
        (broken_update, r"model\.policy: .* log-probabilities in the forward pass of the update"),
        (broken_reference, r"model\.reference: .* log-probabilities of the reference"),
        (broken_critic, r"critic\.start: the critic .* values in the forward pass over the responses"),
        (broken_rewards, r"reward\.components\.0: .*judge cannot be used here: its scores"),
    ):
        with monkeypatch.context() as patch, pytest.raises(ParityError, match=message):
            broken(patch)
            check_parity(trainer.models, trainer.prompts)


def test_every_model_of_an_ensemble_is_looked_at(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judges = [save_judge(tmp_path / name) for name in ("first", "second")]
    ensemble = {"kind": "ensemble", "models": ", ".join(map(str, judges))}
    trainer = make(reward={"components": [{"kind": "length"}, ensemble]})
    check_parity(trainer.models, trainer.prompts)
    original = DistilBertForSequenceClassification.forward

    def ignoring(self: DistilBertForSequenceClassification, input_ids: Tensor, attention_mask: Tensor | None = None) -> object:
        return original(self, input_ids, attention_mask if self.name_or_path != str(judges[1]) else None)

    monkeypatch.setattr(DistilBertForSequenceClassification, "forward", ignoring)
    with pytest.raises(ParityError, match=r"reward\.components\.1: .*second cannot be used here: its scores"):
        check_parity(trainer.models, trainer.prompts)


def test_the_longest_planned_row_is_among_them(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong in the last position of the longest text only is found: 10 words of prompt and 12 of response."""
    trainer = make(generation={"response_length": 12})
    longest = trainer.prompts.lengths[1] + 12
    original = ResponseModel.next_logits

    def late(self: ResponseModel, ids: Tensor, attention: Tensor, positions: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        return original(self, ids, attention, torch.where(positions == longest - 2, 0, positions), *rest)

    monkeypatch.setattr(ResponseModel, "next_logits", late)
    monkeypatch.setattr(trainer, "models", replace(trainer.models, traced_step=None))
    with pytest.raises(ParityError, match="log-probabilities while sampling"):
        check_parity(trainer.models, trainer.prompts)


def test_a_long_plan_is_reached_with_a_longer_prompt(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many tokens are sampled; the positions of the plan are reached all the same."""
    monkeypatch.setattr(parity_check, "MOST_SAMPLED", 4)
    trainer = make(generation={"response_length": 30})
    requests: list[int] = []
    original = ResponseModel.next_logits

    def noting(self: ResponseModel, ids: Tensor, attention: Tensor, positions: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        requests.append(int(positions.max()))
        return original(self, ids, attention, positions, *rest)

    monkeypatch.setattr(ResponseModel, "next_logits", noting)
    monkeypatch.setattr(trainer, "models", replace(trainer.models, traced_step=None))
    check_parity(trainer.models, trainer.prompts)
    assert max(requests) == trainer.prompts.lengths[1] + 30 - 2  # the last token is not read to sample another


def test_half_precision(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is right passes, although single numbers are off by more than float32 allows; padding that is attended to does not."""
    trainer = make("llama", model={"dtype": "bfloat16"}, critic={"kind": "separate", "start": "policy"}, generation={"response_length": 20})
    assert 1e-3 < check_parity(trainer.models, trainer.prompts).largest < 0.1
    check_before_training(trainer)
    assert not [event for event in trainer.step().events if event.level == "warning"]
    broken_mask(monkeypatch)
    with pytest.raises(ParityError, match="log-probabilities while sampling"):
        check_parity(trainer.models, trainer.prompts)


@pytest.mark.parametrize("lora", [{}, pytest.param({"enabled": True, "r": 4}, marks=pytest.mark.long)], ids=["full", "lora"])
def test_a_deep_model_in_half_precision_is_held_to_its_own_rounding(
    make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: dict[str, Any]
) -> None:
    """Twelve sharp layers magnify rounding beyond what small models show; padding that is attended to is told from it all the same."""
    folder = save_policy(tmp_path / "deep", "llama", spread=0.2, layers=12)
    model = {"policy": str(folder), "dtype": "bfloat16"}
    trainer = make_trainer("gpt2", model=model, lora=lora, generation={"response_length": 20})
    before, weights = torch.get_rng_state(), [weight.clone() for weight in trainer.models.policy.parameters()]
    actual = check_parity(trainer.models, trainer.prompts)
    assert actual.noise > 0 and torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(weight, earlier) for weight, earlier in zip(trainer.models.policy.parameters(), weights, strict=True))
    monkeypatch.setattr(Tolerance, "measure", lambda self, *sizes, measure=Tolerance.measure: measure(self, *sizes[:2]))
    with pytest.raises(ParityError):  # without the model's own answer a healthy model was refused
        check_parity(trainer.models, trainer.prompts)
    monkeypatch.undo()
    broken_mask(monkeypatch)
    with pytest.raises(ParityError, match="log-probabilities while sampling"):
        check_parity(trainer.models, trainer.prompts)


@pytest.mark.usefixtures("checked")
def test_a_resumed_run_is_checked_with_its_restored_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values are off only once the weights have moved: a fresh start passes, the resume is stopped and leaves the checkpoint."""
    create_run(tmp_path / "run", small_config(tmp_path, engine={"checkpoint_every": 1}, ppo={"steps": 1}), name="run", state="loading")
    assert run_engine(tmp_path / "run", "train") == DONE
    start = from_folder(tmp_path / "policy")
    original = ResponseModel.forward

    def once_trained(self: ResponseModel, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        logits, hidden = original(self, batch)
        moved = not torch.equal(self.model.get_input_embeddings().weight, start)
        return (logits * 1.1 if moved else logits), hidden

    monkeypatch.setattr(ResponseModel, "forward", once_trained)
    create_run(tmp_path / "other", small_config(tmp_path, ppo={"steps": 1}), name="other", state="loading")
    assert run_engine(tmp_path / "other", "train") == DONE
    assert run_engine(tmp_path / "run", "resume") == BAD_INPUT
    assert RunReader(tmp_path / "run").status().cause.startswith("model.policy: ")
    assert [checkpoint.step for checkpoint in RunReader(tmp_path / "run").checkpoints()] == [1]


def from_folder(folder: Path) -> Tensor:
    return AutoModelForCausalLM.from_pretrained(folder).get_input_embeddings().weight.detach()


# --- all rows of the first rollout -------------------------------------------------------------------------------------------------


def test_the_ratio_of_every_row_is_looked_at_before_the_first_update(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of eight has a wrong log-probability from sampling: whichever minibatch it would be in, nothing is trained."""
    trainer = make()
    check_before_training(trainer)
    weights = [parameter.detach().clone() for parameter in trainer.models.policy.parameters()]
    original = trainer_module.sample

    def slipped(*arguments: Any) -> Samples:
        samples = original(*arguments)
        samples.policy.logprobs[6, 0] += 0.01
        return samples

    monkeypatch.setattr(trainer_module, "sample", slipped)
    with pytest.raises(ParityError, match=r"before the first update the ratio is not 1: log-probabilities differ by 0\.01,"):
        trainer.step()
    assert all(torch.equal(*pair) for pair in zip(trainer.models.policy.parameters(), weights, strict=True))


@pytest.mark.parametrize(("lora", "dtype"), [({"enabled": True, "r": 4}, "float32"), ({}, "bfloat16")])
def test_a_kl_that_does_not_begin_at_0_stops_the_run(make: Make, lora: dict[str, Any], dtype: str) -> None:
    """The reference was meant to be the policy's own start, but something has changed it."""
    trainer = make(lora=lora, ppo={"steps": 3}, model={"dtype": dtype})
    check_before_training(trainer)
    if lora:
        with torch.no_grad():
            next(part for name, part in trainer.models.policy.named_parameters() if "lora_B" in name).add_(0.05)
    else:
        next(iter(trainer.models.reference.frozen_copy.parameters())).data.mul_(3)
    with pytest.raises(ParityError, match=r"model\.reference: it has the policy's weights, but the KL does not begin at 0"):
        trainer.step()


# --- the tolerance -----------------------------------------------------------------------------------------------------------------


def test_what_is_allowed() -> None:
    """Literals: 1e-4 for small logits and in proportion above 4; 7.5 steps of 1/256 for a single number, 2.25 for 64."""
    one, many = torch.tensor([0.3]), torch.full((64,), -0.3)
    assert Tolerance(half=False).measure(many, 2.0) == pytest.approx((0.3, 1e-4))
    assert Tolerance(half=False).measure(many, 40.0) == pytest.approx((0.3, 1e-3))
    assert Tolerance(half=True).measure(one, 0.5) == pytest.approx((0.3, 7.5 / 256))
    assert Tolerance(half=True).measure(many, 10.0) == pytest.approx((0.3, 22.5 / 256))
    assert Tolerance(half=True).measure(many, 10.0, 0.07) == pytest.approx((0.3, 0.28))  # four times the model's own noise
    assert Tolerance(half=False).measure(many, 2.0, 0.07) == pytest.approx((0.3, 1e-4))
