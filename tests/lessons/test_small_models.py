"""The counts that a lesson shows for one block, against whole models that are adapted in every block."""

import pytest
import torch

from rlhf_studio.config import LoraConfig
from rlhf_studio.engine.models.adapters import add_lora
from rlhf_studio.lessons.pages.lora import count
from rlhf_studio.lessons.small_models import ARCHITECTURES, ATTENTION, all_parameters, tiny_adapted, tiny_model, without_weights


@pytest.mark.parametrize("targets", ["attention", "all_linear"])
@pytest.mark.parametrize("model", ["gpt2", "pythia_160m", "llama_1b"])
def test_one_block_times_blocks_is_the_whole_model(model: str, targets: str) -> None:
    settings = LoraConfig(enabled=True, r=16, target_modules=ATTENTION[model] if targets == "attention" else "auto")
    whole = add_lora(without_weights(ARCHITECTURES[model]()), settings)
    assert count(model, targets, 16)["trained"] == sum(p.numel() for p in whole.parameters() if p.requires_grad)


def test_published_numbers() -> None:
    assert count("gpt2", "attention", 16)["trained"] == 589_824  # peft's print_trainable_parameters for r = 16 on c_attn
    assert all_parameters("gpt2") == 124_439_808
    assert all_parameters("llama_1b") == 1_235_814_400


def test_the_tiny_models_are_copies() -> None:
    for make in (tiny_model, lambda: tiny_adapted(2, 4.0)):
        one, other = make(), make()
        with torch.no_grad():
            for parameter in one.parameters():
                parameter.add_(1)
        first = next(other.parameters())
        assert not torch.equal(next(one.parameters()), first)
        assert torch.equal(next(make().parameters()), first)
