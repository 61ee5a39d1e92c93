"""The memory of PPO on models of 7 and 70 billion weights, by the planner's own formula, as the table of docs/many-gpus.md.

    python -m tools.large_models

Shapes are those of the models' published config.json; no file of a model is read. 512 tokens of prompt, 1,024 of response, 8 responses
sampled at a time, one in a forward pass of the update, gradient checkpointing, a reward that is a rule.
"""

from __future__ import annotations

import sys
from typing import Any

from rlhf_studio.config.io import parse_ppo
from rlhf_studio.inputs.estimate.counts import RunModels, parameters
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.total import estimate_memory
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import read_shape

QWEN_7B = {
    **{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28},
    **{"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False, "hidden_act": "silu"},
}
LLAMA_70B = {
    **{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
    **{"num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False, "hidden_act": "silu"},
}
MODELS = {"7 B (Qwen2.5-7B)": QWEN_7B, "70 B (Llama-3.1-70B)": LLAMA_70B}
WAYS: dict[str, dict[str, Any]] = {
    "LoRA, 4-bit base": {"model": {"quantization": "4bit"}, "lora": {"enabled": True}},
    "LoRA": {"lora": {"enabled": True}},
    "all weights": {},
    "all weights, a critic of its own": {"critic": {"kind": "separate", "start": "policy"}},
}
GPU = Device("cuda", "a GPU of 80 GB", 80_000_000_000, 80_000_000_000, True)


def rows() -> list[tuple[str, str, float, float, int]]:
    """(model, way, GB that last, GB at the peak, GPUs of 80 GB that hold them) of each; the higher end of the planner's range."""
    result = []
    for name, shape in MODELS.items():
        facts = ModelFacts(path=None, architecture=name, model_type=str(shape["model_type"]), shape=read_shape(shape))
        for way, changes in WAYS.items():
            settings: dict[str, Any] = {
                "data": {"max_prompt_tokens": 512},
                "reward": {"components": [{"kind": "length"}]},
                "ppo": {"batch_size": 64, "mini_batch_size": 32, "micro_batch_size": 1},
                "generation": {"response_length": 1024, "batch_size": 8},
                **changes,
            }
            settings["model"] = {"gradient_checkpointing": True, **settings.get("model", {})}
            critic = facts if "critic" in changes else None
            estimate = estimate_memory(parse_ppo(settings), RunModels(facts, critic=critic), GPU)
            lasting = sum(part.high or 0 for part in estimate.parts if part.lasting)
            assert estimate.high is not None, estimate.unknown
            result.append((name, way, lasting / 1e9, estimate.high / 1e9, -(-estimate.high // 80_000_000_000)))
    return result


def main() -> int:
    """Print the table."""
    for name, shape in MODELS.items():
        known = parameters(ModelFacts(path=None, architecture=name, shape=read_shape(shape)))
        sys.stdout.write(f"{name}: {(known or 0) / 1e9:.2f} billion weights\n")
    sys.stdout.write("\n| model | what learns | kept all the time | at the peak | GPUs of 80 GB |\n|---|---|---|---|---|\n")
    for name, way, lasting, peak, gpus in rows():
        sys.stdout.write(f"| {name} | {way} | {lasting:,.0f} GB | {peak:,.0f} GB | {gpus} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
