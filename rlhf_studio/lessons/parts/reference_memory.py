"""What a copy of the policy would cost as the reference, and what the four models of PPO take together."""

from __future__ import annotations

from functools import cache

import torch
from transformers import LlamaConfig

from rlhf_studio.config import LoraConfig, RunConfig
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.inputs.estimate.counts import RunModels
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory import lasting, parts
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import read_shape
from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Toggle, Word, bars
from rlhf_studio.lessons.small_models import ARCHITECTURES, WIDTH, WORDS, adapt, response_logits, sentence, tiny_model, without_weights

TEXT = sentence([WORDS.index(word) for word in ("the", "film", "is")], [WORDS.index("superb"), WORDS.index(".")])
RANK, ALPHA, MEBIBYTE = 2, 4.0, 1 << 20
FOUR = (parts.POLICY, parts.REFERENCE, parts.CRITIC, parts.REWARD_MODELS)
SHAPES = {
    **ARCHITECTURES,
    "llama_7b": lambda: LlamaConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        tie_word_embeddings=False,
    ),
}


@cache
def weights_of(model: str) -> int:
    """Weights of one of :data:`SHAPES`."""
    return sum(parameter.numel() for parameter in without_weights(SHAPES[model]()).parameters())


PROCESSES = 8
WAYS = {"full": {"enabled": False}, "pissa": {"enabled": True, "init_lora_weights": "pissa"}, "lora": {"enabled": True}}


@torch.no_grad()
def memory(model: str, start: str, half: bool) -> Numbers:
    """Bytes of policy and reference by the planner, in three ways to train; and whether switching off gives the base back."""
    facts = ModelFacts(path=None, architecture="", parameters=weights_of(model), shape=read_shape(SHAPES[model]().to_dict()))
    models = RunModels(facts, [facts], critic=facts)
    processor = Device("cpu", "CPU", None, None, bfloat16=False)
    sizes: dict[str, dict[str, float]] = {}
    for way, lora in WAYS.items():
        minimal = {"data": {"prompts": "prompts.txt"}, "reward": {"components": [{"kind": "length"}]}, "lora": lora}
        run = RunConfig.model_validate(minimal | {"model": {"policy": "model"}})
        by_name = {part.name: part for part in lasting.lasting_parts(run, models, processor, 2 if half else 4)}
        sizes[way] = {name: (by_name[name].low or 0) / MEBIBYTE for name in FOUR}
    adapted = adapt(
        tiny_model().float(), LoraConfig.model_validate({"enabled": True, "r": RANK, "alpha": ALPHA, "init_lora_weights": start})
    )
    base, policy = response_logits(ResponseModel(tiny_model().float()), TEXT), Policy(adapted, make_value_head(WIDTH, "zero", 0))
    with adapted.disable_adapter():
        off = response_logits(policy, TEXT)
    way = "pissa" if start == "pissa" else "lora"
    return {
        "sizes": sizes,
        "reference": sizes[way][parts.REFERENCE],
        "copy": sizes["pissa"][parts.REFERENCE],
        "policy": sizes[way][parts.POLICY],
        "takes": Word("once_more" if sizes[way][parts.REFERENCE] else "nothing"),
        "off_apart": float((off - base).abs().max()),
        "on_apart": float((response_logits(policy, TEXT) - base).abs().max()),
        "parameters": weights_of(model),
        "hidden": SHAPES[model]().hidden_size,
        "processes": PROCESSES,
        "part": sizes[way][parts.POLICY] / PROCESSES,
        "all_four": sum(sizes["full"].values()),
        "four_now": sum(sizes[way].values()),
    }


def draw_memory(n: Numbers) -> Picture:
    ways = {"full": "full", "lora": "lora", "pissa": "pissa_way"}
    chosen = "pissa" if n["start"] == "pissa" else "lora"
    items = [
        Bar(Word(label), [n["sizes"][way][parts.POLICY], n["sizes"][way][parts.REFERENCE]], mark="chosen" if way == chosen else "")
        for way, label in ways.items()
    ]
    most = 1.05 * max(max(sizes.values()) for sizes in n["sizes"].values())
    return bars(items, [Word("policy"), Word("reference")], label=Word("mebibytes"), low=0, high=most, digits=0)


SCENE = Scene(
    "memory",
    memory,
    controls=(Choice("model", list(SHAPES), start="gpt2"), Choice("start", ["default", "pissa"], start="default"), Toggle("half")),
    pictures={"bytes": draw_memory},
)
