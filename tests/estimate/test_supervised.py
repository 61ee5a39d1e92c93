"""The cost of fine-tuning, reward models and DPO: arithmetic worked by hand, and what must never shrink it."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.config import SupervisedConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.inputs.checks.examples import ExampleTokens
from rlhf_studio.inputs.estimate.counts import RunModels
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.lasting import CPU_FRAMEWORK
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate
from rlhf_studio.inputs.estimate.supervised.memory import estimate_training_memory
from rlhf_studio.inputs.estimate.supervised.savings import cheapest_change
from rlhf_studio.inputs.estimate.supervised.sizes import micro_batch, planned_steps
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import read_shape
from rlhf_studio.inputs.preflight.supervised import is_supervised

CPU = Device("cpu", "CPU", 10**9, 2 * 10**9, False)
GPU = Device("cuda", "A GPU", 10**9, 2 * 10**9, True)
# 2 blocks of width 8, inner width 32, 10 tokens: 8 H + 2 F = 128 values per token and block are kept
SHAPE = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "n_inner": None, "vocab_size": 10, "activation_function": "gelu_new"}
SAVED, FREED = 2 * 128, 2 * (6 * 8 + 32)
TOKENS = ExampleTokens((4, 6, 8, 14), counted=4.0)  # 8 on average, half of which count


def facts(config: dict[str, Any] = SHAPE, **more: Any) -> ModelFacts:
    return ModelFacts(path=None, architecture="A", model_type="gpt2", parameters=1000, shape=read_shape(config), **more)


def settings(stage: str, **sections: dict[str, Any]) -> SupervisedConfig:
    engine = {"threads": 1} if stage == "reward_model" else {"watch_prompts": 0, "threads": 1}
    base: dict[str, dict[str, Any]] = {"data": {"max_tokens": 16}, stage: {"batch_size": 4}, "engine": engine}
    made = parse_config({"stage": stage, **{key: {**base.get(key, {}), **sections.get(key, {})} for key in {*base, *sections}}})
    assert is_supervised(made)
    return made


def table(
    config: SupervisedConfig, policy: ModelFacts | None = None, device: Device = CPU, **more: Any
) -> dict[str, tuple[int | None, int | None]]:
    made = estimate_training_memory(config, RunModels(policy or facts()), device, TOKENS, 100, **more)
    return {part.name: (part.low, part.high) for part in made.parts}


def test_fine_tuning_part_by_part() -> None:
    parts = table(settings("sft"))
    matrix = 10 * 8 * 4
    assert parts["Framework"] == CPU_FRAMEWORK and parts["Model"] == (4000, 4000)
    assert parts["Gradients"] == (4000, 4000 + matrix) and parts["Optimizer"] == (8000, 8000 + matrix)
    assert parts["Examples"] == (100 * 8 * 8, 100 * (8 * 80 + 2000))
    assert parts["Logits"] == (4 * 4 * 10 * 4, 5 * 4 * 7 * 10 * 4), "half of the longest example's 14 tokens count"
    assert parts["Activations"] == (4 * 8 * SAVED * 4, 4 * 14 * (SAVED + FREED) * 4)
    assert "Reference" not in parts and "KV cache" not in parts


def test_pairs_are_two_texts_and_dpo_has_a_reference() -> None:
    reward, dpo = table(settings("reward_model")), table(settings("dpo"))
    assert reward["Activations"] == dpo["Activations"] == (2 * 4 * 8 * SAVED * 4, 2 * 4 * 14 * (SAVED + FREED) * 4)
    assert "Logits" not in reward, "a score is of the last token alone"
    assert reward["Gradients"] == (4000, 4000), "there is no output layer that is tied to the embedding"
    assert dpo["Logits"] == (2 * 4 * 4 * 10 * 4, 5 * 2 * 4 * 7 * 10 * 4)
    assert dpo["Reference"] == (4000, 4000)
    assert table(settings("dpo", lora={"enabled": True}))["Reference"] == (0, 0), "the adapters are switched off"
    copied = table(settings("dpo", lora={"enabled": True, "bias": "all"}))
    assert copied["Reference"] == (4000, 4000)


def test_a_language_models_own_output_layer_is_left_out_of_a_reward_model() -> None:
    own = facts({**SHAPE, "tie_word_embeddings": False})
    assert table(settings("reward_model"), own)["Model"] == (4 * (1000 - 80), 4 * (1000 - 80))
    assert table(settings("sft"), own)["Model"] == (4000, 4000)


def test_padding_costs_where_texts_are_not_packed() -> None:
    packed, padded = (micro_batch(settings("sft"), TOKENS, packed) for packed in (True, False))
    assert (packed.read, padded.read) == ((4 * 8, 4 * 14), (4 * 14, 4 * 14)), "of four, the longest is usually the longest of all"
    assert micro_batch(settings("sft", sft={"batch_size": 4, "micro_batch_size": 1}), TOKENS, False).read == (8, 14)
    assert micro_batch(settings("sft"), None, True).read == (4 * 16, 4 * 16)
    unsure = ExampleTokens(TOKENS.texts, TOKENS.counted, complete=False)
    assert micro_batch(settings("sft"), unsure, True).read == (4 * 8, 4 * 16), "one of those not looked at may be as long as is allowed"
    assert table(settings("sft"), device=GPU)["Activations"] == (4 * 14 * SAVED * 2, int(1.6 * 4 * 14 * SAVED * 2))


def test_attention_that_drops_keeps_its_weights_on_a_cpu() -> None:
    """4 texts of 8 tokens, or 14: 2 blocks, 2 heads, two float32 matrices and one of yes and no."""
    drops = facts(attention_dropout=0.1, heads=2)
    plain, more = (table(settings("sft"), policy)["Activations"] for policy in (facts(), drops))
    low, high = (after - before for after, before in zip(more, plain, strict=True) if after is not None and before is not None)
    assert (low, high) == (4 * 8**2 * 2 * 2 * 9, 4 * 14**2 * 2 * 2 * 9)
    assert table(settings("sft"), drops, GPU)["Activations"] == table(settings("sft"), device=GPU)["Activations"]


def test_checkpointing_and_smaller_pieces_save() -> None:
    def high(**sections: dict[str, Any]) -> int:
        made = estimate_training_memory(settings("dpo", **sections), RunModels(facts()), CPU, TOKENS, 100)
        assert made.high is not None
        return made.high

    plain = high()
    assert high(model={"gradient_checkpointing": True}) < plain
    assert high(dpo={"batch_size": 4, "micro_batch_size": 1}) < plain
    assert high(data={"max_tokens": 8}) < plain


def test_the_cheapest_change_comes_first_and_fits() -> None:
    config = settings("sft", sft={"batch_size": 4096}, data={"max_tokens": 512})

    def estimate(other: SupervisedConfig, free: int = 10**15) -> MemoryEstimate:
        return estimate_training_memory(other, RunModels(facts()), Device("cpu", "CPU", free, 10**15, False), None, 10**5)

    now = estimate(config)
    assert now.high is not None and cheapest_change(config, now, estimate) is None, "it fits"
    tight = now.high - 1000
    change = cheapest_change(config, estimate(config, tight), lambda other: estimate(other, tight))
    assert change is not None and (change.setting, change.value, change.fits) == ("sft.micro_batch_size", "2048", True)
    smaller = settings("sft", sft={"batch_size": 4096, "micro_batch_size": 2048}, data={"max_tokens": 512})
    assert now.high - (estimate(smaller).high or 0) == change.saves


def test_a_shape_that_config_json_does_not_tell_is_unknown() -> None:
    made = estimate_training_memory(settings("sft"), RunModels(ModelFacts(None, "A", parameters=10)), CPU, TOKENS, 100)
    assert made.high is None and made.unknown.startswith("unknown: the model's files do not tell the size of logits, activations")


@pytest.mark.parametrize(
    ("examples", "max_steps", "steps"), [(10, 0, 6), (10, 4, 4), (10, 100, 6), (None, 0, None), (None, 7, 7), (1, 0, 2)]
)
def test_the_number_of_steps(examples: int | None, max_steps: int, steps: int | None) -> None:
    assert planned_steps(settings("sft", sft={"batch_size": 4, "epochs": 2, "max_steps": max_steps}), examples) == steps
