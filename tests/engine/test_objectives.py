"""Losses of the supervised stages against numbers worked out by hand, and DPO's reference."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import GPT2LMHeadModel

from rlhf_studio.config import DPOConfig, LoraConfig, RewardTrainingConfig
from rlhf_studio.engine.models.adapters import add_lora
from rlhf_studio.engine.stages import dpo
from rlhf_studio.engine.stages.dpo import DPOObjective, pair_logprobs
from rlhf_studio.engine.stages.reward_model import training as reward_training
from rlhf_studio.engine.stages.reward_model.training import BradleyTerryObjective
from rlhf_studio.engine.stages.sft import LanguageModelObjective, counted_positions
from rlhf_studio.engine.stages.supervised.batch_passes import BatchPasses
from rlhf_studio.engine.stages.supervised.trainer import SupervisedTrainer
from rlhf_studio.inputs.examples.encoded import EncodedExample, EncodedPair
from tests.engine.test_supervised import LANES, make_model

GOOD, BAD = (3, 4), (5, 6)
"""A text that scores 1, and one that scores 0.5."""


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that only knows these two texts."""
    table = {GOOD: 1.0, BAD: 0.5}

    def text_scores(model: Any, texts: Sequence[tuple[int, ...]], pad_id: int | None, *, twins: bool) -> torch.Tensor:
        return torch.tensor([table[text] for text in texts])

    monkeypatch.setattr(reward_training, "text_scores", text_scores)


# log(1 + e^-0.3) = 0.554355, log(1 + e^-0.5) = 0.474077, log(1 + e^0.5) = 0.974077, log(1 + e^0.7) = 1.103186
@pytest.mark.parametrize(
    ("pair", "settings", "expected"),
    [
        ({}, {}, 0.474077),
        ({"margin": 0.2}, {}, 0.554355),
        ({"margin": 0.0}, {}, 0.474077),
        ({}, {"centering": 0.01}, 0.474077 + 0.01 * 1.5**2),
        ({}, {"label_smoothing": 0.1}, 0.9 * 0.474077 + 0.1 * 0.974077),
        ({"margin": 0.2}, {"label_smoothing": 0.1}, 0.9 * 0.554355 + 0.1 * 1.103186),
        ({"tie": True}, {}, 0.5 * 0.474077 + 0.5 * 0.974077),
        ({"tie": True}, {"label_smoothing": 0.1}, 0.5 * 0.474077 + 0.5 * 0.974077),
        ({"weight": 0.25}, {}, 0.25 * 0.474077),
        ({"weight": 2.0}, {"centering": 0.01}, 2 * (0.474077 + 0.0225)),
    ],
)
def test_bradley_terry_by_hand(scores: None, pair: dict[str, Any], settings: dict[str, float], expected: float) -> None:
    objective, items = BradleyTerryObjective(None, **settings), [EncodedPair((), GOOD, BAD, **pair)]
    assert float(objective.loss_sum(None, items)) == pytest.approx(expected, abs=2e-6)
    assert objective.count(items) == pair.get("weight", 1.0) and objective.tokens(items) == 4
    read = objective.read(None, items)
    assert read[0].margin == 0.5
    assert objective.mean_of(items, read) == pytest.approx(expected / pair.get("weight", 1.0), abs=2e-6)


def test_how_the_pairs_of_a_batch_are_ordered_by_hand(scores: None) -> None:
    """Right, wrong, equal, and a tie, which counts nowhere. The weights are of the loss alone."""
    orders = [(GOOD, BAD, 1.0, False), (BAD, GOOD, 0.5, False), (GOOD, GOOD, 2.0, False), (GOOD, BAD, 4.0, True)]
    items = [EncodedPair((), chosen, rejected, weight=weight, tie=tie) for chosen, rejected, weight, tie in orders]
    sums = BradleyTerryObjective(None).learn(None, items)[1]
    assert {name: float(number) for name, number in sums.items()} == {"decided": 3.0, "right": 1.5, "chosen": 2.5, "rejected": 2.5}


def test_weights_are_summed_exactly_however_a_batch_is_cut(scores: None) -> None:
    """Ten pairs of weight 0.1 count 1, not 0.9999999999999999."""
    assert BradleyTerryObjective(None).count([EncodedPair((), GOOD, BAD, weight=0.1)] * 10) == 1.0


# d = 0.1 (2 + 1) = 0.3: log(1 + e^-0.3) = 0.554355, log(1 + e^0.3) = 0.854355
@pytest.mark.parametrize(
    ("pair", "smoothing", "expected"),
    [
        ({}, 0.0, 0.554355),
        ({}, 0.1, 0.9 * 0.554355 + 0.1 * 0.854355),
        ({"tie": True}, 0.0, 0.704355),
        ({"weight": 3.0}, 0.0, 3 * 0.554355),
        ({"margin": 5.0}, 0.0, 0.554355),
    ],
)
def test_dpo_by_hand(monkeypatch: pytest.MonkeyPatch, pair: dict[str, Any], smoothing: float, expected: float) -> None:
    """The policy gives the chosen response 2 nats more than the reference, and the rejected one 1 nat less."""
    reference, policy = torch.nn.Linear(1, 1), object()
    logprobs = {id(reference): (-10.0, -20.0), id(policy): (-8.0, -21.0)}
    monkeypatch.setattr(dpo, "pair_logprobs", lambda model, items: [torch.tensor([x] * len(items)) for x in logprobs[id(model)]])
    monkeypatch.setattr(dpo, "takes_packed_rows", lambda model: False)
    objective, items = DPOObjective(0.1, label_smoothing=smoothing, reference=reference), [EncodedPair((2,), GOOD, BAD, **pair)]
    objective.prepare(policy, items, lambda work, part: work(policy, part))
    assert float(objective.loss_sum(policy, items)) == pytest.approx(expected, abs=2e-6)
    rewards = objective.read(policy, items)[0]
    assert (rewards.chosen, rewards.rejected) == pytest.approx((0.2, -0.1)) and rewards.margin == pytest.approx(0.3)
    assert (rewards.chosen_logprob, rewards.rejected_logprob) == (-8.0, -21.0)
    assert objective.mean_of(items, [rewards]) == pytest.approx(expected / pair.get("weight", 1.0), abs=2e-6)


def test_a_chat_counts_in_several_places() -> None:
    """Two answers of a chat, with a question between them and one after the last; nothing predicts the first token."""
    model = make_model()
    ids = (2, 3, 4, 5, 6, 7, 8, 9)
    item = EncodedExample(ids, (2, -100, 4, 5, -100, -100, 8, -100))
    assert counted_positions(item) == [2, 3, 6]
    with torch.no_grad():
        logprobs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(dim=-1)
        expected = torch.stack([-logprobs[place - 1, ids[place]] for place in (2, 3, 6)])
        torch.testing.assert_close(LanguageModelObjective().read(model, [item])[0], expected, atol=1e-5, rtol=1e-5)
        assert float(LanguageModelObjective().loss_sum(model, [item])) == pytest.approx(float(expected.sum()), rel=1e-5)


# --- DPO's reference -----------------------------------------------------------------------------------------------------------


PAIRS = [EncodedPair((2, 3), (4 + n, 5), (6, 7 + n, 8), number=n) for n in range(5)]


def with_lora(model: GPT2LMHeadModel) -> Any:
    torch.manual_seed(0)
    adapted = add_lora(model, LoraConfig(enabled=True, r=2, target_modules="c_attn"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    return adapted


def test_the_reference_is_the_model_without_its_adapters() -> None:
    start = make_model()
    with torch.no_grad():
        expected = [numbers.tolist() for numbers in pair_logprobs(start, PAIRS)]
    model = with_lora(copy.deepcopy(start))
    objective = DPOObjective.of(model, DPOConfig())
    BatchPasses(model, objective, LANES, 8).read(PAIRS)
    known = objective.state(PAIRS)["reference"]
    torch.testing.assert_close(known, torch.tensor(expected).T, atol=1e-5, rtol=1e-5)


def test_the_reference_is_asked_once_for_each_pair() -> None:
    """Without LoRA it is a copy that does not learn; three epochs ask it once for each pair."""
    model, asked = make_model(), 0
    objective = DPOObjective.of(model, DPOConfig(beta=0.5))
    copied = objective._reference
    before = copied.transformer.wte.weight.detach().clone()

    def count(module: Any, arguments: Any, named: dict[str, Any]) -> None:
        nonlocal asked
        asked += named["input_ids"].numel()

    copied.register_forward_pre_hook(count, with_kwargs=True)
    trainer = SupervisedTrainer(model, PAIRS, objective, DPOConfig(batch_size=2, epochs=3, learning_rate=1e-2), LANES, 0)
    losses = [trainer.step().loss for _ in range(trainer.total_steps)]
    assert asked == 5 * (2 + 1 + 2) - 1  # prompts once, no last tokens; and the third pair's responses begin alike
    assert losses[0] == pytest.approx(0.693147, abs=1e-5) and losses[-1] < 0.5
    assert torch.equal(copied.transformer.wte.weight, before)
    assert all(rewards.margin > 0 for rewards in trainer.read(PAIRS))


def test_the_mode_that_a_model_was_left_in_changes_nothing() -> None:
    """Sampling for the page may leave a model in training mode: its dropout stays off all the same."""
    found = []
    for training in (False, True):
        model = make_model()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.5
        model = with_lora(model)
        objective = DPOObjective.of(model, DPOConfig())
        model.train(training)
        with torch.no_grad():
            next(parameter for parameter in model.parameters() if parameter.requires_grad).mul_(1.5)
        found.append(BatchPasses(model, objective, LANES, 8).add_gradients(PAIRS).loss)
        assert all(module.training is training for module in model.modules())
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_dpo_takes_its_settings() -> None:
    objective = DPOObjective.of(make_model(), DPOConfig(beta=0.7, label_smoothing=0.3))
    assert (objective.beta, objective.label_smoothing) == (0.7, 0.3)


def test_dpo_needs_a_reference() -> None:
    trainer = SupervisedTrainer(make_model(), PAIRS, DPOObjective(0.1), DPOConfig(), LANES, 0)
    with pytest.raises(ValueError, match="needs a reference model"):
        trainer.step()


def test_a_pair_of_weight_zero_is_left_out(scores: None) -> None:
    items = [EncodedPair((), GOOD, BAD, weight=weight) for weight in (0.0, 1.0)]
    assert SupervisedTrainer(make_model(), items, BradleyTerryObjective(None), RewardTrainingConfig(), LANES, 0).left_out == 1
