"""What the lesson says of TRL, against TRL itself where it is installed."""

from typing import Any

import pytest
import torch

from rlhf_studio.lessons.pages.from_trl import SENTINEL
from rlhf_studio.lessons.pages.reference import REFERENCE, _two, as_trl, learnable
from rlhf_studio.lessons.pages.rewards import whitened_there
from rlhf_studio.lessons.parts.reference_memory import weights_of
from rlhf_studio.lessons.parts.trl_batch import one_batch, walk_there
from rlhf_studio.lessons.small_models import FAMILIES, TwoModels, language_model_and_classifier


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    return pytest.importorskip("trl.experimental.ppo.ppo_trainer")


@torch.no_grad()
def test_our_wrapper_gives_what_trls_gives(trainer: Any) -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    for family in FAMILIES:
        policy, value_model = language_model_and_classifier(family)
        output, values = trainer.PolicyAndValueWrapper(policy, value_model)(input_ids=ids, output_hidden_states=True, return_dict=True)
        logits, ours = TwoModels(policy, value_model)(ids)
        assert torch.equal(logits, output.logits), family
        assert torch.allclose(ours, values, atol=1e-6), family


def test_the_padding_is_filled_with_what_trl_fills_it(trainer: Any) -> None:
    assert SENTINEL == trainer.INVALID_LOGPROB


def test_the_context_is_trls(trainer: Any) -> None:
    """``null_ref_context`` itself, on a stand-in for the trainer."""

    class Accelerator:
        def unwrap_model(self, model: Any) -> Any:
            return model

    class Trainer:
        accelerator, is_peft_model, ref_adapter_name, model_adapter_name = Accelerator(), True, REFERENCE, None
        model = type("Wrapper", (), {"policy": _two()})

    with trainer.PPOTrainer.null_ref_context(Trainer()):
        theirs = learnable(Trainer.model.policy, REFERENCE)
    with as_trl(_two(), True):
        assert learnable(_two(), REFERENCE) == theirs > 0


def test_steps_counted_by_hand() -> None:
    assert walk_there(8, 1, 2, 4)[0] == 8  # two minibatches in each of four passes
    assert walk_there(8, 2, 2, 4)[0] == 4  # two micro-batches fill one step: a minibatch each
    assert walk_there(8, 4, 1, 3)[0] == 3
    assert walk_there(8, 2, 4, 4)[0] == 8  # four minibatches of one micro-batch each: two share a step
    assert walk_there(8, 2, 8, 4)[0] == 16
    assert one_batch("8", "2", "2", 4)["ours"] == 4


def test_cells_of_the_logged_means_counted_by_hand() -> None:
    _, ratios = walk_there(8, 2, 2, 4)
    assert ratios.shape == (4, 2, 2)  # passes, minibatches, accumulated micro-batches
    assert ratios[0].tolist() == [[1.0, 0.0], [1.0, 0.0]]  # a minibatch of eight is one micro-batch of eight
    assert one_batch("8", "2", "2", 4)["logged_ratio"] == 0.5
    assert one_batch("8", "4", "1", 4)["logged_ratio"] == 1.0
    assert one_batch("8", "2", "8", 4)["ours"] == 16


def test_whitened_padding_is_that_of_trl(trainer: Any) -> None:
    """TRL's own function, with and without the line that clears padding afterwards."""
    rewards, mask = torch.tensor([[0.3, 1.2, 0.0], [-0.4, 0.9, 2.0]]), torch.tensor([[True, True, False], [True] * 3])
    theirs = trainer.masked_whiten(rewards, mask, shift_mean=False)
    assert torch.allclose(whitened_there(rewards, mask), theirs)
    assert theirs[0, 2] != 0


def test_a_model_of_seven_billion_has_as_many_weights_as_its_publisher_says() -> None:
    assert weights_of("llama_7b") == 6_738_415_616
