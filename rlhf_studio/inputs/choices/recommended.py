"""Models to begin with, by size. Their shapes stand here, so that a list of them needs no network.

Sizes are those of each model's config.json on the hub; the licences are those of their pages. All of them are instruction-tuned but GPT-2,
and have licences that allow any use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import read_shape


@dataclass(frozen=True)
class Recommended:
    """A model on the hub.

    Attributes:
        name: its id.
        config: of its config.json what decides its size.
        bytes_per_weight: of its files: 2 in bfloat16, 4 in float32.
    """

    name: str
    licence: str
    architecture: str
    config: dict[str, Any]
    bytes_per_weight: int = 2

    def facts(self) -> ModelFacts:
        """What the planner needs to know; nothing is on this machine."""
        shape = read_shape(self.config)
        assert shape is not None, f"{self.name} has no shape"
        download = self.bytes_per_weight * shape.parameters
        return ModelFacts(
            None,
            self.architecture,
            self.config["model_type"],
            vocab_size=shape.vocabulary,
            max_positions=self.config["max_position_embeddings"],
            download_bytes=download,
            shape=shape,
            heads=self.config["num_attention_heads"],
        )


def _llama(hidden: int, layers: int, heads: int, key_heads: int, inner: int) -> dict[str, Any]:
    """SmolLM2's config.json."""
    return _sizes("llama", hidden, layers, heads, key_heads, inner, 49_152, 8_192)


def _qwen(kind: str, hidden: int, layers: int, heads: int, key_heads: int, inner: int, **more: Any) -> dict[str, Any]:
    """Qwen's config.json."""
    return {**_sizes(kind, hidden, layers, heads, key_heads, inner, 151_936, 32_768), **more}


def _sizes(kind: str, hidden: int, layers: int, heads: int, key_heads: int, inner: int, vocabulary: int, positions: int) -> dict[str, Any]:
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }


_GPT2 = {
    **{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "num_attention_heads": 12, "vocab_size": 50_257},
    **{"max_position_embeddings": 1_024, "activation_function": "gelu_new"},
}
_APACHE, _LLAMA, _QWEN2 = "Apache-2.0", "LlamaForCausalLM", "Qwen2ForCausalLM"
RECOMMENDED = (
    Recommended("openai-community/gpt2", "MIT", "GPT2LMHeadModel", _GPT2, 4),
    Recommended("HuggingFaceTB/SmolLM2-135M-Instruct", _APACHE, _LLAMA, _llama(576, 30, 9, 3, 1_536)),
    Recommended("HuggingFaceTB/SmolLM2-360M-Instruct", _APACHE, _LLAMA, _llama(960, 32, 15, 5, 2_560)),
    Recommended("Qwen/Qwen2.5-0.5B-Instruct", _APACHE, _QWEN2, _qwen("qwen2", 896, 24, 14, 2, 4_864)),
    Recommended("Qwen/Qwen3-0.6B", _APACHE, "Qwen3ForCausalLM", _qwen("qwen3", 1_024, 28, 16, 8, 3_072, head_dim=128)),
    Recommended("Qwen/Qwen2.5-1.5B-Instruct", _APACHE, _QWEN2, _qwen("qwen2", 1_536, 28, 12, 2, 8_960)),
    Recommended("HuggingFaceTB/SmolLM2-1.7B-Instruct", _APACHE, _LLAMA, _llama(2_048, 24, 32, 32, 8_192)),
    Recommended(
        "Qwen/Qwen2.5-7B-Instruct",
        _APACHE,
        _QWEN2,
        _qwen("qwen2", 3_584, 28, 28, 4, 18_944, vocab_size=152_064, tie_word_embeddings=False),
    ),
)
"""The smallest first."""
