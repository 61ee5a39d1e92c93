"""The fixed workloads: model shapes, batch, lengths. The same numbers for every contestant; imports nothing but the standard library."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A decoder of ``layers`` blocks.

    Attributes:
        family: gpt2 or llama (output layer tied to the embedding), or gpt_neox (untied).
        positions: longest text.
        inner: width of the feed-forward part; 0 for four times ``width``.
        key_heads: heads of keys and values; 0 for as many as there are of queries.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int
    family: str = "gpt2"
    positions: int = 1024
    inner: int = 0
    key_heads: int = 0


@dataclass(frozen=True)
class Workload:
    """One setting of PPO, of supervised fine-tuning (an update is an optimizer step), or of a reward model's training.

    Attributes:
        stage: ppo, sft, or reward_model; a stage but PPO trains ``policy`` or ``reward``, and the other one is not used.
        completion: shortest and longest completion in tokens, for a stage but PPO; lengths are drawn evenly.
        peer_micro: examples or pairs per forward pass of a peer, where that is best for it; 0 takes the batch.
        prompt: shortest and longest prompt in tokens; lengths are drawn evenly.
        response: tokens of every response; with ``stops`` the most tokens.
        micro: episodes per forward pass of the update; the gradients of a minibatch are added up to one optimizer step.
        mini: episodes per optimizer step; 0 takes the whole batch.
        lora: names of the layers with adapters of rank 16 and alpha 32; empty trains all weights.
        gpu: needs a GPU.
        half: computes in bfloat16; weights that are trained stay float32.
        warm_up, updates: updates per process, first those that are not counted.
        stops: responses end at the end token.
    """

    name: str
    title: str
    policy: Shape
    reward: Shape
    batch: int
    prompt: tuple[int, int]
    response: int
    micro: int
    lora: tuple[str, ...] = ()
    gpu: bool = False
    half: bool = False
    epochs: int = 4
    warm_up: int = 1
    updates: int = 5
    mini: int = 0
    stops: bool = False
    stage: str = "ppo"
    completion: tuple[int, int] = (0, 0)
    peer_micro: int = 0

    @property
    def all_updates(self) -> int:
        return self.warm_up + self.updates

    @property
    def mean_prompt(self) -> float:
        """Expected prompt length in tokens."""
        return sum(self.prompt) / 2

    @property
    def mean_completion(self) -> float:
        """Expected completion length in tokens."""
        return sum(self.completion) / 2

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Workload:
        shapes = {name: Shape(**values[name]) for name in ("policy", "reward")}
        return cls(**{**values, **shapes, **{name: tuple(values[name]) for name in ("prompt", "lora", "completion")}})


LORA_RANK, LORA_ALPHA = 16, 32
SETTINGS = {
    **{"temperature": 1.0, "gamma": 1.0, "lam": 0.95, "cliprange": 0.2, "cliprange_value": 0.2, "vf_coef": 0.1, "kl_coef": 0.05},
    **{"learning_rate": 1e-5, "seed": 0},
}
"""PPO settings of every workload but the recipe's, by our names."""

_DOLL = Shape(2, 32, 2, 128, positions=64)
_TINY = Shape(4, 256, 4, 4096, positions=256)
_GPT2 = Shape(12, 768, 12, 50257)
_SMOL = Shape(30, 576, 9, 49152, family="llama", inner=1536, key_heads=3)
_PYTHIA = Shape(16, 2048, 8, 50304, family="gpt_neox", positions=2048)

_W0 = Workload("w0", "smoke test, all weights", _DOLL, _DOLL, batch=8, prompt=(2, 4), response=4, micro=8, epochs=2, updates=2)
_W1 = Workload("w1", "tiny model, all weights", _TINY, _TINY, batch=64, prompt=(8, 16), response=32, micro=64)
_W2 = Workload(
    "w2", "GPT-2 of 124 M weights, LoRA", _GPT2, Shape(4, 256, 4, 50257),
    batch=16, prompt=(8, 16), response=48, micro=16, lora=("c_attn",), updates=2,
)  # fmt: skip
_W3 = Workload(
    "w3", "GPT-2 of 124 M weights, all weights, GPU", _GPT2, _GPT2,
    batch=128, prompt=(16, 32), response=128, micro=128, gpu=True, half=True,
)  # fmt: skip
_W4 = Workload(
    "w4", "Pythia-1B's shape, all weights, GPU", _PYTHIA, _PYTHIA,
    batch=64, prompt=(256, 512), response=53, micro=16, gpu=True, half=True, updates=3,
)  # fmt: skip
_W6 = Workload(
    "w6", "fine-tuning a tiny model, all weights", _TINY, _DOLL,
    batch=64, prompt=(8, 16), response=0, micro=32, updates=10, stage="sft", completion=(8, 56), peer_micro=16,
)  # fmt: skip
_W7 = Workload(
    "w7", "training a tiny reward model, all weights", _DOLL, _TINY,
    batch=32, prompt=(8, 16), response=0, micro=32, updates=10, stage="reward_model", completion=(8, 56),
)  # fmt: skip
_W8 = Workload(
    "w8", "SmolLM2's shape, LoRA", _SMOL, replace(_TINY, vocabulary=49152),
    batch=16, prompt=(24, 40), response=32, micro=16, lora=("q_proj", "v_proj"), updates=2,
)  # fmt: skip
_LORA = {"lora": ("c_attn",), "completion": (16, 80), "updates": 3}
WORKLOADS = {
    workload.name: workload
    for workload in (
        _W0,
        replace(_W0, name="w0-lora", title="smoke test, LoRA", lora=("c_attn",)),
        _W1,
        _W2,
        _W3,
        replace(_W3, name="w3-lora", title="GPT-2 of 124 M weights, LoRA, GPU", lora=("c_attn",)),
        _W4,
        replace(_W4, name="w4-lora", title="Pythia-1B's shape, LoRA, GPU", lora=("query_key_value",)),
        _W6,
        replace(
            _W6, name="w6-lora", title="fine-tuning GPT-2 of 124 M weights, LoRA", policy=_GPT2, batch=16, micro=16, peer_micro=16, **_LORA
        ),
        _W7,
        _W8,
        replace(_W7, name="w7-lora", title="a reward model of GPT-2's shape, LoRA", reward=_GPT2, batch=8, micro=8, **_LORA),
    )
}
RECIPE = "w5"
"""The bundled world as the recipe has it; a whole command line rather than single updates."""


def chosen(name: str) -> list[str]:
    """The workloads behind a name of the command line: w0, w3, w4, w6 and w7 are each run with all weights and with LoRA."""
    return [name, f"{name}-lora"] if f"{name}-lora" in WORKLOADS else [name]
