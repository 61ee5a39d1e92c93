"""The trainer of the supervised stages: its order, its length, and a state from which it goes on bit for bit."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from rlhf_studio.config import SFTConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.gradient_checkpointing import computes_again, enable_gradient_checkpointing
from rlhf_studio.engine.compute.lanes import Lanes
from rlhf_studio.engine.compute.random_layers import draws_random_numbers
from rlhf_studio.engine.compute.ranks import Ranks
from rlhf_studio.engine.stages.dpo import DPOObjective
from rlhf_studio.engine.stages.reward_model.training import BradleyTerryObjective
from rlhf_studio.engine.stages.sft import LanguageModelObjective
from rlhf_studio.engine.stages.supervised.batch_passes import BatchPasses
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers, SupervisedTrainer
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.inputs.examples.encoded import EncodedExample
from tests.engine.small_models import save_policy

LANES = Compute(torch.device("cpu"), torch.float32, lanes=Lanes(2).with_one_row_each())


def make_model(dropout: float = 0.0) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    shape = GPT2Config(
        vocab_size=20, n_positions=32, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    return GPT2LMHeadModel(shape).eval()


def with_adapters(model: GPT2LMHeadModel, dropout: float) -> Any:
    config = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True, lora_dropout=dropout)
    return get_peft_model(model, config)


def examples(count: int = 7) -> list[EncodedExample]:
    """Texts of unequal length; the first two tokens do not count."""
    generator = torch.Generator().manual_seed(5)
    texts = [tuple(torch.randint(2, 20, (4 + number % 5,), generator=generator).tolist()) for number in range(count)]
    return [EncodedExample(ids, (-100, -100, *ids[2:])) for ids in texts]


def make_trainer(model: Any = None, count: int = 7, compute: Compute = LANES, **settings: Any) -> SupervisedTrainer:
    config = SFTConfig.model_validate({"batch_size": 2, "epochs": 2, "learning_rate": 1e-2, "warmup_steps": 2} | settings)
    return SupervisedTrainer(make_model() if model is None else model, examples(count), LanguageModelObjective(), config, compute, seed=3)


def told(step: StepNumbers) -> tuple[Any, ...]:
    """A step's numbers but for its time."""
    return (step.step, step.epoch, step.loss, step.learning_rate, step.grad_norm, step.count, step.tokens, step.items)


@pytest.mark.parametrize(("dropout", "done"), [(0.0, 0), (0.0, 2), (0.2, 4)])
def test_a_restored_training_goes_on_bit_for_bit(dropout: float, done: int) -> None:
    """In the middle of an epoch (7 items, 2 a batch), at its end and before the start; in lanes, and with dropout."""
    whole = make_trainer(make_model(dropout))
    for _ in range(done):
        whole.step()
    numbers, tensors = whole.state()
    weights, optimizer = copy.deepcopy(whole.model.state_dict()), copy.deepcopy(whole.optimizer.state_dict())
    expected = [told(whole.step()) for _ in range(8 - done)]

    model = make_model(dropout)
    model.load_state_dict(weights)
    torch.manual_seed(1234)
    resumed = make_trainer(model)
    resumed.optimizer.load_state_dict(optimizer)
    assert resumed.restore(json.loads(json.dumps(numbers)), tensors) == []
    assert [told(resumed.step()) for _ in range(8 - done)] == expected and resumed.finished and whole.finished
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), whole.model.parameters(), strict=True))


def test_each_epoch_goes_through_all_items_once_in_a_new_order() -> None:
    trainer = make_trainer(epochs=3)
    steps = [trainer.step() for _ in range(trainer.total_steps)]
    assert len(steps) == 12 and trainer.finished
    epochs = [[number for step in steps[first : first + 4] for number in step.items] for first in (0, 4, 8)]
    assert all(sorted(order) == list(range(7)) for order in epochs) and len({tuple(order) for order in epochs}) == 3
    assert [step.epoch for step in steps[:5]] == [2 / 7, 4 / 7, 6 / 7, 1.0, 1 + 2 / 7]
    with pytest.raises(RuntimeError, match="finished"):
        trainer.step()


def test_most_steps() -> None:
    trainer = make_trainer(max_steps=3)
    assert trainer.total_steps == 3
    rates = [trainer.step().learning_rate for _ in range(3)]
    assert trainer.finished and rates == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])  # two steps of warm-up, then the highest rate
    assert make_trainer(max_steps=100).total_steps == 8


def test_items_that_count_nothing_are_never_in_a_batch() -> None:
    nothing = EncodedExample((2, 3, 4), (-100, -100, -100))
    trainer = SupervisedTrainer(make_model(), [nothing, *examples(2), nothing], LanguageModelObjective(), SFTConfig(), LANES, 0)
    assert trainer.left_out == 2 and sorted(trainer.step().items) == [1, 2] and trainer.finished
    with pytest.raises(ValueError, match="nothing to learn from"):
        SupervisedTrainer(make_model(), [nothing], LanguageModelObjective(), SFTConfig(), LANES, 0)
    with pytest.raises(ValueError, match="no mean loss"):
        trainer.mean_loss([nothing])


def test_other_examples_are_refused() -> None:
    numbers, tensors = make_trainer().state()
    with pytest.raises(ValueError, match="saved with 7 examples, 7 of which count, but now there are 6 and 6"):
        make_trainer(count=6).restore(numbers, tensors)


def test_settings_changed_between_steps_are_used() -> None:
    trainer = make_trainer(lr_schedule="constant", warmup_steps=0)
    assert trainer.step().learning_rate == 1e-2
    trainer.use(SFTConfig(batch_size=3, epochs=2, learning_rate=5e-3, lr_schedule="constant"))
    step = trainer.step()
    assert step.learning_rate == 5e-3 and len(step.items) == 3
    assert trainer.total_steps == 2 + 1 + 3  # 2 of 7 items are left of this epoch, then 7 in threes


def test_a_step_that_is_not_finite_is_left_out_where_that_is_wanted() -> None:
    model = make_model()
    before = model.transformer.wte.weight.detach().clone()
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.bias[0] = math.nan
    config = SFTConfig(batch_size=2)
    skipping = SupervisedTrainer(model, examples(4), LanguageModelObjective(), config, LANES, 3, skip_non_finite=True)
    step = skipping.step()
    assert math.isnan(step.loss) and "the loss is nan" in step.problem and skipping.step_number == 1
    assert torch.equal(model.transformer.wte.weight, before) and not skipping.optimizer.state
    stopping = SupervisedTrainer(model, examples(4), LanguageModelObjective(), config, LANES, 3)
    with pytest.raises(NonFiniteError, match="the loss is nan"):
        stopping.step()
    assert torch.equal(model.transformer.wte.weight, before) and stopping.step_number == 0


def test_numbers_are_read_in_the_order_of_the_items() -> None:
    """In micro-batches that are sorted by length and divided among lanes, against one item at a time."""
    trainer = make_trainer(micro_batch_size=3)
    items = examples()
    alone = [LanguageModelObjective().read(trainer.model, [item])[0] for item in items]
    for ours, expected in zip(trainer.read(items), alone, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    assert trainer.mean_loss(items) == pytest.approx(float(torch.cat(alone).mean()), rel=1e-5)
    assert trainer.objective.mean_of(items, trainer.read(items)) == pytest.approx(float(torch.cat(alone).mean()), rel=1e-5)


def test_dropout_takes_one_lane() -> None:
    """torch's threads share one generator, so lanes would draw in an order that nobody knows."""
    for dropout, lanes in ((0.0, 2), (0.1, 1)):
        model = make_model(dropout)
        assert draws_random_numbers(model.modules()) is (dropout > 0)
        passes = BatchPasses(model, LanguageModelObjective(), LANES, 8)
        assert passes._training_compute.lanes.count == lanes and passes.compute.lanes.count == 2


@pytest.mark.parametrize("family", ["bloom", "llama"])
def test_layers_that_draw_random_numbers_are_known(tmp_path: Path, family: str) -> None:
    """Also those that read how much they drop from the configuration in every pass."""
    model = AutoModelForCausalLM.from_pretrained(save_policy(tmp_path / family, family)).train()
    ids = torch.tensor([[3, 4, 5, 6, 7, 8]])
    assert not torch.equal(model(ids).logits, model(ids).logits) and draws_random_numbers(model.modules())


def test_a_stage_that_compares_two_passes_learns_without_the_models_dropout(tmp_path: Path) -> None:
    model = with_adapters(make_model(0.3), dropout=0.2)
    for objective, expected in ((LanguageModelObjective(), True), (BradleyTerryObjective(None), False), (DPOObjective(0.1), False)):
        passes = BatchPasses(model, objective, LANES, 8)
        own = {module for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout) and "lora" not in name}
        adapters = {module for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout) and "lora" in name}
        assert own and adapters and (own <= set(passes._learning)) is expected and adapters <= set(passes._learning)
        assert passes._training_compute.lanes.count == 1  # the adapters' dropout draws
    without = BatchPasses(make_model(0.3), DPOObjective(0.1), LANES, 8)
    assert without._learning == [] and without._training_compute.lanes.count == 2


@pytest.mark.parametrize("own", [True, False])
def test_gradient_checkpointing_changes_nothing(own: bool) -> None:
    """Ours and transformers' own; with dropout the second forward pass must draw what the first one drew."""
    found = []
    for checkpointing in (False, True):
        model = make_model(0.3)
        if checkpointing and own:
            assert enable_gradient_checkpointing(model) == 2
        elif checkpointing:
            model.gradient_checkpointing_enable()
        assert computes_again(model) is checkpointing
        passes = BatchPasses(model, LanguageModelObjective(), LANES, 8)
        assert passes.packs is not checkpointing
        passes.packs = False
        model.set_attn_implementation("sdpa")
        torch.manual_seed(1)
        found.append((passes.add_gradients(examples()).loss, [gradient.clone() for gradient in passes.gradients()]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for plain, again in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(again, plain, atol=1e-6, rtol=1e-4)


class OneOf(Ranks):
    """One rank of several that sends nothing: the test adds up what the ranks found."""

    def __init__(self, rank: int, size: int, sharded: bool = False):
        self.rank, self.size, self.sharded = rank, size, sharded


@pytest.mark.parametrize(("count", "size"), [(7, 2), (2, 3)])
def test_ranks_share_a_batch(count: int, size: int) -> None:
    """What the ranks find adds up to the whole batch, for every size of the batch; a rank without items has gradients of 0."""
    items, objective = examples(count), LanguageModelObjective()
    alone = BatchPasses(make_model(), objective, LANES, 2)
    loss = alone.add_gradients(items).loss
    passes = [BatchPasses(make_model(), objective, replace(LANES, ranks=OneOf(rank, size)), 2) for rank in range(size)]
    assert sum(one.add_gradients(items).loss for one in passes) == pytest.approx(loss, rel=1e-5)
    for expected, *parts in zip(alone.gradients(), *(one.gradients() for one in passes), strict=True):
        torch.testing.assert_close(sum(parts), expected, atol=1e-6, rtol=1e-4)
    assert sum(one.mean_loss(items) for one in passes) == pytest.approx(alone.mean_loss(items), rel=1e-5)


def test_sharded_ranks_make_equally_many_forward_passes() -> None:
    """Every forward pass needs all ranks: 5 items in micro-batches of one are 3 passes on rank 0, and on rank 1 two and one more."""
    compute = Compute(torch.device("cpu"), torch.float32)
    passes = [
        BatchPasses(make_model(), LanguageModelObjective(), replace(compute, ranks=OneOf(rank, 2, sharded=True)), 1) for rank in range(2)
    ]
    parts = [one._parts(examples(5), one.compute) for one in passes]
    assert [[part.counts for part in own] for own in parts] == [[True, True, True], [True, True, False]]
    assert not passes[0].packs
