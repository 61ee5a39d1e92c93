"""What every estimate starts from: the models of a run, how many weights they have and train, and how much is worked on together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_studio.config import EvaluationRunConfig, RunConfig, StageConfig, SupervisedConfig
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.lora_targets import is_target, target_names

FLOAT32, BFLOAT16 = 4, 2  # bytes

Learns = RunConfig | SupervisedConfig
"""The stages that change a model's weights, all of them or those of adapters."""


@dataclass(frozen=True)
class RunModels:
    """What the files of a run's models tell.

    Attributes:
        rewards: one entry per reward model.
        reference, critic: None unless they are models of their own.
    """

    policy: ModelFacts
    rewards: Sequence[ModelFacts] = ()
    reference: ModelFacts | None = None
    critic: ModelFacts | None = None


def bytes_per_number(config: StageConfig, device: Device) -> int:
    """Bytes of one number in the matrix products: 2 in bfloat16, 4 in float32."""
    bfloat16 = config.model.dtype == "bfloat16" or (config.model.dtype == "auto" and device.kind == "cuda" and device.bfloat16)
    return BFLOAT16 if bfloat16 else FLOAT32


def parameters(facts: ModelFacts) -> int | None:
    """Number of weights: counted in the files, else by the model's shape; None when neither is known."""
    return facts.parameters or (facts.shape.parameters if facts.shape else None)


def trained_parameters(config: Learns, policy: ModelFacts) -> int | None:
    """Number of weights that training changes, without a value or score head; None when it is not known."""
    if not config.lora.enabled:
        return parameters(policy)
    known = trained_in_files(config, policy)
    if known is not None or policy.shape is None or target_names(config.lora) != ["auto"]:
        return known
    # The weights are not on this machine: r × (inputs + outputs) of the layers that a model of this shape has, and DoRA's
    # column lengths. Whether the layers have biases, which may learn too, config.json does not tell.
    shape, lora = policy.shape, config.lora
    return shape.layers * sum(lora.r * (inputs + outputs) + lora.use_dora * outputs for inputs, outputs in shape.layers_of_a_block)


def trained_in_files(config: Learns, policy: ModelFacts) -> int | None:
    """Number of weights that training changes, counted in the policy's weight files; None when they are not on this machine.

    With LoRA: r × (rows + columns) of every adapted matrix, the column lengths that DoRA learns, and the biases that learn. That is an
    upper estimate: where every layer is adapted, embeddings are counted too, and the longer side is taken for the outputs.
    """
    lora = config.lora
    if not lora.enabled:
        return policy.parameters
    if not policy.tensors:
        return None
    names = target_names(lora)
    adapted = [
        tensor.shape
        for name, tensor in policy.tensors.items()
        if len(tensor.shape) == 2 and (names == ["auto"] or is_target(name.removesuffix(".weight"), names))
    ]
    values = sum(lora.r * sum(shape) + lora.use_dora * max(shape) for shape in adapted)
    if lora.bias == "none":
        return values
    biases = {name.removesuffix(".bias"): tensor.values for name, tensor in policy.tensors.items() if name.endswith(".bias")}
    everywhere = lora.bias == "all" or names == ["auto"]
    return values + sum(count for layer, count in biases.items() if everywhere or is_target(layer, names))


def reward_model_count(config: RunConfig | EvaluationRunConfig) -> int:
    """How many reward models all components have together."""
    return sum(len(component.model_names()) for component in config.reward.components)


def rows_together(config: RunConfig) -> int:
    """How many responses are sampled at the same time."""
    return min(config.generation.batch_size or config.ppo.batch_size, config.ppo.batch_size)
